/** What the YAML parser stumbles over, in the words of who wrote the file. */
import { visit, type YAMLError } from 'yaml'
import type { Problem, Source } from './locate.ts'

/** How the complaint about a variable that is not set begins. */
export const NOT_SET = 'this environment variable is not set'

/** For what does not keep the lines behind it from being understood. */
const HINTS: Readonly<Record<string, string>> = {
  DUPLICATE_KEY: 'every name may stand once in a mapping',
  TAB_AS_INDENT: 'indent with spaces',
  TAG_RESOLVE_FAILED: 'the only tag is !env NAME fallback',
}

/** What to say of the rest, and what to do about it. */
const WORDS: Readonly<Record<string, readonly [message: string, hint: string]>> = {
  BAD_INDENT: ['this line is not indented as those beside it', 'what belongs together begins in one column'],
  BLOCK_AS_IMPLICIT_KEY: [
    'a value is followed by another name',
    'one name: value a line, none of them indented deeper; a text with a colon and a space in it is quoted',
  ],
  BLOCK_IN_FLOW: ['this cannot stand in brackets', 'separate what is in brackets by commas'],
  MULTILINE_IMPLICIT_KEY: ['expected a name with its value', 'write name: value, with a space behind the colon'],
  MULTIPLE_DOCS: ['a second document begins here', 'write one, without ---'],
}

/** The parser's complaints as problems. Behind the first with which it lost its way there are only echoes of that one. */
export function syntaxProblems(source: Source, errors: readonly YAMLError[]): Problem[] {
  const sorted = [...errors].sort((a, b) => a.pos[0] - b.pos[0])
  const lost = sorted.findIndex(({ code }) => !(code in HINTS))
  return sorted.slice(0, lost === -1 ? undefined : lost + 1).map(error => syntaxProblem(source, error))
}

function syntaxProblem(source: Source, { code, message, pos: [start, end] }: YAMLError): Problem {
  const hint = message.startsWith(NOT_SET) ? 'set it, or write !env NAME fallback' : HINTS[code]
  if (hint !== undefined) return source.at(start, end, message, hint)
  const bracket = / end with an? ([\]}])$/.exec(message)?.[1]
  if (bracket !== undefined) {
    const last = lastWritten(source.text, start)
    return source.at(last - 1, last, `a ${bracket} is missing`, 'a bracket is closed before the next line that is indented as its own, or less')
  }
  const quote = /^Missing closing (["'])quote$/.exec(message)?.[1]
  if (quote !== undefined) return source.at(opening(source, start), end, `the ${quote} that closes this is missing`)
  const line = lineAt(source.text, start)
  const first = start + line.search(/\S|$/)
  if (/^\s*-[^\s-]/.test(line)) return source.at(first, first + 1, 'a space is missing behind this -')
  const said = WORDS[message.endsWith('followed by map values') ? 'MULTILINE_IMPLICIT_KEY' : code]
  return said ? source.at(first, Math.max(end, first + 1), ...said) : source.at(start, end, message)
}

/** The rest of the line from an index on. */
function lineAt(text: string, start: number): string {
  return text.slice(start).split('\n', 1)[0] ?? ''
}

/** The index behind the last character before an index that is neither white space nor part of a comment. */
function lastWritten(text: string, before: number): number {
  const lines = text.slice(0, before).split('\n')
  for (let line = lines.pop(); line !== undefined; line = lines.pop()) {
    const written = line.replace(/(?:^|\s)#.*/, '').trimEnd()
    if (written !== '') return lines.reduce((sum, { length }) => sum + length + 1, written.length)
  }
  return 1
}

/** Where the text begins whose end is not found. */
function opening({ doc }: Source, end: number): number {
  let start = end
  visit(doc, {
    Scalar(_key, { range }) {
      if (range && range[0] <= end && range[1] >= end) start = range[0]
    },
  })
  return start
}
