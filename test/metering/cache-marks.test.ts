import t from 'tap'
import { checkChain } from '../../core/chain/check-chain.ts'
import { loadConfig } from '../../core/config/load.ts'
import { formatCredits } from '../../core/money/credits.ts'
import { chargeAll, type Price } from '../../core/money/price.ts'
import { NO_USAGE, type Usage } from '../../core/money/usage.ts'
import { keepsTable } from '../tables.ts'

const CHARGING = new URL('../../docs/charging.md', import.meta.url)

/** The input of ten requests that begin with 20,000 tokens and grow by 2,000. */
const SIZES = Array.from({ length: 10 }, (_, nth) => 20_000 + 2000 * nth)

const plain = (size: number): Usage => ({ ...NO_USAGE, input: size })
const written = (size: number): Usage => ({ ...NO_USAGE, cacheWrite5m: size })
/** What the request before has filled is read; the rest is written. */
const continued = (size: number, nth: number): Usage => {
  const read = SIZES[nth - 1] ?? 0
  return { ...NO_USAGE, cacheRead: read, cacheWrite5m: size - read }
}

t.test('docs/charging.md says what marks for the prompt cache cost and save', async t => {
  const { config } = await loadConfig(new URL('../../gateway.yaml', import.meta.url).pathname, {}, checkChain)
  const price = config?.keyTypes.get('famA')?.models.get('acme/famA-medium-5')?.price as Price
  const cost = (usages: readonly Usage[]): string =>
    (Math.round(Number(formatCredits(chargeAll(usages.map(usage => ({ usage, price }))))) * 1000) / 1000).toFixed(3)
  const [none, filled, read] = [cost(SIZES.map(plain)), cost(SIZES.map(written)), cost(SIZES.map(continued))]
  const one = cost([plain(20_000)])
  keepsTable(t, CHARGING, 'requests', [
    ['one, without a name of a cache', one, one, cost([written(20_000)])],
    ['ten without one, each within five minutes of the last one', none, none, read],
    ['ten with `prompt_cache_key`, each within five minutes of the last one', none, read, read],
    ['ten with it, each later than that', none, filled, filled],
  ])
})
