import t from 'tap'
import { countedTokens, limitsOf } from '../../core/metering/bounds.ts'
import { NANO } from '../../core/money/credits.ts'
import { timesFactor, timesKeyFactor } from '../../core/money/price-factor.ts'
import type { Price } from '../../core/money/price.ts'
import { NO_USAGE } from '../../core/money/usage.ts'
import { keyLimitsFrom } from '../../core/plans/limits.ts'

/** What of a type's and of a key's limits counts, and how. */

t.test('of a limit of a type and one of a key, the narrower one counts, whichever it is', t => {
  const numbers = { requestsPerMinute: 10, tokensPerMinute: 1000, concurrency: 5, maxInput: 2000, maxOutput: 300 }
  const wide = { ...numbers, creditsPerDay: '2', queue: '4s' }
  const narrow = Object.fromEntries(Object.entries(numbers).map(([name, number]) => [name, number / 2]))
  const limits = (terms: object) => keyLimitsFrom(JSON.stringify(terms))
  const narrowest = limits({ ...narrow, creditsPerDay: '1', queue: '2s' })
  for (const [type, key] of [
    [limits(wide), narrowest],
    [narrowest, limits(wide)],
    [narrowest, limits({})],
    [limits({}), narrowest],
  ] as const)
    t.strictSame(limitsOf({ limits: type }, { limits: key }), narrowest)
  t.end()
})

t.test('windows and rates count cached input as far as the plan says', t => {
  const usage = { ...NO_USAGE, input: 100, cacheRead: 1005, output: 10 }
  t.equal(countedTokens(usage), 1115)
  t.equal(countedTokens(usage, NANO / 10n), 100 + 101 + 10, 'a part of a token is one')
  t.equal(countedTokens(usage, 0n), 110)
  t.end()
})

t.test('what a factor leaves of a price beyond nine places is rounded up', t => {
  const price = { version: 'v', input: 3n, output: 10n, cacheRead: 1n, cacheWrite5m: 2n, cacheWrite1h: 4n, calls: { webSearch: 7n }, factors: {} } as unknown as Price // prettier-ignore
  const half = { input: 2n, output: 5n, cacheRead: 1n, cacheWrite5m: 1n, cacheWrite1h: 2n, calls: { webSearch: 4n } }
  for (const times of [timesFactor, timesKeyFactor]) t.match(times(price, NANO / 2n), half)
  t.end()
})
