/** A client that speaks bytes. */
import { connect, type Socket } from 'node:net'

export class RawClient {
  readonly socket: Socket
  /** Resolves when the gateway, or the client, has closed the connection. */
  readonly closed: Promise<void>
  /** All that came back so far. */
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

  /** How many final replies have come. */
  get replies(): number {
    return this.answer.match(/HTTP\/1\.1 [2-5]\d\d/g)?.length ?? 0
  }

  /** The status of the first final reply; 0 while there is none. */
  get status(): number {
    return Number(/HTTP\/1\.1 ([2-5]\d\d)/.exec(this.answer)?.[1] ?? 0)
  }

  /** Resolves when the answer matches, or the connection is closed. */
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
