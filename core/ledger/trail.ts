/**
 * The trail: a file of keys and grants, synced before a grant is acknowledged. Together with an export of the history
 * it rebuilds a lost store. It contains only hashes of secrets.
 */
import { existsSync, mkdirSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'

/** One line of the trail or of an export. */
export type Line =
  | {
      readonly kind: 'key'
      readonly account: string
      readonly at: number
      readonly record: Readonly<Record<string, string>>
    }
  | {
      readonly kind: 'grant'
      readonly account: string
      readonly at: number
      readonly id: string
      readonly amount: string
      readonly notes: Readonly<Record<string, string>>
    }
  | {
      readonly kind: 'history'
      readonly account: string
      readonly archived: string
      readonly counters: Readonly<Record<string, string>>
    }
  | { readonly kind: 'entry'; readonly account: string; readonly id: string; readonly fields: readonly string[] }
  /** The numbers of a price version. */
  | { readonly kind: 'price'; readonly version: string; readonly numbers: string }
  /** The end of an export, with the number of lines before it. */
  | { readonly kind: 'end'; readonly lines: number }

/** Name of the trail file in the data folder. */
const TRAIL = 'grants.jsonl'

/** The trail in one data folder. */
export class Trail {
  /** Path of the trail, for messages to the operator. */
  readonly file: string
  readonly #folder: string

  /** @param data the data folder */
  constructor(data: string) {
    this.#folder = data
    this.file = join(data, TRAIL)
  }

  /** Whether the trail exists. */
  get exists(): boolean {
    return existsSync(this.file)
  }

  /** Appends a line. @throws Error with a message for the operator. The recorded change has already been made */
  async add(line: Line): Promise<void> {
    try {
      mkdirSync(this.#folder, { recursive: true, mode: 0o700 })
      const handle = await open(this.file, 'a', 0o600)
      try {
        // The line break before it separates it from a line that a crash cut off.
        await handle.appendFile(`\n${JSON.stringify(line)}\n`)
        await handle.datasync()
      } finally {
        await handle.close()
      }
    } catch (cause) {
      throw new Error(
        `the change was made, but ${this.file} cannot be written (${(cause as Error).message}); do not repeat the command, and record the change elsewhere`,
        { cause },
      )
    }
  }
}

/** Parses the lines of a file and counts unreadable ones. A line that a crash cut off was never acknowledged. */
export function readTrail(text: string): { lines: Line[]; unreadable: number } {
  const written = text.split('\n').filter(line => line !== '')
  const lines = written.map(parse).filter(line => line !== undefined)
  return { lines, unreadable: written.length - lines.length }
}

function parse(text: string): Line | undefined {
  try {
    const line: unknown = JSON.parse(text)
    return typeof line === 'object' && line !== null && 'kind' in line ? (line as Line) : undefined
  } catch {
    return undefined
  }
}
