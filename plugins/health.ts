import { definePlugin, Reply } from 'tollgate/plugin'

/**
 * Probes without a key: `/health` and a plain `/` report that the process runs; `/health/ready` reports that it accepts
 * requests.
 */
export default definePlugin({
  name: 'health',
  summary: 'Answers GET /health and GET / (the process runs), and GET /health/ready (it accepts requests).',
  on: ['GET /health', 'GET /health/ready', 'GET /'],
  setup(_options, { status }) {
    const facts = (): object => ({
      store: status.store,
      ...(status.simulated.length > 0 && { simulated: status.simulated }),
    })
    const ready = async (): Promise<Reply> => {
      if (status.draining) return notReady('draining')
      try {
        await status.probe()
      } catch {
        return notReady('the store does not answer')
      }
      return Reply.json({ status: 'ready', ...facts() }, NO_STORE)
    }
    const notReady = (reason: string): Reply =>
      Reply.json({ status: 'not ready', reason, ...facts() }, { ...NO_STORE, 'retry-after': '5' }, 503)
    return {
      request: x => (x.path === '/health/ready' ? ready() : Reply.json({ status: 'ok', ...facts() }, NO_STORE)),
    }
  },
})

const NO_STORE = { 'cache-control': 'no-store' }
