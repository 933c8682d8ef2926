/** A process of the siege, which answers questions. */
import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'

export class Helper {
  readonly #child: ChildProcess

  /** @param file the source file beside this one that the process runs */
  constructor(file: string, ...args: string[]) {
    this.#child = fork(new URL(file, import.meta.url), args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
    this.#child.once('exit', code => {
      if (code) throw new Error(`${file} ended with ${code}`)
    })
  }

  async ask<T>(question: unknown = ''): Promise<T> {
    const answer = once(this.#child, 'message')
    this.#child.send(question as object)
    return (await answer)[0] as T
  }

  stop(): void {
    if (this.#child.connected) this.#child.disconnect()
  }
}

/** Answers each question of the parent process, and ends with it. */
export function answering(answer: (question: any) => unknown): void {
  process.on('message', async question => {
    process.send?.((await answer(question)) ?? null)
  })
  process.on('disconnect', () => process.exit(0))
}
