import t from 'tap'
import { callsFor, heldCalls, holdFor, outputOf, outputRateOf, runningCharge } from '../../core/metering/charge.ts'
import {
  asInput,
  beyond,
  type Billable,
  bounded,
  cancelUsage,
  estimateInput,
  growsByClock,
  observed,
  outputLimit,
  plausible,
  type Terms,
} from '../../core/metering/estimate.ts'
import { NO_EXTRAS } from '../../core/metering/extras.ts'
import {
  adviceAsked,
  adviceOf,
  asCancelled,
  dearestOutput,
  entryNamed,
  images,
  outputRate,
} from '../../core/metering/pricing.ts'
import type { UsageTally } from '../../core/formats/index.ts'
import { NO_USAGE } from '../../core/money/usage.ts'
import { RESULTS } from '../../core/metering/tool-rounds.ts'
import { keepsTable } from '../tables.ts'
import { bodyFrom, CHAT, format, modelOf } from '../plugins/facts.ts'
import { replied, SAID, TERMS } from './billable.ts'

/** How usage is estimated, held for and priced while no final report exists. */

const [INPUT, OUTPUT] = [3000n, 15_000n]
const CACHE_WRITE = 3750n
const PRICE = replied(undefined, false).model.entry.price
const model = (more: object): Billable['model'] => {
  const { model: plain } = replied(undefined, false)
  return { ...plain, entry: { ...plain.entry, ...more } }
}
const body = (more: object) => bodyFrom({ model: 'm', max_tokens: 1000, messages: [], ...more })
const weight = (more: object): Terms => ({ ...TERMS, weight: { ...TERMS.weight, ...more } })
const searching = (most: number | undefined, type = 'web_search_20250305') => ({
  ...NO_EXTRAS,
  tools: [{ kind: 'webSearch', type, param: 'tools[0]', index: 0, most } as never],
})
const HIDDEN: Terms = { ...TERMS, reasoning: 'hidden' }

t.test('the output limit is the smaller of the request and the model, for all choices together', t => {
  t.equal(outputLimit(replied(undefined, false)), 1000)
  t.equal(outputLimit(replied(undefined, false, { body: body({ max_tokens: 9000 }) })), 8000)
  const chat = { format: format(CHAT), body: bodyFrom({ model: 'm', max_tokens: 1000, n: 3, messages: [] }) }
  t.equal(outputLimit(replied(undefined, false, chat)), 3000)
  const none = { body: bodyFrom({ model: 'm', messages: [] }), model: model({ maxOutput: undefined }) }
  t.equal(outputLimit(replied(undefined, false, none)), Infinity)
  const much = replied(undefined, false, { delivered: beyond(1000) })
  t.equal(outputLimit(much), 1001, 'an upstream that exceeds the limit does not observe it')
  t.end()
})

t.test('input counts by bytes, with media at their own rates, and as a cache write where it is marked', t => {
  t.equal(estimateInput(replied(undefined, false), { ...TERMS, overhead: 50 }, 2), SAID / 2 + 50)
  t.equal(estimateInput(replied(undefined, false), weight({ tokens: 3000 }), 2), SAID / 2 + 3000)
  t.equal(estimateInput(replied(undefined, false), weight({ unbounded: true }), 2), 200_000, 'it may fill the window')
  t.match(asInput(TERMS, 300, PRICE), { input: 300, cacheWrite5m: 0 })
  t.match(asInput(weight({ caches: '5m' }), 300, PRICE), { input: 0, cacheWrite5m: 300 })
  t.match(asInput(weight({ caches: '1h' }), 300, PRICE), { input: 0, cacheWrite1h: 300 })
  const loud = { ...PRICE, audioInput: 40_000n }
  t.match(asInput(weight({ soundTokens: 100 }), 300, loud), { input: 300, audioInput: 100 })
  t.notOk('audioInput' in asInput(weight({ soundTokens: 100 }), 300, PRICE), 'without a rate, sound is plain input')
  t.end()
})

