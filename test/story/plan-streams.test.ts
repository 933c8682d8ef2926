/** What running replies may cost while plans change, and what models without a price may use. */
import t, { type Test } from 'tap'
import { FIELDS } from '../../core/ledger/script/names.ts'
import { statesIn } from '../../core/plans/state.ts'
import { type TestGateway, until } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import { json } from '../upstream.ts'
import { DONE } from '../stream-events.ts'
import { scene } from '../scene.ts'

const MODEL = 'acme/famC-5.5'
const CHAT = '/v1/chat/completions'
/** A token of output costs 0.01 credits. */
const priced: Edit = file =>
  file
    .set('prices.test', { input: 0, output: 10_000 })
    .set('keyTypes.famC.models', [{ id: MODEL, price: 'test', reasoning: 'none', maxOutput: 100_000 }])
    .set('keyTypes.famC.holdAhead', 100)

/** Starts a gateway and its provider. Streams of the provider last until `end` is called; its replies in JSON have one token. */
async function streaming(t: Test, plan: object, edit: Edit = file => file) {
  const { g, upstream } = await scene(t, file => edit(priced(file).set('keyTypes.famC.plan', plan)))
  const state = { tokens: 0, isOver: false }
  upstream.script = async ({ json: body }, res) => {
    const usage = { prompt_tokens: 1, completion_tokens: 1 }
    if (body['stream'] !== true)
      return json(res, { choices: [{ message: { content: 'x' }, finish_reason: 'stop' }], usage })
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    const send = (event: unknown): void => void res.write(`data: ${JSON.stringify(event)}\n\n`)
    let [tokens, isGone] = [0, false]
    res.on('close', () => (isGone = true))
    while (!state.isOver && !isGone) {
      for (; tokens < state.tokens; tokens++) send({ choices: [{ delta: { content: 'word ' } }] })
      await new Promise(resolve => setTimeout(resolve, 2))
    }
    send({ choices: [{ delta: {}, finish_reason: 'stop' }] })
    send({ choices: [], usage: { prompt_tokens: 1, completion_tokens: tokens } })
    res.end(DONE)
  }
  const ask = (key: string, stream: boolean, most = 100_000) =>
    g.call(CHAT, {
      key,
      body: { model: MODEL, stream, max_tokens: stream ? most : 1, messages: [{ role: 'user', content: 'hi' }] },
    })
  /** Lets streams have so many tokens in all, a little at a time. */
  const grow = async (to: number): Promise<void> => {
    for (; state.tokens < to; state.tokens += 50) await new Promise(resolve => setTimeout(resolve, 2))
  }
  /** Starts a stream with a new key. Resolves when its hold is taken. */
  const begun = async () => {
    const key = await g.key('famC', 0n)
    const account = await g.id(key)
    const stream = ask(key, true)
    await until(async () => ((await windowsOf(g, account))[0]?.held ?? 0n) > 0n)
    return { key, account, stream }
  }
  return { g, ask, begun, grow, end: () => (state.isOver = true) }
}

async function windowsOf(g: TestGateway, account: string): Promise<{ used: bigint; held: bigint; ends: number }[]> {
  const { scripts } = g.gateway.ledger
  const text = await scripts.redis.hget(scripts.keys.of(account).account, FIELDS.windows)
  return [...statesIn(text).byPlace.values()]
}

t.test('a stream that began under an earlier plan takes nothing of the later one, and does not renew it', async t => {
  const { g, ask, begun, grow, end } = await streaming(t, { windows: [{ credits: 100, per: 'month' }] })
  const { key, account, stream } = await begun()
  await grow(200)
  await g.gateway.keys.plans.set({ account, id: 'next' }, { windows: [{ requests: 3, per: 'week' }], then: 'refuse' })
  const served: number[] = []
  for (let turn = 0; turn < 6; turn++) {
    served.push((await ask(key, false)).status)
    await grow(300 + 100 * turn)
  }
  t.same(served, [200, 200, 200, 429, 429, 429])
  end()
  await stream
  await g.settled(key)
  const windows = await windowsOf(g, account)
  t.same(
    windows.map(({ used, held }) => ({ used, held })),
    [{ used: 3n, held: 0n }],
  )
})

t.test('a stream whose window is reset by hand ends where the new one does', async t => {
  const { g, ask, begun, grow, end } = await streaming(t, { windows: [{ credits: 10, per: 'month' }] })
  const { key, account, stream } = await begun()
  await grow(400)
  await g.gateway.keys.plans.reset({ account, id: 'reset' }, 0)
  t.equal((await ask(key, false)).status, 200)
  void grow(6000)
  const { text } = await stream
  end()
  t.match(text, /"finish_reason":"length"/)
  const [entry] = (await g.settled(key)).filter(({ stream: isStream }) => isStream)
  // The provider goes on to 60 credits.
  t.ok(entry?.['plan_cost'] <= 40, `${entry?.['plan_cost']} credits of 10`)
})

t.test('a model without a price does not use more tokens than a window has', async t => {
  const plan = { windows: [{ tokens: 5000, per: 'day' }] }
  const { g, ask, end } = await streaming(t, plan, file => file.set('keyTypes.famC.priceFactor', 0))
  const key = await g.key('famC', 0n)
  const answers = [1, 2, 3, 4].map(() => ask(key, true, 2000))
  const account = await g.id(key)
  await until(async () => (await windowsOf(g, account))[0]?.held === 5000n)
  const refused = await Promise.race(answers)
  t.match(refused, { status: 429, json: { error: { message: /tokens of your day/ } } })
  end()
  const served = (await Promise.all(answers)).filter(answer => answer.status === 200)
  const limits = served
    .map(answer => Number(answer.headers.get('x-tollgate-output-limit') ?? 2000))
    .sort((a, b) => a - b)
  t.match(limits, [Number, 2000, 2000], 'the last has what is left')
  t.ok((limits[0] as number) > 800 && (limits[0] as number) < 1000)
  await g.settled(key)
  const alone = await ask(key, true, 6000)
  t.match([alone.status, alone.headers.get('x-tollgate-output-limit')], [200, /^49\d\d$/])
})

t.test('what is added to a window that began with a use ends with it', async t => {
  const { g, ask } = await streaming(t, { windows: [{ requests: 2, per: '1h', anchor: 'first use' }] })
  const key = await g.key('famC', 0n)
  const account = await g.id(key)
  const { plans } = g.gateway.keys
  await t.rejects(plans.add({ account, id: 'early' }, 0, '5'), /window 1 begins with its next use/)
  t.equal((await ask(key, false)).status, 200)
  await g.settled(key)
  for (const id of ['a', 'b']) await plans.add({ account, id }, 0, '5')
  const plan = await plans.of(account)
  t.match(plan?.extras, { 0: { amount: '10', until: (await windowsOf(g, account))[0]?.ends } })
})

t.test('an overdrawn balance may use what costs nothing', async t => {
  const { g, ask } = await streaming(t, { windows: [{ requests: 100, per: 'day' }], then: 'credits' })
  const key = await g.key('famC', 1n)
  const { scripts } = g.gateway.ledger
  const own = scripts.keys.of(await g.id(key)).account
  await scripts.redis.hset(own, FIELDS.balance, '-500')
  await g.gateway.keys.plans.end({ account: await g.id(key), id: 'end' })
  t.equal((await ask(key, false)).status, 429)
  await g.gateway.keys.changes.edit(await g.id(key), { limits: '{"priceFactor":"0"}' })
  t.equal((await ask(key, false)).status, 200)
})
