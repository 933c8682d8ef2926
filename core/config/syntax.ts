/** Words the YAML parser's errors for the author of the file. */
import { visit, type YAMLError } from 'yaml'
import { EnvScalar, type Problem, type Source } from './locate.ts'

/** The beginning of the message about a file that cannot be read. */
export const UNREADABLE = 'this file cannot be read'

/** Beginning of the message about an unset variable. */
export const NOT_SET = 'this environment variable is not set'

/** Hints for errors after which the parser still understands the rest of the file. */
const HINTS: Readonly<Record<string, string>> = {
  DUPLICATE_KEY: 'each name may appear only once in a mapping',
  TAG_RESOLVE_FAILED: 'write !env NAME, or !env NAME fallback',
}

/** Messages and hints for all other errors. */
const WORDS: Readonly<Record<string, readonly [message: string, hint: string]>> = {
  BAD_INDENT: ['this line is indented differently from the lines beside it', 'indent all lines of a block equally'],
  BLOCK_AS_IMPLICIT_KEY: [
    'this does not fit with what follows',
    'check the indentation of both; quote a text that contains a colon and a space; put a mapping on one line in { }',
  ],
  BLOCK_IN_FLOW: ['this is not allowed inside brackets', 'separate items in brackets with commas'],
  TAB_AS_INDENT: ['tabs are not allowed as indentation', 'indent with spaces'],
  MULTILINE_IMPLICIT_KEY: ['expected a name with its value', 'write name: value, with a space after the colon'],
  MULTIPLE_DOCS: ['a second document begins here', 'use one document, without ---'],
}

const OTHER = [
  'the YAML is invalid from here on',
  'look for a missing or extra bracket, comma, space or quote',
] as const

/**
 * Converts the parser's errors to problems. Errors after the first one that loses the parser are dropped as
 * consequences. A name that appears twice is reported alone: which of its values was meant is not known.
 * @returns whether the parser lost its way, so that the file's shape is unknown
 */
export function syntaxProblems(source: Source, errors: readonly YAMLError[]): { problems: Problem[]; lost: boolean } {
  const sorted = [...errors].sort((a, b) => a.pos[0] - b.pos[0])
  const twice = sorted.filter(({ code }) => code === 'DUPLICATE_KEY')
  if (twice.length > 0) return { problems: twice.map(error => syntaxProblem(source, error)), lost: true }
  const first = sorted.findIndex(({ code }) => !(code in HINTS))
  const lost = first !== -1
  return { problems: sorted.slice(0, lost ? first + 1 : undefined).map(error => syntaxProblem(source, error)), lost }
}

/** Reports aliases whose anchor does not exist. */
export function aliasProblems(source: Source): Problem[] {
  const problems: Problem[] = []
  visit(source.doc, {
    Alias(_key, node) {
      const [start, end] = node.range ?? [0, 0]
      if (!node.resolve(source.doc))
        problems.push(
          source.at(
            [start, end],
            `there is no anchor &${node.source} above this line`,
            'quote a text that begins with *',
          ),
        )
    },
  })
  return problems
}

/** A variable in the syntax of shells and compose files. */
const SHELL_VARIABLE = /\$\{([A-Z_][A-Z0-9_]*)[^}]*\}|^\$([A-Z_][A-Z0-9_]*)$/

/** Returns whether a text contains a variable in shell syntax. */
export function asksTheShell(text: string): boolean {
  return SHELL_VARIABLE.test(text)
}

/** Reports variables in shell syntax. Otherwise only the upstream would reject such a credential. */
export function variableProblems(source: Source): Problem[] {
  const problems: Problem[] = []
  visit(source.doc, {
    Scalar(_key, node) {
      const [start, end] = node.range ?? [0, 0]
      // A value from the environment may contain anything.
      const [variable, braced, bare] = SHELL_VARIABLE.exec(node instanceof EnvScalar ? '' : String(node.value)) ?? []
      if (variable !== undefined) problems.push(variableProblem(source, start, end, braced ?? bare))
    },
  })
  return problems
}

function variableProblem(source: Source, start: number, end: number, name: string | undefined): Problem {
  return source.at(
    [start, end],
    'this is not how to use an environment variable',
    `write !env ${name} as the whole value, or !env ${name} fallback`,
  )
}

function syntaxProblem(source: Source, { code, message, pos: [start, end] }: YAMLError): Problem {
  const remedy = message.startsWith(UNREADABLE) ? 'write !file PATH, relative to the folder of this file' : HINTS[code]
  const hint = message.startsWith(NOT_SET) ? 'set it, or write !env NAME fallback' : remedy
  if (code === 'DUPLICATE_KEY') {
    const name = /^["']?[^\s:"']+/.exec(source.text.slice(start))?.[0] ?? ''
    return source.at([start, start + name.length], `${name} appears a second time here`, hint)
  }
  // The problem of a tag covers its value, too.
  if (code === 'TAG_RESOLVE_FAILED') {
    const said = message.replace(/^Unresolved tag: (.*)$/, 'there is no tag $1')
    return source.at([start, start + (/^[^,\]}\n]*/.exec(source.text.slice(start))?.[0] ?? '').length], said, hint)
  }
  if (hint !== undefined) return source.at([start, end], message, hint)
  const bracket = / end with an? ([\]}])$/.exec(message)?.[1]
  if (bracket !== undefined) {
    const last = lastWritten(source.text, start)
    return source.at(
      [last - 1, last],
      `a ${bracket} is missing`,
      'close the bracket before the next line with the same or less indentation',
    )
  }
  const quote = /^Missing closing (["'])quote$/.exec(message)?.[1]
  if (quote !== undefined) return source.at([opening(source, start), end], `the closing ${quote} is missing`)
  const first = nextWritten(source.text, start)
  // In flow style the parser reports the variable's own brace first.
  const [variable, name] = /^\$\{([A-Z_][A-Z0-9_]*)[^}\n]*\}?/.exec(source.text.slice(first - 1)) ?? []
  if (variable !== undefined) return variableProblem(source, first - 1, first - 1 + variable.length, name)
  const line = source.text.slice(source.text.lastIndexOf('\n', first - 1) + 1, first + 2)
  if (/^\s*-[^\s-]$/.test(line)) return source.at([first, first + 1], 'a space is missing after this -')
  const said = WORDS[message.endsWith('followed by map values') ? 'MULTILINE_IMPLICIT_KEY' : code] ?? OTHER
  return source.at([code === 'TAB_AS_INDENT' ? start : first, Math.max(end, first + 1)], ...said)
}

/** Returns the index of the first character at or after an index that is neither white space nor in a comment. */
function nextWritten(text: string, from: number): number {
  const blank = /(?:\s|#.*)*/y
  blank.lastIndex = from
  blank.test(text)
  return blank.lastIndex
}

/** Returns the index after the last character before an index that is neither white space nor in a comment. */
function lastWritten(text: string, before: number): number {
  const lines = text.slice(0, before).split('\n')
  for (let line = lines.pop(); line !== undefined; line = lines.pop()) {
    const written = /^(?:"[^"]*"|'[^']*'|[^\s#"']|(?<=\S)#|\s+(?!#)|["'])*/.exec(line.trimEnd())?.[0].trimEnd() ?? ''
    if (written !== '') return lines.reduce((sum, { length }) => sum + length + 1, written.length)
  }
  return 1
}

/** Returns where an unterminated text begins. */
function opening({ doc }: Source, end: number): number {
  let start = end
  visit(doc, {
    Scalar(_key, { range }) {
      if (range && range[0] <= end && range[1] >= end) start = range[0]
    },
  })
  return start
}