t.test('an estimate takes the greater of what was reported and what the bytes suggest', t => {
  t.match(observed(replied(undefined, false, { delivered: 300 }), TERMS), { input: SAID / 3, output: 100 })
  const told = replied({ input_tokens: 10, output_tokens: 150 }, false, { delivered: 300 })
  t.match(observed(told, TERMS), { input: 10, output: 150 }, 'reported input is better than any estimate')
  const absurd = replied({ input_tokens: 10, output_tokens: 9e9 }, false, { delivered: 300 })
  t.match(observed(absurd, TERMS), { input: SAID / 3, output: 100 }, 'an implausible report says nothing')
  t.end()
})

t.test('a cancelled reply counts two bytes as a token, and what may have been generated unseen', t => {
  t.match(cancelUsage(replied(undefined, false, { delivered: 300 }), TERMS), { input: SAID / 2, output: 150 })
  const silent = { delivered: 300, silentMs: 2000 }
  t.equal(
    cancelUsage(replied(undefined, false, silent), HIDDEN).output,
    150 + 150 * 3,
    'one second more than it was silent',
  )
  t.equal(
    cancelUsage(replied(undefined, false, silent), TERMS).output,
    150,
    'a model that does not reason is not silent',
  )
  const long = { delivered: 300, silentMs: 60_000, elapsedMs: 60_000 }
  t.equal(cancelUsage(replied(undefined, false, long), HIDDEN).output, 1000, 'the limit holds')
  const apart = { ...long, model: model({ reasoningInLimit: false }) }
  t.equal(cancelUsage(replied(undefined, false, apart), HIDDEN).output, 150 * 61, 'unless reasoning is not within it')
  const early = { delivered: 0, silentMs: 60_000, elapsedMs: 1000 }
  t.equal(cancelUsage(replied(undefined, false, early), HIDDEN).output, 150 * 2, 'nor can it exceed the time')
  const encrypted = { delivered: 0, encryptedBytes: 400, elapsedMs: 10_000 }
  t.equal(cancelUsage(replied(undefined, false, encrypted), HIDDEN).output, 200 + 150)
  const known: Terms = { ...TERMS, prefix: () => ({ inputTokens: 100, cachedTokens: 80, restBytes: 40 }) }
  t.match(cancelUsage(replied(undefined, false), known), { input: 40, cacheRead: 80 }, 'the beginning is known')
  t.equal(growsByClock({ silentMs: 1 }, HIDDEN), true)
  t.equal(growsByClock({ silentMs: 1 }, TERMS), false)
  t.equal(growsByClock({ silentMs: 0 }, HIDDEN), false)
  t.end()
})

t.test('a report is plausible within windows and limits, and within what there was time for', t => {
  const isPlausible = (usage: object, more: Partial<Billable> = {}, terms = TERMS): boolean => {
    const x = replied({ input_tokens: 10, output_tokens: 20, ...usage }, true, more)
    return plausible(x.tally.usage()!, x, terms)
  }
  t.ok(isPlausible({}))
  t.ok(isPlausible({ input_tokens: 400_000 }), 'two windows')
  t.notOk(isPlausible({ input_tokens: 400_001 }))
  t.ok(isPlausible({ input_tokens: 2_000_000 }, {}, weight({ providerTools: true })), 'ten passes of tools')
  t.notOk(isPlausible({ input_tokens: 2_000_001 }, {}, weight({ providerTools: true })))
  const small = { body: body({ max_tokens: 1 }) }
  t.ok(isPlausible({ output_tokens: 12_000 + 4096 }, small), 'eight times the rate for ten seconds, whatever the limit')
  t.notOk(isPlausible({ output_tokens: 12_000 + 4097 }))
  t.ok(isPlausible({ output_tokens: 4096 }, { ...small, elapsedMs: 0 }), '4096 tokens in any case')
  t.notOk(isPlausible({ output_tokens: 4097 }, { ...small, elapsedMs: 0 }))
  t.ok(isPlausible({ output_tokens: 4096 + 900 }, { elapsedMs: 0, delivered: 900 }), 'a token has at least a byte')
  t.ok(isPlausible({ output_tokens: 4096 + 450 }, { elapsedMs: 0, encryptedBytes: 900 }), 'or two encrypted bytes')
  t.end()
})

