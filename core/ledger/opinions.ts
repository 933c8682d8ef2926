/**
 * Second opinions on charges: what upstreams report beside the classes of tokens that charges are computed from. They
 * differ if the classes were misread.
 */
import { moneyLine, type Paying } from '../records/money-line.ts'
import { inputTokens } from '../money/usage.ts'
import { parseDecimal } from '../money/credits.ts'

/** Dollars of a request below which its rounding says nothing about its price, in billionths. */
const DOLLARS_MIN = 100_000n
/** Largest ratio of the most to the least charged for a reported dollar that is no difference. */
const SPREAD_MAX = 1.05

/** What the upstream of a model reports about the charges of its replies. */
export interface Opinion {
  readonly upstream: string
  readonly model: string
  charges: number
  /** Charges for another number of tokens than the upstream's total. */
  otherTokens: number
  /** Tokens of those charges, as they were charged. */
  chargedTokens: number
  /** Tokens of those charges, by the upstream's totals. */
  reportedTokens: number
  /** The least that was charged for a dollar of the upstream, in credits. */
  leastPerDollar?: number
  /** The most, in credits. */
  mostPerDollar?: number
}

/** The second opinions on many charges. */
export class Opinions {
  readonly #of = new Map<string, Opinion>()

  /** Adds an entry. */
  add(entry: Paying): void {
    const { notes } = entry
    const { reported = {}, usage, model = '' } = notes
    if (!usage) return
    const [upstream = ''] = (notes.upstream ?? '').split('/')
    const opinion = this.#opinionOf(upstream, model)
    opinion.charges++
    if (reported.tokens !== undefined) {
      opinion.otherTokens++
      opinion.chargedTokens += inputTokens(usage) + usage.output
      opinion.reportedTokens += reported.tokens
    }
    const dollars = parseDecimal(reported.dollars ?? '') ?? 0n
    if (dollars < DOLLARS_MIN) return
    const perDollar = Number(moneyLine(entry).price) / Number(dollars)
    opinion.leastPerDollar = Math.min(opinion.leastPerDollar ?? Infinity, perDollar)
    opinion.mostPerDollar = Math.max(opinion.mostPerDollar ?? 0, perDollar)
  }

  #opinionOf(upstream: string, model: string): Opinion {
    const name = `${upstream} ${model}`
    const found = this.#of.get(name)
    if (found) return found
    const opinion = { upstream, model, charges: 0, otherTokens: 0, chargedTokens: 0, reportedTokens: 0 }
    this.#of.set(name, opinion)
    return opinion
  }

  get all(): readonly Opinion[] {
    return [...this.#of.values()]
  }
}

/** Returns what differs, in words; undefined for nothing. */
export function differenceOf(opinion: Opinion): string | undefined {
  const { upstream, model, charges, otherTokens, chargedTokens, reportedTokens } = opinion
  const { leastPerDollar: least = 0, mostPerDollar: most = 0 } = opinion
  const words = [
    ...(otherTokens > 0
      ? [`${otherTokens} of ${charges} charges differ: charged ${chargedTokens} tokens, reported ${reportedTokens}`]
      : []),
    ...(most > least * SPREAD_MAX
      ? [`a dollar that it reports was charged ${rounded(least)} to ${rounded(most)} credits`]
      : []),
  ]
  return words.length === 0 ? undefined : `${upstream} ${model}: ${words.join('; ')}`
}

function rounded(credits: number): string {
  return String(Number(credits.toPrecision(3)))
}
