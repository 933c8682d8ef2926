import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { Lines, type Patience } from '../../core/metering/lines.ts'
import { until } from '../gateway.ts'

/** Requests of one key that wait for a place. */

const LONG_MS = 60_000

/** A key with a number of places. Requests ask for one by their name. */
class Places {
  readonly lines: Lines
  readonly served: string[] = []
  readonly asked: string[] = []
  free: number
  /** Waits for the answer of the store. */
  answered = (): Promise<unknown> => turn()

  /** @param lookMs how often the first looks: never, by default */
  constructor(free: number, lookMs = LONG_MS) {
    this.lines = new Lines(lookMs)
    this.free = free
  }

  readonly #take = (name: string) => async (): Promise<{ kind: 'held' | 'busy' }> => {
    this.asked.push(name)
    const kind = this.free > 0 ? 'held' : 'busy'
    if (kind === 'held') {
      this.free--
      this.served.push(name)
    }
    await this.answered()
    return { kind }
  }

  ask(name: string, more: Partial<Patience> = {}): Promise<{ readonly kind: string }> {
    const patience = { most: 50, waitMs: LONG_MS, signal: () => new AbortController().signal, ...more }
    return this.lines.ask('key', patience, this.#take(name), this.#take(name))
  }

  end(): void {
    this.free++
    this.lines.ended('key')
  }
}

const turns = async (count = 10): Promise<void> => {
  for (let nth = 0; nth < count; nth++) await turn()
}

t.test('the first that waits is served first, and newcomers wait behind it without asking', async t => {
  const places = new Places(0)
  const all = ['a', 'b', 'c'].map(name => places.ask(name))
  await turns()
  t.same(places.asked, ['a', 'b', 'c'])
  all.push(places.ask('d'))
  await turns()
  t.equal(places.lines.waiting('key'), 4)
  for (let nth = 0; nth < 4; nth++) {
    places.end()
    await turns()
  }
  t.same(places.served, ['a', 'b', 'c', 'd'])
  t.same(places.asked, ['a', 'b', 'c', 'a', 'b', 'c', 'd'], 'each asks when it is its turn')
  t.same(
    (await Promise.all(all)).map(({ kind }) => kind),
    ['held', 'held', 'held', 'held'],
  )
  t.equal(places.lines.waiting('key'), 0)
})

t.test('several places that become free at once serve as many, in order', async t => {
  const places = new Places(0)
  const all = ['a', 'b', 'c'].map(name => places.ask(name))
  await turns()
  for (let nth = 0; nth < 3; nth++) places.end()
  await Promise.all(all)
  t.same(places.served, ['a', 'b', 'c'])
})

t.test('places that become free while few wait serve the requests that come behind those', async t => {
  const places = new Places(4)
  const names = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']
  const all = names.slice(0, 5).map(name => places.ask(name))
  await turns()
  t.same(places.served, ['a', 'b', 'c', 'd'])
  for (let nth = 0; nth < 4; nth++) places.end()
  all.push(...names.slice(5).map(name => places.ask(name)))
  await turns()
  t.same(places.served, names, 'each is served when a slot becomes free')
  t.equal(places.asked.length, names.length + 1, 'one request asks twice, and no other')
  await Promise.all(all)
})

t.test('a place that becomes free while a request asks is not missed', async t => {
  const places = new Places(0)
  const asked = places.ask('a')
  places.end()
  t.same(await asked, { kind: 'held' })
  t.equal(places.asked.length, 2)
})

t.test('a place that another process took leaves the request first in line', async t => {
  const places = new Places(0)
  const all = ['a', 'b'].map(name => places.ask(name))
  await turns()
  places.lines.ended('key')
  await turns()
  t.same(places.asked.slice(2), ['a'])
  places.end()
  places.end()
  await Promise.all(all)
  t.same(places.served, ['a', 'b'])
})

t.test('places that other processes have freed are found within a look', async t => {
  const places = new Places(0, 20)
  const all = ['a', 'b', 'c'].map(name => places.ask(name))
  await turns()
  places.free = 3
  await Promise.all(all)
  t.same(places.served, ['a', 'b', 'c'])
})

t.test('the first is served first if a place becomes free while it looks', async t => {
  const places = new Places(0, 20)
  const all = ['a', 'b'].map(name => places.ask(name))
  await turns()
  const { promise, resolve } = Promise.withResolvers<void>()
  places.answered = () => promise
  await until(() => places.asked.length === 3)
  places.end()
  await turns()
  resolve()
  await all[0]
  places.end()
  await Promise.all(all)
  t.same(places.served, ['a', 'b'])
})

t.test('a line has a maximum length and a maximum time, and a client that leaves gives its turn away', async t => {
  const places = new Places(0)
  const leave = new AbortController()
  const left = places.ask('left', { signal: () => leave.signal })
  await turns()
  const next = places.ask('next')
  t.same(await places.ask('third', { most: 2 }), { kind: 'busy' })
  leave.abort()
  t.same(await left, { kind: 'busy' })
  places.end()
  t.same(await next, { kind: 'held' })
  t.same(places.served, ['next'])
  t.same(await places.ask('late', { waitMs: 1 }), { kind: 'busy' })
  t.equal(places.lines.waiting('key'), 0)
})

t.test('a line whose requests are about to be served is not full, and newcomers get what they leave', async t => {
  const places = new Places(0)
  const all = ['a', 'b'].map(name => places.ask(name))
  await turns()
  // Three places become free at once, for two requests and a newcomer that comes while they ask.
  for (let nth = 0; nth < 3; nth++) places.end()
  all.push(places.ask('c', { most: 1 }))
  places.lines.ended('key')
  t.same(
    (await Promise.all(all)).map(({ kind }) => kind),
    ['held', 'held', 'held'],
  )
  t.same(places.served, ['a', 'b', 'c'])
})

t.test('a request that is refused in its turn leaves the place to the next', async t => {
  const places = new Places(0)
  const patience = { most: 50, waitMs: LONG_MS, signal: () => new AbortController().signal }
  const busy = (): Promise<{ kind: string }> => Promise.resolve({ kind: 'busy' })
  const refused = places.lines.ask('key', patience, busy, () => Promise.resolve({ kind: 'insufficient' }))
  const failed = places.lines.ask('key', patience, busy, () => Promise.reject(new Error('the store is away')))
  await turns()
  const next = places.ask('next')
  await turns()
  places.end()
  t.same(await refused, { kind: 'insufficient' })
  await t.rejects(failed, { message: 'the store is away' })
  t.same(await next, { kind: 'held' })
})
