import fc from 'fast-check'
import t from 'tap'
import { chargeAll, type Price, type PricedUsage, RATE_NAMES } from '../../core/money/price.ts'
import { productsOf } from '../../core/money/products.ts'
import { fitted } from '../../core/money/usage.ts'

const NANO_PLACES = 9
const RUNS = 300

/** Adds up exact decimals, and rounds the sum up to a nano-credit. */
function roundedSum(credits: readonly string[]): bigint {
  const places = Math.max(NANO_PLACES, ...credits.map(text => text.split('.')[1]?.length ?? 0))
  const sum = credits.reduce((all, text) => {
    const [whole = '0', fraction = ''] = text.split('.')
    return all + BigInt(whole + fraction.padEnd(places, '0'))
  }, 0n)
  const per = 10n ** BigInt(places - NANO_PLACES)
  return (sum + per - 1n) / per
}

const rates = fc.record(
  Object.fromEntries(RATE_NAMES.map(name => [name, fc.bigInt(0n, 50_000_000_000n)])) as Record<
    (typeof RATE_NAMES)[number],
    fc.Arbitrary<bigint>
  >,
)
const count = fc.nat(300_000)
const usages: fc.Arbitrary<PricedUsage> = fc
  .record({
    rates,
    long: rates,
    usage: fc.record({
      input: count,
      cacheRead: count,
      cacheWrite5m: count,
      cacheWrite1h: count,
      output: count,
      reasoning: count,
      audioInput: count,
      imageInput: count,
      audioOutput: count,
      imageOutput: count,
      rejected: count,
    }),
    factors: fc.array(fc.bigInt(0n, 9_000_000_000n), { maxLength: 3 }),
    searches: fc.nat(5),
    fee: fc.bigInt(0n, 1_000_000_000n),
  })
  .map(({ rates: plain, long, usage, factors, searches, fee }) => {
    const names = ['serviceTier', 'speed', 'inferenceGeo'] as const
    const price = {
      ...plain,
      version: 'v',
      tiers: [{ ...long, above: 200_000 }],
      factors: Object.fromEntries(
        names.map((name, at) => [name, new Map(factors.slice(at, at + 1).map(each => ['x', each]))]),
      ),
      calls: { webSearch: fee },
    } as unknown as Price
    const conditions = { serviceTier: 'x', speed: 'x', inferenceGeo: 'x', calls: { webSearch: searches } }
    return { usage: fitted(usage), price, conditions }
  })

t.test('the products of a charge add up to it', t => {
  const addsUp = fc.property(fc.array(usages, { minLength: 1, maxLength: 3 }), parts => {
    const all = parts.flatMap(part => productsOf(part))
    return roundedSum(all.map(({ credits }) => credits)) === chargeAll(parts)
  })
  t.doesNotThrow(() => fc.assert(addsUp, { numRuns: RUNS }))
  t.end()
})
