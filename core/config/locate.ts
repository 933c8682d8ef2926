/** Where in the file a problem stands, and how it is shown to the operator. */
import leven from 'leven'
import { isMap, isScalar, Scalar, type Document, type LineCounter, type Node } from 'yaml'

export type Path = readonly (string | number)[]

/** One problem of a configuration file. */
export interface Problem {
  readonly file: string
  readonly line: number
  readonly col: number
  /** How many characters of the line the problem covers, at least 1. */
  readonly width: number
  /** Dotted path of the setting; empty for the file as a whole. */
  readonly path: string
  readonly message: string
  /** What to write instead, where that is known. */
  readonly hint?: string | undefined
}

/** A scalar that asks for a variable of the environment; what came from there is never shown. */
export class EnvScalar extends Scalar {
  readonly text: string
  /** The variable's name, where it was set. */
  readonly from: string | undefined

  constructor(text: string, value: unknown, from: string | undefined) {
    super(value)
    this.text = text
    this.from = from
  }
}

/** A parsed file that can say where each of its settings stands. */
export class Source {
  readonly file: string
  readonly text: string
  readonly doc: Document
  readonly #lines: LineCounter

  constructor(file: string, text: string, doc: Document, lines: LineCounter) {
    this.file = file
    this.text = text
    this.doc = doc
    this.#lines = lines
  }

  /** The node at a path; the nearest enclosing one when the path does not exist. */
  node(path: Path): Node | undefined {
    for (let length = path.length; length >= 0; length--) {
      const node = length === 0 ? this.doc.contents : this.doc.getIn(path.slice(0, length), true)
      if (node) return node as Node
    }
    return undefined
  }

  /** A problem at the value of a setting, or at its key. */
  problem(path: Path, message: string, hint?: string, at: 'value' | 'key' = 'value'): Problem {
    const node = (at === 'key' ? this.#key(path) : undefined) ?? this.node(path)
    const [start, end] = node?.range ?? [0, 0]
    const from = node instanceof EnvScalar && node.from !== undefined ? ` (${node.from} in the environment)` : ''
    return this.at(start, end, message + from, hint, path)
  }

  /** A problem at a range of characters. */
  at(start: number, end: number, message: string, hint?: string, path: Path = []): Problem {
    const { line, col } = this.#lines.linePos(start)
    const rest = (this.text.split('\n')[line - 1] ?? '').length - col + 1
    const width = Math.max(1, Math.min(end - start, rest))
    return { file: this.file, line: Math.max(line, 1), col: Math.max(col, 1), width, path: dotted(path), message, hint }
  }

  #key(path: Path): Node | undefined {
    const parent = path.length === 1 ? this.doc.contents : (this.doc.getIn(path.slice(0, -1), true) as Node | undefined)
    if (!isMap(parent)) return undefined
    const pair = parent.items.find(item => isScalar(item.key) && String(item.key.value) === String(path.at(-1)))
    return pair?.key as Node | undefined
  }
}

function dotted(path: Path): string {
  return path
    .map(part => (typeof part === 'number' ? `[${part}]` : `.${part}`))
    .join('')
    .replace(/^\./, '')
}

/** The candidate nearest to what was written, if it is near enough to have been meant. */
export function nearest(written: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined
  // A word all of whose letters would have to change was not meant.
  let distance = Math.min(Math.max(2, Math.floor(written.length / 3)) + 1, written.length)
  for (const candidate of candidates) {
    const d = leven(written.toLowerCase(), candidate.toLowerCase())
    if (d < distance) [best, distance] = [candidate, d]
  }
  return best
}

/** "did you mean …?", or the list of what there is when it is short and nothing is near. */
export function suggest(written: string, candidates: Iterable<string>): string | undefined {
  const all = [...candidates]
  const near = nearest(written, all)
  if (near !== undefined) return `did you mean ${near}?`
  return all.length > 0 && all.length <= 16 ? `there is: ${all.join(', ')}` : undefined
}

/** The problems as text: `file:line:col`, the line with its marked part, and what to write instead. */
export function render(problems: readonly Problem[], text: string): string {
  const lines = text.split('\n')
  return problems
    .map(problem => {
      const number = String(problem.line)
      const margin = ' '.repeat(number.length)
      const place = problem.path === '' ? '' : `${problem.path}: `
      return [
        `${problem.file}:${problem.line}:${problem.col} ${place}${problem.message}`,
        ` ${number} | ${lines[problem.line - 1] ?? ''}`,
        ` ${margin} | ${' '.repeat(problem.col - 1)}${'^'.repeat(problem.width)}`,
        ...(problem.hint === undefined ? [] : [` ${margin} = ${problem.hint}`]),
      ].join('\n')
    })
    .join('\n\n')
}
