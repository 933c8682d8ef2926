import fc from 'fast-check'
import t from 'tap'
import { formatCredits, MAX_AMOUNT, NANO, NO_USAGE, parseDecimal, type Usage } from '../../core/ledger/money.ts'
import { charge, type Price, type Rates, versioned } from '../../core/ledger/price.ts'

/** Fractions of a nano-credit in one: a price is in nano-credits for a million tokens. */
const PER = 1_000_000n

const nano = fc.bigInt({ min: 0n, max: 10n ** 12n })
const price: fc.Arbitrary<Price> = fc
  .record({ input: nano, output: nano, cacheRead: nano, cacheWrite5m: nano, cacheWrite1h: nano, reasoning: nano, rejected: nano, imageInput: nano })
  .map(plain)
const tokens = fc.nat({ max: 400_000 })
const usage: fc.Arbitrary<Usage> = fc
  .record({ input: tokens, cacheRead: tokens, cacheWrite5m: tokens, cacheWrite1h: tokens, output: tokens, share: fc.double({ min: 0, max: 1, noNaN: true }) })
  .map(({ share, ...rest }) => ({ ...rest, reasoning: Math.floor(rest.output * share) }))

/** A price that has nothing but rates. */
function plain(rates: Rates): Price {
  return versioned({ ...rates, tiers: undefined, factors: {}, calls: {} })
}

function flat(rate: bigint): Price {
  return plain({ input: rate, output: rate, cacheRead: rate, cacheWrite5m: rate, cacheWrite1h: rate, reasoning: rate, rejected: rate, imageInput: rate })
}

function sum(a: Usage, b: Usage): Usage {
  return Object.fromEntries(Object.entries(a).map(([part, count]) => [part, count + (b[part as keyof Usage] ?? 0)])) as unknown as Usage
}

/** What a usage costs, as a whole number of millionths of a nano-credit. */
function exact(counted: Usage, at: Price): bigint {
  const { reasoning, output, ...rest } = counted
  const parts: [bigint, number][] = [
    [at.reasoning, reasoning],
    [at.output, output - reasoning],
  ]
  for (const [part, count] of Object.entries(rest)) parts.push([at[part as keyof Rates] ?? 0n, count])
  return parts.reduce((total, [rate, count]) => total + rate * BigInt(count), 0n)
}

t.test('a million tokens at 0.3 a million, charged one by one, cost exactly 0.3 credits', t => {
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

t.test('two requests cost what one of both would, but for one rounding, and never less', t => {
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

t.test('what is written as credits is read back as the same amount', t => {
  fc.assert(fc.property(fc.bigInt({ min: 0n, max: MAX_AMOUNT }), amount => parseDecimal(formatCredits(amount)) === amount))
  fc.assert(fc.property(fc.bigInt({ min: 1n, max: MAX_AMOUNT }), amount => formatCredits(-amount) === `-${formatCredits(amount)}`))
  t.equal(parseDecimal('1'), NANO)
  t.end()
})

t.test('a count that is no whole number is refused, never rounded', t => {
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