t.test('only the implausible part of a report is reduced, its largest counters first', t => {
  const x = replied(undefined, false, { delivered: 300 })
  const estimate = { ...NO_USAGE, input: 200, output: 100 }
  const report = { ...NO_USAGE, input: 500_000, cacheRead: 50, output: 120 }
  t.match(bounded(report, estimate, x, TERMS), { input: SAID - 50, cacheRead: 50, output: 120 })
  const long = { ...NO_USAGE, input: 10, output: 90_000, reasoning: 80_000 }
  t.match(bounded(long, estimate, x, TERMS), { input: 10, output: 16_096, reasoning: 16_096 }, 'what is plausible')
  t.end()
})

t.test('a hold covers all input and the output at their dearest', t => {
  const x = replied(undefined, false)
  const none = heldCalls(x, TERMS)
  t.equal(holdFor(x, 100, TERMS, none), BigInt(SAID / 2) * INPUT + 100n * OUTPUT)
  t.equal(holdFor(x, 0, weight({ caches: '5m' }), none), BigInt(SAID / 2) * CACHE_WRITE)
  const predicted: Terms = { ...TERMS, extras: { ...NO_EXTRAS, predicted: 7 } }
  t.equal(holdFor(x, 0, predicted, none), BigInt(SAID / 2) * INPUT + 7n * OUTPUT)
  t.equal(outputOf(x, BigInt(SAID / 2) * INPUT + 40n * OUTPUT, TERMS, none), 40, 'the rest of a hold, in output tokens')
  t.equal(outputRateOf(x, TERMS), OUTPUT * 1_000_000n)
  t.end()
})

t.test('a JSON request holds for every call that it allows, and a stream needs only one', t => {
  const terms = (most?: number, type = 'web_search_20250305'): Terms => ({ ...TERMS, extras: searching(most, type) })
  const stream = replied(undefined, false)
  const whole = replied(undefined, false, { body: body({}) })
  const chat = { format: format(CHAT) }
  const search = 20_000
  const times = (count: number) => ({
    calls: { webSearch: count },
    results: Array.from({ length: count }, () => search),
  })
  t.match(heldCalls(stream, terms()), times(1))
  t.match(heldCalls(stream, terms(30)), times(1))
  t.match(heldCalls(replied(undefined, false, chat), terms()), times(10), 'this format does not report calls')
  t.match(heldCalls(whole, terms()), times(10))
  t.match(heldCalls(whole, terms(30)), times(30))
  t.match(heldCalls(whole, terms(30), 1), times(1), 'and no less than one')
  t.match(heldCalls(replied(undefined, false, { ...chat, body: body({}) }), terms(), 1), times(10), 'without a limit')
  t.match(heldCalls(whole, terms(undefined, 'web_search'), 1), times(10), 'a tool that takes no limit')
  t.match(heldCalls(whole, terms(9e9)), { calls: { webSearch: 1000 } })
  t.end()
})

t.test('each pass after a call reads the whole input again, with the results of all calls before', t => {
  const x = replied(undefined, false, { body: body({}) })
  const terms = { ...TERMS, extras: searching(3) }
  const [said, found] = [BigInt(SAID / 2), 20_000n]
  // The input four times, and the results three times, twice and once.
  const input = 4n * said + 6n * found
  t.equal(holdFor(x, 0, terms, heldCalls(x, terms)), input * INPUT + 3n * 10_000_000n)
  const cached = { ...terms, weight: { ...TERMS.weight, caches: '5m' as const } }
  const written = said + 3n * found
  t.equal(holdFor(x, 0, cached, heldCalls(x, cached)), (input - written) * INPUT + written * CACHE_WRITE + 30_000_000n)
  t.equal(callsFor(x, 2n * said * INPUT + found * INPUT + 10_000_000n, 0, terms), 1)
  t.equal(callsFor(x, 3n * (said + found) * INPUT + 20_000_000n, 0, terms), 2)
  t.equal(callsFor(x, 0n, 0, terms), 1, 'no less than one')
  const small = { ...terms, weight: { ...TERMS.weight, textBytes: 400_000 } }
  const passes = 4n * 200_000n + 3n * found
  t.equal(
    holdFor(x, 0, small, heldCalls(x, small)),
    passes * INPUT * 2n + 30_000_000n,
    'a pass reads one window at most',
  )
  t.end()
})

