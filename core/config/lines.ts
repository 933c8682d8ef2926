/** Where settings stand in the text of a file. */
import { LineCounter, type Node, parseDocument } from 'yaml'
import type { Path } from './locate.ts'

/** Returns the line of a setting, from 1; undefined if the file does not have it, so that its default holds. */
export function lineOf(text: string, path: Path): number | undefined {
  const lines = new LineCounter()
  const found = parseDocument(text, { lineCounter: lines, logLevel: 'silent' }).getIn(path, true) as Node | undefined
  return found?.range ? lines.linePos(found.range[0]).line : undefined
}
