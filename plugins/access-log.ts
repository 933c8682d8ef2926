import { definePlugin } from '../core/plugin.ts'

/** One line for each exchange when it has ended: who, what, how, and how long it took. Never a key or a body. */
export default definePlugin({
  name: 'access-log',
  summary: 'Logs one line for each exchange when it has ended.',
  on: 'all',
  setup(_options, host) {
    return {
      settle(x, outcome) {
        const attempts = 'attempts' in outcome ? outcome.attempts : []
        host.log.info({
          exchange: x.id,
          method: x.method,
          path: x.path.slice(0, 200),
          key: x.key?.id,
          model: x.model?.entry.id,
          outcome: outcome.kind,
          ...('status' in outcome && { status: outcome.status }),
          ...('error' in outcome && { status: x.format.status(outcome.error), code: outcome.error.code }),
          ...('by' in outcome && { by: outcome.by }),
          ...(attempts.length > 0 && { attempts }),
          firstByteMs: x.firstByteAfter,
          ms: host.now() - x.startedAt,
        })
      },
    }
  },
})