t.test('a call ahead counts the image that it may create', t => {
  const tools = [{ kind: 'imageGeneration', type: 'image_generation', param: 'tools[0]', index: 0, most: undefined }]
  const terms = { ...TERMS, extras: { ...NO_EXTRAS, tools: tools as never } }
  const x = replied(undefined, false, { delivered: 2 })
  const image = 7000n * OUTPUT
  t.ok(runningCharge(x, terms, 0, true) - runningCharge(x, terms) >= image)
  t.end()
})

t.test('before a reply shows anything, one call counts, however many tools are declared', t => {
  const [tool] = searching(undefined).tools
  const many = { ...TERMS, extras: { ...NO_EXTRAS, tools: Array.from({ length: 1000 }, () => tool as never) } }
  const one = { ...TERMS, extras: searching(undefined) }
  const x = replied(undefined, false)
  t.equal(runningCharge(x, many, 1), runningCharge(x, one, 1))
  t.ok(runningCharge(x, many, 1) <= holdFor(x, 1, many, heldCalls(x, many)))
  t.end()
})

t.test('docs/charging.md has the table of results', t => {
  const kinds = Map.groupBy(Object.entries(RESULTS), ([, option]) => option)
  const rows = [...kinds].map(([option, of]) => [of.map(([kind]) => `\`${kind}\``).join(', '), `\`${option}\``])
  keepsTable(t, new URL('../../docs/charging.md', import.meta.url), 'results of one call', rows)
  t.end()
})

t.test('a running reply counts the calls that it has begun, by the bytes of their results if it has them', t => {
  const terms = { ...TERMS, extras: searching(undefined) }
  const said = SAID / 2
  const x = replied(undefined, false, { delivered: 2 })
  const tally = x.tally as unknown as UsageTally
  t.equal(cancelUsage(x, terms).input, said)
  tally.observe({ rounds: [{ kind: 'webSearch', id: 'a', begins: true }] })
  t.equal(cancelUsage(x, terms).input, 2 * said + 20_000)
  tally.observe({ rounds: [{ kind: 'otherTools', id: 'a', ends: true, resultBytes: 8000 }] })
  t.equal(cancelUsage(x, terms).input, 2 * said + 4000, 'by their bytes')
  tally.observe({ rounds: [{ kind: 'webSearch', id: 'b', begins: true }] })
  t.equal(cancelUsage(x, terms).input, 3 * said + 2 * 4000 + 20_000)
  tally.addUsage({ input_tokens: 50_000 })
  t.equal(cancelUsage(x, terms).input, 50_000, 'until the input is reported')
  tally.observe({ rounds: [{ kind: 'webSearch', id: 'c', begins: true }] })
  t.equal(cancelUsage(x, terms).input, 2 * 50_000 + 20_000)
  t.equal(cancelUsage(x, terms, [9]).input, 3 * 50_000 + 20_000 * 2 + 9, 'and one more')
  t.equal(cancelUsage(replied(undefined, false), terms).input, 2 * said + 20_000, 'one may have begun unseen')
  t.equal(observed(replied(undefined, false), terms).input, SAID / 3, 'which an estimate does not count')
  t.end()
})

t.test('calls that begin side by side are read by one pass', t => {
  const terms = { ...TERMS, extras: searching(undefined) }
  const said = SAID / 2
  const x = replied(undefined, false, { delivered: 2 })
  const tally = x.tally as unknown as UsageTally
  for (const id of ['a', 'b', 'c']) tally.observe({ rounds: [{ kind: 'webSearch', id, begins: true }] })
  t.equal(cancelUsage(x, terms).input, 2 * said + 3 * 20_000)
  tally.observe({ rounds: [{ kind: 'webSearch', id: 'a', ends: true }] })
  t.equal(tally.passes, 2)
  tally.observe({ rounds: [{ kind: 'webSearch', id: 'd', begins: true }] })
  t.equal(tally.passes, 3)
  t.equal(cancelUsage(x, terms).input, 3 * said + 3 * 20_000 + 4 * 20_000)
  t.end()
})

t.test('what a stored reply may stand for is held, and an estimate counts what it probably stands for', t => {
  const terms = { ...TERMS, weight: { ...TERMS.weight, tokens: 990_000, surplus: 792_000 } }
  const x = replied(undefined, false, { delivered: 2 })
  t.equal(cancelUsage(x, terms).input, SAID / 2 + 990_000)
  t.equal(observed(x, terms).input, SAID / 3 + 198_000)
  t.end()
})

