import t from 'tap'
import health from '../../plugins/health.ts'
import type { Reply } from '../../core/plugin.ts'
import { drive } from '../drive.ts'
import { at, hostWith } from './facts.ts'

async function ask(path: string, status: object): Promise<{ status: number; body: any }> {
  const host = hostWith({ status: { store: 'redis', simulated: ['famA'], draining: false, ...status } })
  const reply = (await drive(health, { exchange: at(path), host })).given as Reply
  return { status: reply.status, body: JSON.parse(String(reply.body)) }
}

t.test('liveness does not depend on the store', async t => {
  const probe = (): Promise<string> => Promise.resolve('the store does not answer')
  for (const path of ['/health', '/'])
    t.match(await ask(path, { probe }), { status: 200, body: { status: 'ok', store: 'redis', simulated: ['famA'] } })
})

t.test('readiness needs a store that answers and a gateway that does not drain', async t => {
  const there = (): Promise<undefined> => Promise.resolve(undefined)
  const away = (): Promise<string> => Promise.resolve('the store does not answer')
  t.match(await ask('/health/ready', { probe: there }), {
    status: 200,
    body: { status: 'ready', key_types: { famA: 'served', editor: 'served' } },
  })
  t.match(await ask('/health/ready', { probe: away }), { status: 503, body: { reason: 'the store does not answer' } })
  t.match(await ask('/health/ready', { probe: there, draining: true }), { status: 503, body: { reason: 'draining' } })
})
