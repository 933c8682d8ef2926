import { definePlugin, Reply } from '../core/plugin.ts'

/** Probes: `/health` says that the process lives, `/health/ready` that it can take requests. Neither needs a key. */
export default definePlugin({
  name: 'health',
  summary: 'Answers GET /health (the process lives) and GET /health/ready (it can take requests).',
  on: ['GET /health', 'GET /health/ready'],
  setup(_options, { status }) {
    const facts = (): object => ({ store: status.store, ...(status.simulated.length > 0 && { simulated: status.simulated }) })
    const ready = async (): Promise<Reply> => {
      if (status.draining) return notReady('draining')
      try {
        await status.probe()
      } catch {
        return notReady('the store does not answer')
      }
      return Reply.json({ status: 'ready', ...facts() }, NO_STORE)
    }
    const notReady = (reason: string): Reply => Reply.json({ status: 'not ready', reason, ...facts() }, { ...NO_STORE, 'retry-after': '5' }, 503)
    return {
      request: x => (x.path === '/health' ? Reply.json({ status: 'ok', ...facts() }, NO_STORE) : ready()),
    }
  },
})

const NO_STORE = { 'cache-control': 'no-store' }
