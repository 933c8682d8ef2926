import t from 'tap'
import { CHAT, Exchanges, INPUT, OUTPUT, reply, RESPONSES } from './exchanges.ts'
import { NOW } from '../plugins/facts.ts'
import type { Edit } from '../gateway-file.ts'

/** Reports that are hard to believe, and what replies to other keys have shown: neither makes a charge wrong. */

const MODEL = 'acme/famC-5.5'
const outsideLimit: Edit = file => file.model('famC', MODEL, { reasoningInLimit: false })
const WEEK_MS = 7 * 86_400_000
/** A key that others learn from. */
const TEACHER = { createdAt: NOW - WEEK_MS, settled: 1_000_000_000n }
const left = {
  outcome: {
    kind: 'broken',
    by: 'client',
    status: 200,
    attempts: [{ upstream: 'u', account: 'a', status: 200 }],
  } as const,
}
const chunk = (content: string): string =>
  `data: ${JSON.stringify({ id: 'c', choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`

t.test('reasoning outside the limit is charged as reported, however often and to however many keys', async t => {
  const place = await Exchanges.load(outsideLimit)
  for (const [what, tokens, elapsedMs, encryptedBytes] of [
    ['145 tokens a second', 4350, 30_000, 0],
    ['600 tokens a second', 9000, 15_000, 0],
    ['almost eight times the rate', 8 * 150 * 15 + 4096, 15_000, 0],
    ['as much as was encrypted', 20_000 + 4096, 1000, 40_000],
  ] as const)
    for (let nth = 0; nth < 5; nth++) {
      const usage = { input_tokens: 10, output_tokens: tokens }
      const { cost, notes } = await place.ask(
        'responses',
        { max_output_tokens: 100, reasoning: { effort: 'high' } },
        { reply: reply(RESPONSES, usage), elapsedMs, encryptedBytes, key: { id: `key_${nth}` } },
      )
      t.equal(cost, 10n * INPUT + BigInt(tokens) * OUTPUT, `${what}: ${nth}`)
      t.equal(notes.quarantined, undefined)
    }
  t.equal(place.meter.doubtAlarms, 0)
})

t.test('an alarm about reports that are not plausible changes no charge', async t => {
  const place = await Exchanges.load(outsideLimit)
  const most = 8 * 150 * 10 + 4096
  const ask = (key: string) =>
    place.ask(
      'responses',
      {},
      { reply: reply(RESPONSES, { output_tokens: 9_000_000 }), elapsedMs: 10_000, key: { id: key } },
    )
  for (const [key, alarms] of [
    ['a', 0],
    ['a', 0],
    ['a', 0],
    ['b', 0],
    ['c', 1],
    ['d', 1],
  ] as const) {
    const { cost, notes } = await ask(key)
    t.equal(cost, 10n * INPUT + BigInt(most) * OUTPUT, 'the plausible part')
    t.equal(notes.quarantined, true)
    t.equal(place.meter.doubtAlarms, alarms, key)
  }
})

t.test('what an upstream added to the prompts of others is held, and not charged', async t => {
  const place = await Exchanges.load(file => file.model('famC', MODEL, { reasoning: 'none' }))
  const hi = { messages: [{ role: 'user', content: 'hi' }], stream: true }
  const ask = () =>
    place.ask('chat-completions', hi, { reply: chunk('Hello'), elapsedMs: 100, ...left, key: { id: 'honest' } })
  const before = await ask()
  for (let nth = 0; nth < 21; nth++)
    await place.ask('chat-completions', hi, {
      reply: reply(CHAT, { prompt_tokens: 1400 }),
      key: { ...TEACHER, id: `key_${nth}` },
    })
  const after = await ask()
  t.equal(after.cost, before.cost)
  t.ok(after.held > before.held + 1000n * INPUT, `${after.held} is held instead of ${before.held}`)
})

t.test('fast replies to others are held for, and not charged', async t => {
  const place = await Exchanges.load()
  const silent = { reply: chunk(''), silentMs: 10_000, elapsedMs: 10_000, ...left, key: { id: 'honest' } }
  const ask = () => place.ask('chat-completions', { stream: true, max_tokens: 64_000 }, silent)
  const before = await ask()
  for (let nth = 0; nth < 22; nth++)
    await place.ask(
      'chat-completions',
      {},
      {
        reply: reply(CHAT, { completion_tokens: nth < 4 ? 6000 : 1000 }),
        elapsedMs: 10_000,
        key: { ...TEACHER, id: `key_${nth}` },
      },
    )
  t.equal((await ask()).cost, before.cost)
  const { learned } = place.meter
  t.equal(learned.heldRate(`famC ${MODEL}`, 'honest', 150), 600)
  t.equal(learned.ownRate(`famC ${MODEL}`, 'honest', 150), 150)
})

t.test('what an upstream added to the prompts of a key itself is charged, so that leaving is not cheaper', async t => {
  const place = await Exchanges.load(file => file.model('famC', MODEL, { reasoning: 'none' }))
  const asked = { stream: true }
  const going = { reply: chunk('Hello'), elapsedMs: 100, ...left }
  const before = await place.ask('chat-completions', asked, going)
  await place.ask('chat-completions', asked, { reply: reply(CHAT, { prompt_tokens: 1400 }) })
  const after = await place.ask('chat-completions', asked, going)
  t.ok(after.cost >= 1400n * INPUT && after.cost > before.cost, `${after.cost}`)
})
