/** What the readers of all sections share: reporting problems, and reading exact decimals. */
import { FORMATS, type Format, type FormatName } from '../formats/index.ts'
import { formatCredits, MAX_AMOUNT, parseDecimal } from '../money/credits.ts'
import type { Path, Problem, Source } from './locate.ts'
import { scalarText } from './yaml.ts'

/** Collects problems while the sections are read. */
export class SectionReader {
  readonly problems: Problem[] = []
  readonly warnings: Problem[] = []
  readonly #source: Source

  constructor(source: Source) {
    this.#source = source
  }

  /** Reports a problem at a setting's value, or at its key. @param hint what to write instead */
  add(path: Path, message: string, hint?: string, at?: 'key'): void {
    this.problems.push(this.#source.problem(path, message, hint, at))
  }

  /** Reports a warning, such as a default that may cost money. A configuration with warnings is valid. */
  warn(path: Path, message: string, hint: string, at?: 'key'): void {
    this.warnings.push(this.#source.problem(path, message, hint, at))
  }

  /** Reads a decimal from its source text as exact nano-units. */
  decimal(path: Path): bigint {
    const amount = parseDecimal(scalarText(this.#source, path))
    if (amount === undefined) this.add(path, 'expected a plain decimal with at most nine decimal places, such as 0.30')
    return amount ?? 0n
  }

  /** Reads an amount in nano-credits and checks that the ledger can hold it. */
  amount(path: Path): bigint {
    const amount = this.decimal(path)
    if (amount > MAX_AMOUNT) this.add(path, `expected at most ${formatCredits(MAX_AMOUNT)} credits`)
    return amount
  }
}

/** Returns the formats with these names. */
export function formatsNamed(names: readonly FormatName[]): Format[] {
  return names.map(name => FORMATS[name])
}