t.test('a running reply costs nothing before it begins, and then its input and what was delivered', t => {
  t.equal(runningCharge(replied(undefined, false), TERMS), 0n)
  t.equal(runningCharge(replied(undefined, false), TERMS, 10), BigInt(SAID / 2) * INPUT + 10n * OUTPUT, 'ten ahead')
  const begun = replied(undefined, false, { delivered: 300 })
  t.equal(runningCharge(begun, TERMS), BigInt(SAID / 2) * INPUT + 150n * OUTPUT)
  t.equal(runningCharge(begun, TERMS, 9000), BigInt(SAID / 2) * INPUT + 1000n * OUTPUT, 'not beyond the limit')
  t.end()
})

t.test('tools and advice that a cancelled reply has not reported count as used once', t => {
  const { entry: large } = modelOf('famA', 'acme/famA-large-5')
  const tool = { kind: 'webSearch', type: 'web_search', param: 'tools[0]', index: 0, most: undefined } as never
  const asked: Terms = { ...TERMS, extras: { ...NO_EXTRAS, tools: [tool] } }
  t.same(asCancelled(replied(undefined, false), asked).extras.leastCalls, { webSearch: 1 })
  t.equal(
    asCancelled(replied(undefined, false, { delivered: 1 }), asked),
    asked,
    'this format reports calls before content',
  )
  const advised: Terms = { ...TERMS, extras: { ...NO_EXTRAS, advisors: [{ entry: large, most: 3 }] } }
  t.equal(adviceAsked(replied(undefined, false)), 1)
  t.match(adviceOf(200, 1, advised), [{ usage: { input: 200, output: 1000 }, model: 'acme/famA-large-5' }])
  t.equal(adviceAsked(replied(undefined, false, { delivered: 1 })), 0)
  t.same(adviceOf(200, 0, advised), [])
  const often = replied(undefined, false)
  for (let nth = 0; nth < 9; nth++)
    (often.tally as unknown as UsageTally).observe({ calls: [{ kind: 'advisor', id: String(nth) }] })
  t.equal(adviceAsked(often), 9)
  t.match(adviceOf(200, 9, advised), [{ usage: { input: 600 } }], 'not more often than the request allows')
  t.match(images({ imageGeneration: 2 }, PRICE, 7000), [{ usage: { output: 14_000, imageOutput: 14_000 } }])
  t.same(images({ webSearch: 2 }, PRICE, 7000), [])
  t.end()
})

t.test('output is held for as the dearest class that it may be', t => {
  const sounds = { ...NO_EXTRAS, media: ['audioOutput' as const] }
  const dear = { ...PRICE, audioOutput: 80_000n }
  t.match(dearestOutput(9, PRICE, NO_EXTRAS), { output: 9, reasoning: 0 })
  t.match(dearestOutput(9, { ...PRICE, reasoning: PRICE.output + 1n }, NO_EXTRAS), { output: 9, reasoning: 9 })
  t.match(dearestOutput(9, { ...dear, audioOutput: PRICE.output * 5n }, sounds), { output: 9, audioOutput: 9 })
  t.equal(outputRate(PRICE, 0, TERMS), OUTPUT * 1_000_000n)
  const tiered = { ...PRICE, factors: { ...PRICE.factors, serviceTier: new Map([['priority', 2_500_000_000n]]) } }
  const held: Terms = { ...TERMS, extras: { ...NO_EXTRAS, held: { serviceTier: 'priority' } } }
  t.equal(outputRate(tiered, 0, held), (OUTPUT * 1_000_000n * 25n) / 10n)
  t.end()
})

t.test('a model is found by its name with a date, the longest name first', t => {
  const { entry } = modelOf('famC', 'acme/famC-5.5')
  const [four, five] = [
    { ...entry, sends: 'vendor-4' },
    { ...entry, sends: 'vendor-4-5' },
  ]
  const found = (name: string) => entryNamed([four, five], name)
  t.equal(found('vendor-4'), four)
  t.equal(found('vendor-4-20251101'), four)
  t.equal(found('vendor-4-5-20251101'), five)
  t.equal(found('vendor-4@1'), four)
  t.equal(found('vendor-4-ultra'), undefined)
  t.equal(found('vendor'), undefined)
  t.end()
})
