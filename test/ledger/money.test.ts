import fc from 'fast-check'
import t from 'tap'
import { scaled } from '../../core/ledger/hold.ts'
import { NO_USAGE, type Usage } from '../../core/money/usage.ts'
import { formatCredits, MAX_AMOUNT, NANO, parseDecimal } from '../../core/money/credits.ts'
import { priceFromText, ratesOf, versioned, writePrice } from '../../core/money/price-text.ts'
import {
  CALL_NAMES,
  charge,
  chargeAll,
  CONDITION_NAMES,
  type Conditions,
  type Price,
  type PricedUsage,
  RATE_NAMES,
  type Rates,
} from '../../core/money/price.ts'

/** Fractions of a nano-credit: a price is in nano-credits for a million tokens. */
const PER = 1_000_000n

const nano = fc.bigInt({ min: 0n, max: 10n ** 12n })
const price: fc.Arbitrary<Price> = fc
  .record({
    input: nano,
    output: nano,
    cacheRead: nano,
    cacheWrite5m: nano,
    cacheWrite1h: nano,
    reasoning: nano,
    rejected: nano,
    imageInput: nano,
  })
  .map(plain)
const tokens = fc.nat({ max: 400_000 })
const usage: fc.Arbitrary<Usage> = fc
  .record({
    input: tokens,
    cacheRead: tokens,
    cacheWrite5m: tokens,
    cacheWrite1h: tokens,
    output: tokens,
    share: fc.double({ min: 0, max: 1, noNaN: true }),
  })
  .map(({ share, ...rest }) => ({ ...rest, reasoning: Math.floor(rest.output * share) }))

/** A price with only rates. */
function plain(rates: Rates): Price {
  return versioned({ ...rates, tiers: undefined, factors: {}, calls: {} })
}

function flat(rate: bigint): Price {
  return plain({
    input: rate,
    output: rate,
    cacheRead: rate,
    cacheWrite5m: rate,
    cacheWrite1h: rate,
    reasoning: rate,
    rejected: rate,
    imageInput: rate,
  })
}

function sum(a: Usage, b: Usage): Usage {
  return Object.fromEntries(
    Object.entries(a).map(([part, count]) => [part, count + (b[part as keyof Usage] ?? 0)]),
  ) as unknown as Usage
}

/** Returns the cost of a usage in millionths of a nano-credit. */
function exact(counted: Usage, at: Price): bigint {
  const { reasoning, output, ...rest } = counted
  const parts: [bigint, number][] = [
    [at.reasoning, reasoning],
    [at.output, output - reasoning],
  ]
  for (const [part, count] of Object.entries(rest)) parts.push([at[part as keyof Rates] ?? 0n, count])
  return parts.reduce((total, [rate, count]) => total + rate * BigInt(count), 0n)
}

t.test('a million tokens at 0.3 credits a million, charged one by one, cost exactly 0.3 credits', t => {
  const at = flat(parseDecimal('0.3') as bigint)
  let total = 0n
  for (let token = 0; token < 1_000_000; token++) total += charge({ ...NO_USAGE, output: 1 }, at)
  t.equal(total, charge({ ...NO_USAGE, output: 1_000_000 }, at))
  t.equal(formatCredits(total), '0.3')
  t.end()
})

t.test('a charge is the exact sum, rounded up by less than one nano-credit', t => {
  fc.assert(
    fc.property(usage, price, (counted, at) => {
      const over = charge(counted, at) * PER - exact(counted, at)
      return charge(counted, at) === MAX_AMOUNT || (over >= 0n && over < PER)
    }),
  )
  t.end()
})

t.test('two requests cost what one combined request would, plus at most one rounding, and never less', t => {
  fc.assert(
    fc.property(usage, usage, price, (one, other, at) => {
      const apart = charge(one, at) + charge(other, at)
      const together = charge(sum(one, other), at)
      return together === MAX_AMOUNT || (apart >= together && apart - together <= 1n)
    }),
  )
  t.end()
})

t.test('more tokens never cost less', t => {
  fc.assert(fc.property(usage, usage, price, (one, more, at) => charge(sum(one, more), at) >= charge(one, at)))
  t.end()
})

t.test('credits survive formatting and parsing unchanged', t => {
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: MAX_AMOUNT }), amount => parseDecimal(formatCredits(amount)) === amount),
  )
  fc.assert(
    fc.property(
      fc.bigInt({ min: 1n, max: MAX_AMOUNT }),
      amount => formatCredits(-amount) === `-${formatCredits(amount)}`,
    ),
  )
  t.equal(parseDecimal('1'), NANO)
  t.end()
})

t.test('a count that is not a whole number is refused, never rounded', t => {
  const fraction = fc.double().filter(count => !Number.isInteger(count))
  fc.assert(
    fc.property(fraction, count => {
      try {
        charge({ ...NO_USAGE, input: count }, flat(NANO))
        return false
      } catch (thrown) {
        return thrown instanceof RangeError
      }
    }),
  )
  t.end()
})

