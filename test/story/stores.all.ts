import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { audit } from '../../core/ledger/audit.ts'
import { NANO } from '../../core/money/credits.ts'
import { parseAddress } from '../../core/config/store-address.ts'
import { findServer } from '../../core/store/managed.ts'
import { operations, startGateway, until } from '../gateway.ts'
import { freePort } from '../ports.ts'
import { ownPrefix, RealRedis, replicated } from '../redis.ts'
import { rawUpstream, ScriptedUpstream } from '../upstream.ts'
import type { Edit } from '../gateway-file.ts'

/** The stores that operators run: one Redis, a cluster, and a master that sentinels watch. */

const binary = findServer(process.env)
const skip = binary === undefined && 'no redis-server on PATH'

const CHAT = '/v1/chat/completions'
const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
/** The usage of one such request, in nano-credits. */
const COST = 10n * 3000n + 60n * 15_000n

t.test('one line configures a store', t => {
  const none = { username: undefined, password: undefined, tls: false, db: 0, master: '' }
  const cases: [string, object | undefined][] = [
    ['redis://h', { ...none, kind: 'single', nodes: [{ host: 'h', port: 6379 }] }],
    [
      'rediss://me:p%40ss@h:1/2',
      { ...none, kind: 'single', nodes: [{ host: 'h', port: 1 }], tls: true, username: 'me', password: 'p@ss', db: 2 },
    ],
    ['redis://:secret@[::1]:7', { ...none, kind: 'single', nodes: [{ host: '::1', port: 7 }], password: 'secret' }],
    [
      'redis+cluster://a:1,b:2',
      {
        ...none,
        kind: 'cluster',
        nodes: [
          { host: 'a', port: 1 },
          { host: 'b', port: 2 },
        ],
      },
    ],
    [
      'redis+sentinel://a,b:2/mine',
      {
        ...none,
        kind: 'sentinel',
        nodes: [
          { host: 'a', port: 26_379 },
          { host: 'b', port: 2 },
        ],
        master: 'mine',
      },
    ],
    ['redis://a,b', undefined],
    ['redis://', undefined],
    ['redis://u:p@ss@h', undefined],
    ['redis://h:99999', undefined],
    ['redis+cluster://a:1/3', undefined],
    ['redis+sentinel://a:1', undefined],
    ['http://h', undefined],
    ['redis+elsewhere://h', undefined],
  ]
  for (const [url, expected] of cases) t.same(parseAddress(url), expected, url)
  t.end()
})

t.test('in a three-node cluster every account is on one node, and stays exact under load', { skip }, async t => {
  const nodes = await Promise.all([0, 1, 2].map(() => RealRedis.start(t, '--cluster-enabled', 'yes')))
  const [first] = nodes as [RealRedis]
  const third = Math.ceil(16_384 / 3)
  for (const [index, node] of nodes.entries()) {
    await node.command(
      'CLUSTER',
      'ADDSLOTSRANGE',
      String(index * third),
      String(Math.min((index + 1) * third, 16_384) - 1),
    )
    if (node !== first) await first.command('CLUSTER', 'MEET', '127.0.0.1', String(node.port))
  }
  for (const node of nodes)
    await until(async () =>
      /cluster_state:ok[^]*cluster_known_nodes:3/.test(String(await node.command('CLUSTER', 'INFO'))),
    )
  const upstream = await ScriptedUpstream.start(t)
  const url = `redis+cluster://${nodes.map(({ port }) => `127.0.0.1:${port}`).join(',')}`
  const g = await startGateway(t, { upstream: upstream.url, env: { REDIS_URL: url }, edit: ownPrefix })
  const keys = await Promise.all(Array.from({ length: 12 }, () => g.key('famC', 1n)))
  const answers = await Promise.all(
    keys.flatMap(key => Array.from({ length: 20 }, () => g.call(CHAT, { key, body: BODY }))),
  )
  t.same([...new Set(answers.map(({ status }) => status))], [200])
  for (const key of keys) {
    await g.settled(key)
    t.equal((await g.balance(key)).exact.used, String(20n * COST))
  }
  t.match(await audit(g.gateway.ledger), { accounts: 12, entries: 240, drifts: { length: 0 } })
  const settlements = operations(g, 'settle')
  const { redis, keys: names } = g.gateway.ledger.scripts
  g.gateway.store.redis.emit('-node')
  await until(() => g.gateway.ledger.continuity.open)
  t.same(settlements, [], 'the servers are the same as before, so nothing is sent again')
  await redis.hset(names.shared('meta'), 'servers', 'another')
  g.gateway.store.redis.emit('-node')
  await until(() => settlements.length > 0)
  for (const key of keys) t.equal((await g.balance(key)).exact.used, String(20n * COST))
  const sizes = await Promise.all(nodes.map(node => node.command('DBSIZE')))
  t.ok(
    sizes.every(size => Number(size) > 0),
    `spread over the nodes: ${sizes.join()}`,
  )
})

