import t from 'tap'
import { Learned, type Learner } from '../../core/metering/learned.ts'
import { NANO } from '../../core/money/credits.ts'

/** What replies to keys teach about a model. */

const NOW = Date.UTC(2030, 0, 1)
const WEEK_MS = 7 * 86_400_000
const MODEL = 'upstream model'
const RATE = 150

const learner = (id: number | string, more: Partial<Learner> = {}): Learner => ({
  id: String(id),
  createdAt: NOW - WEEK_MS,
  settled: NANO,
  ...more,
})
/** Lets keys report the same value. */
function taught(count: number, kind: 'overhead' | 'rate', value: number, more: Partial<Learner> = {}): Learned {
  const learned = new Learned()
  for (let nth = 0; nth < count; nth++)
    learned.learn(MODEL, learner(nth, more), { [kind]: value } as { rate: number }, NOW)
  return learned
}

t.test('twenty keys of a week that have been charged a credit each teach what is held for others', t => {
  t.equal(taught(20, 'overhead', 700).heldOverhead(MODEL, 'new'), 700)
  t.equal(taught(20, 'rate', 400).heldRate(MODEL, 'new', RATE), 400)
  t.equal(taught(20, 'overhead', 700).heldOverhead('another model', 'new'), 0)
  t.end()
})

t.test('fewer keys, younger keys and keys that have hardly been charged teach nothing', t => {
  for (const [count, more] of [
    [19, {}],
    [100, { createdAt: NOW - WEEK_MS + 1 }],
    [100, { settled: NANO - 1n }],
  ] as const) {
    t.equal(taught(count, 'overhead', 700, more).heldOverhead(MODEL, 'new'), 0)
    t.equal(taught(count, 'rate', 400, more).heldRate(MODEL, 'new', RATE), RATE)
  }
  t.end()
})

t.test('what many keys teach is never charged; what a key has shown itself is', t => {
  t.equal(taught(100, 'overhead', 700).ownOverhead(MODEL, 'new'), 0)
  t.equal(taught(100, 'rate', 400).ownRate(MODEL, 'new', RATE), RATE)
  const learned = new Learned()
  const young = learner('own', { createdAt: NOW, settled: 0n })
  learned.learn(MODEL, young, { overhead: 90 }, NOW)
  learned.learn(MODEL, young, { rate: 300 }, NOW)
  t.equal(learned.ownOverhead(MODEL, 'own'), 90)
  t.equal(learned.ownRate(MODEL, 'own', RATE), 300)
  t.equal(learned.heldRate(MODEL, 'own', RATE), 300, 'no less is held')
  t.equal(learned.ownRate(MODEL, 'own', 10), 40, 'four times the stated rate at most')
  t.equal(learned.ownRate(MODEL, 'own', 900), 900, 'and no less than the stated one')
  t.end()
})

t.test('the median of overheads and the 95th percentile of speeds count', t => {
  const learned = new Learned()
  for (let nth = 0; nth < 21; nth++) {
    learned.learn(MODEL, learner(nth), { overhead: nth < 10 ? 19_000 : 50 }, NOW)
    learned.learn(MODEL, learner(nth), { rate: nth < 19 ? 100 : 600 }, NOW)
  }
  t.equal(learned.heldOverhead(MODEL, 'new'), 50)
  t.equal(learned.heldRate(MODEL, 'new', RATE), 600)
  t.end()
})

t.test('implausible reports to three keys within an hour are alarming, once', t => {
  const learned = new Learned()
  const doubt = (key: string, afterMs: number): boolean => learned.implausible(MODEL, key, NOW + afterMs)
  t.same([doubt('a', 0), doubt('a', 1), doubt('a', 2), doubt('b', 3)], [false, false, false, false])
  t.same([doubt('c', 4), doubt('c', 5), doubt('d', 6)], [true, false, false])
  const hour = 3_600_000
  t.same([doubt('e', hour + 3), doubt('f', hour + 4)], [false, true], 'and again when the others are old')
  t.end()
})
