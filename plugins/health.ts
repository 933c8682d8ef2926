import { type KeyType, Reply } from 'tollgate/plugin'
import { defineBuiltIn } from 'tollgate/plugin/metering'

/**
 * Probes without a key: `/health` and a plain `/` report that the process runs; `/health/ready` reports that it accepts
 * requests, and which key types can be served.
 */
export default defineBuiltIn({
  name: 'health',
  summary: 'Answers GET /health and GET / (the process runs), and GET /health/ready (it accepts requests).',
  on: ['GET /health', 'GET /health/ready', 'GET /'],
  setup(_options, { config, pool, status }) {
    const facts = (): object => ({
      store: status.store,
      ...(status.simulated.length > 0 && { simulated: status.simulated }),
    })
    /** Whether an account of the default model can serve: `failing` if all that may be asked have failed. */
    const stateOf = ({ default: model }: KeyType): string => {
      const accounts = pool.candidates(model.upstreams, model.sends, () => '')
      if (accounts.length === 0) return 'not served'
      const works = accounts.some(({ account, lastResort }) => !lastResort && !pool.health(account).wasTakenOut)
      return works ? 'served' : 'failing'
    }
    const keyTypes = (): object =>
      Object.fromEntries([...config.keyTypes.values()].map(type => [type.name, stateOf(type)]))
    const ready = async (): Promise<Reply> => {
      if (status.draining) return notReady('draining')
      const reason = await status.probe()
      if (reason !== undefined) return notReady(reason)
      return Reply.json({ status: 'ready', ...facts(), key_types: keyTypes() }, NO_STORE)
    }
    const notReady = (reason: string): Reply =>
      Reply.json({ status: 'not ready', reason, ...facts() }, { ...NO_STORE, 'retry-after': '5' }, 503)
    return {
      request: x => (x.path === '/health/ready' ? ready() : Reply.json({ status: 'ok', ...facts() }, NO_STORE)),
    }
  },
})

const NO_STORE = { 'cache-control': 'no-store' }
