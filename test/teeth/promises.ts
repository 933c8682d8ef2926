import { readFileSync } from 'node:fs'
import { parse } from 'yaml'

/** A promise. */
export interface Promised {
  readonly promise: string
  /** The file of its test. */
  readonly test: string
  /** The title of its test, or a part of it. */
  readonly title: string
  /** Whether the title is that of a part of a test. */
  readonly isPart?: boolean
  /** A source file, and a text that it has once. */
  readonly file: string
  readonly text: string
  /** What takes the place of the text. The test fails then. */
  readonly instead: string
}

/** Returns the command that runs the test of a promise. */
export function tierOf({ test }: Promised): string {
  if (test.endsWith('.test.ts')) return 'npm test'
  return test.endsWith('.all.ts') ? 'npm run test:all' : 'npm run simulate'
}

/** The promises, in the order of the page. */
export const PROMISES: readonly Promised[] = parse(readFileSync(new URL('promises.yaml', import.meta.url), 'utf8'))
