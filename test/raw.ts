/** A client that sends and receives raw bytes. */
import { connect, type Socket } from 'node:net'

export class RawClient {
  readonly socket: Socket
  /** Resolves when the gateway, or the client, has closed the connection. */
  readonly closed: Promise<void>
  /** Everything that has been received. */
  answer = ''
  readonly #waiting = new Set<() => void>()

  constructor(port: number, ...pieces: string[]) {
    this.socket = connect(port, '127.0.0.1')
    for (const piece of pieces) this.send(piece)
    const told = (): void => {
      for (const look of this.#waiting) look()
    }
    this.socket.on('data', part => {
      this.answer += part.toString('latin1')
      told()
    })
    this.socket.on('error', () => {})
    this.closed = new Promise(resolve =>
      this.socket.on('close', () => {
        resolve()
        told()
      }),
    )
  }

  /** Each character is a byte. */
  send(piece: string): void {
    this.socket.write(Buffer.from(piece, 'latin1'))
  }

  /** Number of final replies so far. */
  get replies(): number {
    return this.answer.match(/HTTP\/1\.1 [2-5]\d\d/g)?.length ?? 0
  }

  /** The status of the first final reply. 0 before that. */
  get status(): number {
    return Number(/HTTP\/1\.1 ([2-5]\d\d)/.exec(this.answer)?.[1] ?? 0)
  }

  /** Resolves when the received text matches, or the connection is closed. */
  saw(pattern: RegExp): Promise<boolean> {
    return new Promise(resolve => {
      const look = (): void => {
        const found = pattern.test(this.answer)
        if (!found && !this.socket.closed) return
        this.#waiting.delete(look)
        resolve(found)
      }
      this.#waiting.add(look)
      look()
    })
  }
}