/** A sentinel that watches a master. Here, one is enough to decide. */
async function sentinel(t: Test, master: RealRedis): Promise<number> {
  const port = await freePort()
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-sentinel-'))
  const lines = [
    `port ${port}`,
    'bind 127.0.0.1',
    `sentinel monitor mine 127.0.0.1 ${master.port} 1`,
    'sentinel down-after-milliseconds mine 300',
    'sentinel failover-timeout mine 3000',
  ]
  writeFileSync(join(folder, 'sentinel.conf'), lines.join('\n'))
  const child = spawn(binary as string, [join(folder, 'sentinel.conf'), '--sentinel'], { stdio: 'ignore' })
  t.teardown(() => {
    child.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  })
  const client = new RealRedis(port)
  await until(async () => String(await client.command('SENTINEL', 'REPLICAS', 'mine')).includes('slave'))
  return port
}

const MASTER_FAILURES: readonly (readonly [how: string, fail: (master: RealRedis) => unknown])[] = [
  ['is killed', master => master.kill()],
  ['hangs', master => master.signal('SIGSTOP')],
]

for (const [how, fail] of MASTER_FAILURES) {
  t.test(
    `a master ${how} under load: the replica that takes over has everything that was acknowledged`,
    { skip },
    async t => {
      const { master } = await replicated(t)
      const port = await sentinel(t, master)
      const upstream = await ScriptedUpstream.start(t)
      // Keys are looked up anew, so that not only scripts wait for a master that hangs.
      const edit: Edit = file => ownPrefix(file).set('store.replicas', 1).set('ledger.keyCache', '1ms')
      const g = await startGateway(t, {
        upstream: upstream.url,
        env: { REDIS_URL: `redis+sentinel://127.0.0.1:${port}/mine` },
        edit,
      })
      const keys = await Promise.all([1, 2, 3, 4].map(() => g.key('famC', 10n)))
      const served = new Map(keys.map(key => [key, 0]))
      let killed = false
      const customer = async (key: string): Promise<void> => {
        for (let after = 0; after < 10;) {
          const { status } = await g.call(CHAT, { key, body: BODY })
          if (status === 200) served.set(key, (served.get(key) as number) + 1)
          else await new Promise(resolve => setTimeout(resolve, 20))
          if (killed && status === 200) after++
        }
      }
      const customers = keys.map(customer)
      await until(() => [...served.values()].every(count => count > 20))
      // Each key has a request that ends when the master is gone.
      const [usual, isGone] = [upstream.script, Promise.withResolvers<void>()]
      let running = 0
      upstream.script = async (received, res) => {
        running++
        await isGone.promise
        await usual(received, res)
      }
      await until(() => running >= keys.length)
      await fail(master)
      isGone.resolve()
      killed = true
      await Promise.all(customers)
      await until(() => g.gateway.ledger.waiting === 0)
      for (const key of keys) {
        await g.settled(key)
        const { exact } = await g.balance(key)
        t.equal(
          exact.used,
          String(BigInt(served.get(key) as number) * COST),
          'each reply that was served is charged, once',
        )
        t.equal(exact.granted, String(10n * NANO))
      }
      t.same((await audit(g.gateway.ledger)).drifts, [])
    },
  )
}

t.test('a sentinel that hangs is skipped', { skip }, async t => {
  const { master } = await replicated(t)
  const port = await sentinel(t, master)
  const hung = await rawUpstream(t, () => {})
  const nodes = `${hung.url.replace('http://', '')},127.0.0.1:${port}`
  const upstream = await ScriptedUpstream.start(t)
  const g = await startGateway(t, {
    upstream: upstream.url,
    env: { REDIS_URL: `redis+sentinel://${nodes}/mine` },
    edit: ownPrefix,
  })
  t.equal((await g.call(CHAT, { key: await g.key('famC', 10n), body: BODY })).status, 200)
})
