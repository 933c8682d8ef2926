import t from 'tap'
import accessLog from '../../plugins/access-log.ts'
import { GatewayError } from 'tollgate/plugin'
import { drive } from 'tollgate/testing'
import { at, CHAT, hostWith, keyOf, modelOf, NOW } from './facts.ts'

async function line(exchange: object, facts: object, outcome: object): Promise<any> {
  const lines: unknown[] = []
  const host = hostWith({ log: { info: (members: unknown) => lines.push(members) } })
  await drive(accessLog, { exchange, facts, outcome: outcome as never, host })
  t.equal(lines.length, 1)
  return lines[0]
}

t.test('a relayed exchange is one line with key, model, status and durations', async t => {
  const facts = { key: keyOf('famC'), model: modelOf('famC', 'acme/famC-5.5') }
  const attempts = [{ upstream: 'famC', account: 'famC/1', status: 200 }]
  const exchange = at(CHAT, { startedAt: NOW - 250, firstByteAfter: 100 })
  t.match(await line(exchange, facts, { kind: 'relayed', status: 200, attempts }), {
    path: CHAT,
    key: 'key_1',
    model: 'acme/famC-5.5',
    outcome: 'relayed',
    status: 200,
    attempts,
    firstByteMs: 100,
    ms: 250,
  })
})

t.test('a charged request has its tokens, its charge and the purse that it was held from', async t => {
  const usage = { input: 7, cacheRead: 3, cacheWrite5m: 0, cacheWrite1h: 0, output: 5, reasoning: 0 }
  const bill = { usage, charge: 120_000_000n, served: 'acme/famC-5.6-luna' }
  const facts = { key: keyOf('famC'), model: modelOf('famC', 'acme/famC-5.5'), runningHold: { bill, heldFrom: 'plan' } }
  t.match(await line(at(CHAT), facts, { kind: 'relayed', status: 200, attempts: [] }), {
    keyType: 'famC',
    served: 'acme/famC-5.6-luna',
    inputTokens: 10,
    outputTokens: 5,
    charge: '0.12',
    heldFrom: 'plan',
  })
})

t.test('a failure has the code and the status that the client got', async t => {
  const outcome = { kind: 'failed', error: new GatewayError('overloaded'), attempts: [] }
  t.match(await line(at('/v1/messages'), {}, outcome), { outcome: 'failed', code: 'overloaded', status: 529 })
  t.match(await line(at(CHAT), {}, outcome), { code: 'overloaded', status: 503 })
})

t.test('a key in a path is not logged, and a long path is truncated', async t => {
  const secret = `sk-${'aB3'.repeat(16)}`
  const { path } = await line(at(`/v1/models/${secret}${'/x'.repeat(200)}`), {}, { kind: 'answered', status: 404 })
  t.notMatch(path, 'aB3aB3')
  t.ok(path.length <= 200)
})
