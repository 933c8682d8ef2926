import { GatewayError, type KeyType, type Outcome, Reply, WebPage } from 'tollgate/plugin'
import { Traffic, setting, whole } from 'tollgate/plugin/metering'
import { defineBuiltIn, kept } from 'tollgate/plugin/operator'

/** Interval at which this process adds its counts to those of all, in milliseconds. */
const FLUSH_EVERY_MS = 5000

/** Errors that are not the client's. */
const OWN_ERRORS: ReadonlySet<string> = new Set([
  'upstream_failed',
  'upstream_timeout',
  'overloaded',
  'unavailable',
  'quota_exhausted',
  'internal',
])

/** Failures of so many requests, at least, say something about a model. */
const LEAST_REQUESTS = 5
/** Shares of failed requests from which a model is degraded, and down. */
const DEGRADED = 0.1
const DOWN = 0.5

/** Shows everybody which models can be used, from real traffic. It has no customer's data. */
export default defineBuiltIn({
  name: 'status-page',
  summary: 'Answers GET /status: which models are up, degraded or down, from real traffic of the last day.',
  on: ['GET /status', 'GET /status/*', 'inference'],
  page: { path: '/status', words: 'Everybody sees the state of the models at' },
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      title: { type: 'string', maxLength: 60, default: 'Tollgate', description: 'Name at the top of the page.' },
      cacheSeconds: setting(whole(1, 3600), 10, 'Seconds for which an answer is the same for everybody.'),
    },
  },
  setup({ title, cacheSeconds }, { config, ledger, log, now, pool }) {
    const traffic = new Traffic(ledger.scripts, now)
    const page = new WebPage(new URL('./page/', import.meta.url), '/status/page')
    const keyTypes = [...config.keyTypes.values()].filter(({ isPublic }) => isPublic)
    const models = new Map(keyTypes.flatMap(type => [...type.models.values()].map(m => [m.id, m])))

    const read = kept(cacheSeconds * 1000, now, async (at): Promise<object> => {
      const known = await traffic.read()
      const rows = [...models.values()].map(model => {
        const { recent, hours } = known.get(model.id) ?? { recent: { answered: 0, failed: 0 }, hours: [] }
        const isServed = pool.waitMs(model.upstreams, model.sends) === 0
        return { model: model.id, state: stateOf(isServed, recent), hours: hours.map(shareOf) }
      })
      const types = keyTypes.map(type => ({ key_type: type.name, models: idsOf(type) }))
      return { object: 'status', title, at: new Date(at).toISOString(), models: rows, key_types: types }
    })

    const timer = setInterval(() => {
      traffic.flush().catch((cause: unknown) => log.warn({ err: cause }, 'traffic cannot be counted at the moment'))
    }, FLUSH_EVERY_MS).unref()
    return {
      async request(x) {
        if (x.inference) return
        if (x.path === '/status') {
          const isBrowser = x.method === 'GET' && /\btext\/html\b/.test(x.headers.accept ?? '')
          return isBrowser
            ? page.page
            : Reply.json(await read(), { 'cache-control': `public, max-age=${cacheSeconds}` })
        }
        const file = page.file(x.path, x.headers['accept-encoding'])
        if (!file) throw new GatewayError('not_found')
        return file
      },
      settle(x, outcome) {
        const end = endOf(outcome)
        if (end && x.model && models.has(x.model.entry.id)) traffic.add(x.model.entry.id, end)
      },
      async close() {
        clearInterval(timer)
        await traffic.flush().catch(() => {})
      },
    }
  },
})

function idsOf({ models }: KeyType): string[] {
  return [...models.keys()]
}

/** Returns how a request ended, as far as it says something about its model. */
function endOf(outcome: Outcome): 'answered' | 'failed' | undefined {
  if (outcome.kind === 'relayed') return outcome.status < 400 ? 'answered' : undefined
  if (outcome.kind === 'broken') return outcome.by === 'upstream' ? 'failed' : undefined
  if (outcome.kind === 'failed') return OWN_ERRORS.has(outcome.error.code) ? 'failed' : undefined
  return undefined
}

interface Counts {
  readonly answered: number
  readonly failed: number
}

function stateOf(isServed: boolean, { answered, failed }: Counts): 'up' | 'degraded' | 'down' {
  const all = answered + failed
  const share = all >= LEAST_REQUESTS ? failed / all : 0
  if (!isServed || share >= DOWN) return 'down'
  return share >= DEGRADED ? 'degraded' : 'up'
}

/** The share of requests that were answered, to a hundredth; null without requests. How many there were is not told. */
function shareOf({ answered, failed }: Counts): number | null {
  const all = answered + failed
  return all === 0 ? null : Math.round((100 * answered) / all) / 100
}
