/** What the readers of the sections share: they report problems and warnings, and read exact decimals. */
import { FORMATS, type Format, type FormatName } from '../formats/index.ts'
import { formatCredits, MAX_AMOUNT, parseDecimal } from '../money/credits.ts'
import type { Path, Problem, Source } from './locate.ts'
import { scalarText } from './yaml.ts'

/** Collects what is wrong with a file while its sections are read. */
export class SectionReader {
  readonly problems: Problem[] = []
  readonly warnings: Problem[] = []
  readonly #source: Source

  constructor(source: Source) {
    this.#source = source
  }

  /** Reports a problem at the value of a setting, or at its name. @param hint what to write instead */
  add(path: Path, message: string, hint?: string, at?: 'key'): void {
    this.problems.push(this.#source.problem(path, message, hint, at))
  }

  /** Reports what costs money by default: the file can be put in force all the same. */
  warn(path: Path, message: string, hint: string, at?: 'key'): void {
    this.warnings.push(this.#source.problem(path, message, hint, at))
  }

  /** The exact nano-units of a decimal, read from its source text. */
  decimal(path: Path): bigint {
    const amount = parseDecimal(scalarText(this.#source, path))
    if (amount === undefined) this.add(path, 'expected a plain decimal with at most nine decimal places, such as 0.30')
    return amount ?? 0n
  }

  /** An amount in nano-credits, as the ledger can hold it. */
  amount(path: Path): bigint {
    const amount = this.decimal(path)
    if (amount > MAX_AMOUNT) this.add(path, `expected at most ${formatCredits(MAX_AMOUNT)} credits`)
    return amount
  }
}

/** The formats of these names. */
export function formatsNamed(names: readonly FormatName[]): Format[] {
  return names.map(name => FORMATS[name])
}