const rates = fc.record(Object.fromEntries(RATE_NAMES.map(name => [name, nano])), {
  requiredKeys: RATE_NAMES.slice(),
}) as unknown as fc.Arbitrary<Rates>
const factor = fc.bigInt({ min: 0n, max: 20n * NANO })
const names = ['a', 'b'] as const
const rich: fc.Arbitrary<Price> = fc
  .record({
    own: rates,
    tiers: fc.option(
      fc.uniqueArray(fc.tuple(fc.integer({ min: 1, max: 1_000_000 }), rates), {
        maxLength: 3,
        selector: ([above]) => above,
      }),
      {
        nil: undefined,
      },
    ),
    factors: fc.record(Object.fromEntries(CONDITION_NAMES.map(name => [name, fc.tuple(factor, factor)])), {
      requiredKeys: [],
    }),
    calls: fc.record(Object.fromEntries(CALL_NAMES.map(name => [name, nano])), { requiredKeys: [] }),
  })
  .map(({ own, tiers, factors, calls }) =>
    versioned({
      ...own,
      tiers: tiers?.toSorted(([a], [b]) => a - b).map(([above, each]) => ({ above, ...each })),
      factors: Object.fromEntries(
        Object.entries(factors).map(([name, pair]) => [
          name,
          new Map(names.map((each, index) => [each, pair?.[index] ?? 0n])),
        ]),
      ),
      calls,
    }),
  )
const conditions: fc.Arbitrary<Conditions> = fc.record(
  {
    ...Object.fromEntries(CONDITION_NAMES.map(name => [name, fc.constantFrom(...names, 'unpriced')])),
    calls: fc.record(Object.fromEntries(CALL_NAMES.map(name => [name, fc.nat({ max: 50 })])), { requiredKeys: [] }),
  },
  { requiredKeys: [] },
)
const media: fc.Arbitrary<Usage> = fc
  .tuple(usage, fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 5, maxLength: 5 }))
  .map(([counted, shares]) => {
    let [input, output] = [counted.input, counted.output - counted.reasoning]
    const part = (index: number, whole: number): number => Math.floor(whole * (shares[index] ?? 0))
    const audioInput = part(0, input)
    const imageInput = part(1, (input -= audioInput))
    const audioOutput = part(2, output)
    const imageOutput = part(3, (output -= audioOutput))
    const rejected = part(4, output - imageOutput)
    return { ...counted, audioInput, imageInput, audioOutput, imageOutput, rejected }
  })
const priced: fc.Arbitrary<PricedUsage> = fc.record({ usage: media, price: rich, conditions })

/** Returns a cost as a fraction of nano-credits, computed class by class. */
function fraction({ usage: counted, price: at, conditions: under = {} }: PricedUsage): { over: bigint; per: bigint } {
  const total = counted.input + counted.cacheRead + counted.cacheWrite5m + counted.cacheWrite1h
  const tier = (at.tiers ?? []).filter(({ above }) => total > above).at(-1) ?? at
  const { audioInput = 0, imageInput = 0, audioOutput = 0, imageOutput = 0, rejected = 0 } = counted
  const classes: Record<keyof Rates, number> = {
    ...counted,
    audioInput,
    imageInput,
    audioOutput,
    imageOutput,
    rejected,
    input: counted.input - audioInput - imageInput,
    output: counted.output - counted.reasoning - audioOutput - imageOutput - rejected,
  }
  let over = RATE_NAMES.reduce((sum, name) => sum + BigInt(classes[name]) * (tier[name] ?? 0n), 0n)
  let per = PER
  for (const name of CONDITION_NAMES) {
    const times = at.factors[name]?.get(under[name] ?? '')
    if (times === undefined) continue
    over *= times
    per *= NANO
  }
  const fees = CALL_NAMES.reduce((sum, name) => sum + BigInt(under.calls?.[name] ?? 0) * (at.calls[name] ?? 0n), 0n)
  return { over: over + fees * per, per }
}

t.test('tiers, factors, media and calls are exact, and a request is rounded up once', t => {
  fc.assert(
    fc.property(fc.array(priced, { minLength: 1, maxLength: 3 }), parts => {
      const fractions = parts.map(fraction)
      const per = fractions.reduce((product, each) => product * each.per, 1n)
      const over = fractions.reduce((sum, each) => sum + each.over * (per / each.per), 0n)
      const cost = chargeAll(parts)
      return cost === MAX_AMOUNT ? over > (MAX_AMOUNT - 1n) * per : cost * per >= over && (cost - 1n) * per < over
    }),
  )
  t.end()
})

t.test('a whole request is charged at the rates of its tier, from its first token', t => {
  const at = versioned({ ...flat(NANO), tiers: [{ above: 10, ...flat(2n * NANO) }], factors: {}, calls: {} })
  t.equal(charge({ ...NO_USAGE, input: 4, cacheRead: 3, cacheWrite1h: 3, output: 5 }, at), 15_000n)
  t.equal(charge({ ...NO_USAGE, input: 5, cacheRead: 3, cacheWrite1h: 3, output: 5 }, at), 32_000n)
  t.end()
})

t.test('a stored price has the version and the charges of its original', t => {
  fc.assert(
    fc.property(priced, rich, ({ usage: counted, price: at, conditions: under }, other) => {
      const kept = priceFromText(writePrice(at))
      return (
        kept.version === at.version &&
        charge(counted, kept, under) === charge(counted, at, under) &&
        (writePrice(other) === writePrice(at)) === (other.version === at.version)
      )
    }),
  )
  t.end()
})

t.test('every rate of a price in the file is a rate of the price', t => {
  for (const rate of RATE_NAMES) t.equal(ratesOf(name => (name === rate ? 7n : undefined))[rate], 7n, rate)
  t.end()
})

t.test('an amount at the rate of a quota is rounded up, and stays within what the store counts exactly', async t => {
  const half = NANO / 2n
  t.same([1n, 2n, 3n].map(amount => scaled(amount, half)), [1n, 1n, 2n]) // prettier-ignore
  t.equal(scaled(MAX_AMOUNT, 2n * NANO), MAX_AMOUNT)
  t.equal(scaled(7n, undefined), 7n, 'without a rate it is the amount')
})
