import t from 'tap'
import health from '../../plugins/health.ts'
import type { Reply } from 'tollgate/plugin'
import type { KeyType } from '../../core/config/config.ts'
import type { PooledAccount } from '../../core/pool/pool.ts'
import { drive } from 'tollgate/testing'
import { at, config, hostWith, poolOf } from './facts.ts'

async function ask(path: string, status: object, pool = poolOf()): Promise<{ status: number; body: any }> {
  const host = hostWith({ status: { store: 'redis', simulated: ['famA'], draining: false, ...status }, pool })
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

t.test(
  'a key type whose accounts all fail is failing until one of them works, and the gateway stays ready',
  async t => {
    const probe = (): Promise<undefined> => Promise.resolve(undefined)
    const pool = poolOf()
    const { default: model } = config.keyTypes.get('famA') as KeyType
    const asked = (): PooledAccount[] => pool.candidates(model.upstreams, model.sends, () => '')
    for (let nth = 0; nth < 10; nth++)
      for (const each of asked()) if (pool.begin(each, true)) pool.failed(each, 'status 500')
    t.match(await ask('/health/ready', { probe }, pool), {
      status: 200,
      body: { status: 'ready', key_types: { famA: 'failing' } },
    })
    const [first] = asked() as [PooledAccount]
    t.ok(pool.begin(first, true))
    pool.answers(first)
    pool.succeeded(first)
    t.match((await ask('/health/ready', { probe }, pool)).body, { key_types: { famA: 'served' } })
    for (const { account } of asked()) pool.health(account).disabled = true
    t.match((await ask('/health/ready', { probe }, pool)).body, { key_types: { famA: 'not served' } })
  },
)
