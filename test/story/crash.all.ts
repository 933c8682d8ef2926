import { once } from 'node:events'
import { connect } from 'node:net'
import t from 'tap'
import { audit } from '../../core/ledger/audit.ts'
import { NANO } from '../../core/money/credits.ts'
import { findServer } from '../../core/store/managed.ts'
import { expireHolds, holdsOf, startGateway, until } from '../gateway.ts'
import { json, ScriptedUpstream } from '../upstream.ts'
import { withVictims } from '../victims.ts'
import type { Edit } from '../gateway-file.ts'
import { text } from '../stream-events.ts'

const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

const STREAMS = 200
const BODY = { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'hi' }], stream: true }
/** Thirty bytes of text: ten tokens by the estimate. */
const DELTA = text('thirty bytes of one long tale ')
/** Returns what a customer owes who has received so many bytes of deltas, in nano-credits. */
const owed = (bytes: number): bigint =>
  BigInt(Math.ceil(JSON.stringify(BODY).length / 3)) * 3000n + BigInt((bytes / DELTA.length) * 10) * 15_000n

t.test(
  'kill -9 with 200 streams open: each customer pays for what he had received, to within one renewal',
  { skip },
  async t => {
    const upstream = await ScriptedUpstream.start(t)
    const more: (() => void)[] = []
    let served = 0
    upstream.script = (_received, res) => {
      const first = 1 + (served++ % 7)
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.write(DELTA.repeat(first))
      more.push(() => void res.write(DELTA.repeat(2)))
    }
    const edit: Edit = file => file.set('ledger.lease', '4s').set('ledger.reapEvery', '100ms')
    const { survivor, place } = await withVictims(t, upstream, edit)
    const { keys, ledger } = survivor.gateway
    const victim = await place.startProcess(t)

    const customers = await Promise.all(
      Array.from({ length: STREAMS }, async () => {
        const { key, secret } = await keys.changes.create({
          type: 'famC',
          name: '',
          credits: NANO,
          expiresAt: undefined,
        })
        const response = await victim.chat(secret, BODY)
        const customer = { id: key.id, bytes: 0, renewed: 0n }
        const listen = async (): Promise<void> => {
          // Comments that a slow machine adds are not charged.
          for await (const part of response.body as AsyncIterable<Uint8Array>)
            customer.bytes += Buffer.from(part).toString().replaceAll(': keepalive\n\n', '').length
        }
        listen().catch(() => {})
        return customer
      }),
    )
    const floor = async (id: string): Promise<bigint> => {
      const [hold = ''] = (await holdsOf(ledger, id)).values()
      return BigInt(hold.split(' ')[1] ?? 0)
    }
    // Longer than a lease, so that only renewed holds can be left.
    for (const one of customers) await until(async () => (await floor(one.id)) === owed(one.bytes))
    const before = Date.now()
    await until(() => Date.now() - before > 4100)
    for (const customer of customers) customer.renewed = await floor(customer.id)
    t.ok(
      customers.every(({ renewed }) => renewed >= owed(DELTA.length)),
      'a live stream is never reaped, and its floor is what was received',
    )
    const had = customers.map(({ bytes }) => bytes)
    for (const write of more) write()
    await until(() => customers.every(({ bytes }, index) => bytes === (had[index] as number) + 2 * DELTA.length))
    await victim.stop('SIGKILL')

    for (const { id, renewed, bytes } of customers) {
      await until(async () => (await ledger.reads.balance(id)).held === 0n)
      const [entry] = await ledger.reads.history({ account: id }, { count: 10 })
      const charge = entry?.charge ?? -1n
      if (entry?.kind !== 'reaped' || charge < renewed || charge > owed(bytes))
        t.fail(`${id}: ${entry?.kind} ${charge}, had ${renewed} to ${owed(bytes)}`)
    }
    const { drifts, repriced, unversioned } = await audit(ledger, undefined, 'charges')
    t.same(drifts, [], 'every credit is accounted for')
    t.same({ repriced, unversioned }, { repriced: STREAMS, unversioned: 0 }, 'and every charge can be recomputed')
  },
)

/** Stops this process, and the gateway in it, as a debugger, a busy machine or a sleeping one does. */
function pause(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}

t.test('a pause of the gateway is not mistaken for silence of its store, its upstream or its client', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => {
    json(res, { choices: [{}], usage: { prompt_tokens: 1, completion_tokens: 1 } })
    // The reply is in the gateway's socket now.
    pause(3000)
  }
  const limits: Edit = file => file.set('limits.headersTime', '2s').everyUpstream({ timeouts: { firstByte: '2s' } })
  const g = await startGateway(t, { upstream: upstream.url, edit: limits })
  const answer = await g.call('/v1/chat/completions', {
    key: await g.key('famC'),
    body: { model: 'acme/famC-5.5', messages: [] },
  })
  t.match(answer, { status: 200 })
  const asked = g.gateway.store.redis.ping()
  pause(3000)
  t.equal(await asked, 'PONG')
  const client = connect(g.gateway.port, '127.0.0.1')
  const answered = once(client, 'data')
  // Clients are accepted in the order in which they connected.
  await g.call('/health')
  client.write('GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n')
  pause(3500)
  t.match(String(await answered), /^HTTP\/1\.1 200/)
})

t.test(
  'a stream that is killed with its gateway after some seconds costs what its client had received',
  { skip },
  async t => {
    const upstream = await ScriptedUpstream.start(t)
    upstream.script = (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.write(DELTA.repeat(3))
    }
    // A third of the lease is twenty minutes.
    const { survivor, place } = await withVictims(t, upstream, file => file.set('ledger.lease', '1h'))
    const { ledger } = survivor.gateway
    const victim = await place.startProcess(t)
    const key = await survivor.key('famC')
    const id = await survivor.id(key)
    await victim.chat(key, BODY)
    const floor = async (): Promise<bigint> => BigInt([...(await holdsOf(ledger, id)).values()][0]?.split(' ')[1] ?? 0)
    await until(async () => (await floor()) === owed(3 * DELTA.length))
    await victim.stop('SIGKILL')
    await expireHolds(ledger, id)
    await ledger.background.reap()
    const [entry] = await survivor.settled(key)
    t.match(entry, { type: 'reaped', cost_nano: String(owed(3 * DELTA.length)) })
  },
)
