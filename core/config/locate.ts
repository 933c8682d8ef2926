/** Positions of problems in the file, and how problems are shown to the operator. */
import { redact, redactMessage } from './redact.ts'
import { isAlias, isMap, isScalar, Scalar, type Document, type LineCounter, type Node } from 'yaml'

/** The path of a setting: names of members and indices of items. */
export type Path = readonly (string | number)[]

/** The index of the first character of a part of the file, and the index after its last one. */
export type CharacterRange = readonly [start: number, end: number]

/** One problem in a configuration file. */
export interface Problem {
  readonly file: string
  readonly line: number
  readonly col: number
  /** Number of characters that the problem covers on its line, at least 1. */
  readonly width: number
  /** Dotted path of the setting. Empty for the file as a whole. */
  readonly path: string
  readonly message: string
  /** What to write instead, if known. */
  readonly hint?: string | undefined
}

/** A scalar tagged `!env` or `!file`. Its value is never shown. */
export class EnvScalar extends Scalar {
  readonly text: string
  /** Where its value comes from, in words: a variable that was set, or a file. */
  readonly from: string | undefined

  constructor(text: string, value: unknown, from: string | undefined) {
    super(value)
    this.text = text
    this.from = from
  }
}

/** A parsed file that knows the position of each setting. */
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

  /** Returns the node at a path, or the nearest enclosing node if the path does not exist. */
  node(path: Path): Node | undefined {
    for (let length = path.length; length >= 0; length--) {
      const node = length === 0 ? this.doc.contents : this.doc.getIn(path.slice(0, length), true)
      if (node) return node as Node
    }
    return undefined
  }

  /** Like `node`, with aliases resolved. */
  value(path: Path): Node | undefined {
    const node = this.node(path)
    return isAlias(node) ? node.resolve(this.doc) : node
  }

  /** Creates a problem at the value of a setting, or at its key. */
  problem(path: Path, message: string, hint?: string, at: 'value' | 'key' = 'value'): Problem {
    const key = at === 'key' ? this.#key(path) : undefined
    const [start, end] = (key ?? this.node(path))?.range ?? [0, 0]
    const messageOf = key ?? this.value(path)
    if (!(messageOf instanceof EnvScalar) || messageOf.from === undefined)
      return this.at([start, end], message, hint, path)
    const hidden = message.replaceAll(` "${messageOf.text}"`, '').replaceAll(`"${messageOf.text}"`, 'this')
    return this.at([start, end], `${hidden} (${messageOf.from})`, hint, at === 'key' ? path.slice(0, -1) : path)
  }

  /** Creates a problem at a range of characters. */
  at([start, end]: CharacterRange, message: string, hint?: string, path: Path = []): Problem {
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

/** Returns a path as it is written, such as `keyTypes.famA.models` or `chain[3]`. */
export function dotted(path: Path): string {
  return path
    .map(part => (typeof part === 'number' ? `[${part}]` : `.${part}`))
    .join('')
    .replace(/^\./, '')
}

/** Characters shown on either side of a problem. */
const SHOWN = 120

/** Returns the position as `file:line:col` with the setting's path. */
export function positionOf({ file, line, col, path }: Problem): string {
  return `${file}:${line}:${col}${path === '' ? '' : ` ${redact(path)}`}`
}

/**
 * Formats problems for the terminal: `file:line:col`, the line with the marked part, and what to write instead. Control
 * characters and credentials are removed.
 */
export function render(problems: readonly Problem[], text: string): string {
  const lines = text.split('\n')
  return problems
    .map(problem => {
      const number = String(problem.line)
      const margin = ' '.repeat(number.length)
      const start = Math.max(0, problem.col - 1 - SHOWN)
      const width = Math.min(problem.width, SHOWN)
      const line = redact(lines[problem.line - 1] ?? '').slice(start, problem.col - 1 + width + SHOWN)
      return [
        `${positionOf(problem)}${problem.path === '' ? '' : ':'} ${redactMessage(problem.message, problem.path)}`,
        ...(text === ''
          ? []
          : [` ${number} | ${line}`, ` ${margin} | ${' '.repeat(problem.col - 1 - start)}${'^'.repeat(width)}`]),
        ...(problem.hint === undefined ? [] : [` ${margin} = ${redact(problem.hint)}`]),
      ].join('\n')
    })
    .join('\n\n')
    .replace(/[^\P{Cc}\n\t]/gu, '·')
}

/** Formats all problems of a file, and their number. */
export function reportOf({ problems, text }: { readonly problems: readonly Problem[]; readonly text: string }): string {
  return `${render(problems, text)}\n\n${counted(problems.length, 'problem')}`
}

/** Returns a number with its noun, such as "1 problem" or "3 problems". */
export function counted(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`
}
