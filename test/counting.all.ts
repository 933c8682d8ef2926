import { readFileSync } from 'node:fs'
import { request } from 'node:http'
import t from 'tap'
import { type Counting, JSON_REPLY, startCounting, streamOf } from './counting.ts'
import { rowsOf, writeTable } from './tables.ts'
import { json, ScriptedUpstream, sse } from './upstream.ts'

/**
 * What a request costs in commands, calls and objects. docs/performance.md has the table, and the ranges within which it
 * must stay.
 */

const PAGE = new URL('../docs/performance.md', import.meta.url)
const HEADING = 'a request'
/** Requests that warm the gateway up. */
const WARM = 60
/** Times that each case is counted. The median is reported, so that what happens once a second falls out. */
const TIMES = 7
/** Seconds for which a gateway is counted at rest. */
const RESTING = 2
const BODY = { model: 'acme/famB-4.5', messages: [{ role: 'user', content: 'Hi' }] }

const COLUMNS = [
  'commands',
  'calls',
  'roundTrips',
  'turns',
  'reads',
  'writes',
  'promises',
  'parsed',
  'messages',
] as const
type Column = (typeof COLUMNS)[number]
/** What one request costs. */
type Cost = Record<Column | 'headers', number>

/** What is counted in one round. */
type Round = Record<Column | 'beats', number>

function each(countOf: (name: Column | 'beats') => number): Round {
  return Object.fromEntries([...COLUMNS, 'beats' as const].map(name => [name, countOf(name)])) as Round
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] as number
}

/** Sends a request, and returns the number of headers of the reply. */
function send({ running }: Counting, key: string, body: object): Promise<number> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
    request(`${running.url}/v1/chat/completions`, { method: 'POST', headers }, res => {
      res
        .resume()
        .on('end', () =>
          res.statusCode === 200 ? resolve(res.rawHeaders.length / 2) : reject(new Error(`status ${res.statusCode}`)),
        )
    })
      .on('error', reject)
      .end(JSON.stringify(body))
  })
}

/** Sends requests with these keys, one after the other or at once. */
type Way = (counting: Counting, keys: readonly string[], body: object) => Promise<number>

const inTurn: Way = async (counting, keys, body) => {
  let headers = 0
  for (const key of keys) headers = await send(counting, key, body)
  return headers
}
const atOnce: Way = async (counting, keys, body) =>
  (await Promise.all(keys.map(key => send(counting, key, body))))[0] ?? 0

/** Counts what one of several requests costs in the median, without what the gateway does at rest. @param next the keys of a round */
async function costOf(counting: Counting, next: () => readonly string[], way: Way, body: object = BODY): Promise<Cost> {
  for (let sent = 0; sent < WARM; sent += next().length) await way(counting, next(), body)
  await counting.rest()
  const during = async (act: () => Promise<unknown>): Promise<Round> => {
    const before = await counting.counts()
    await act()
    const after = await counting.counts()
    return each(name => after[name] - before[name])
  }
  const rounds = async (act: () => Promise<unknown>): Promise<readonly Round[]> => {
    const list: Round[] = []
    while (list.length < TIMES) list.push(await during(act))
    return list
  }
  const none = await rounds(async () => {})
  const ofCount = each(name => median(none.map(round => round[name])))
  const atRest = await during(() => counting.beat(RESTING))
  const perBeat = each(name => (atRest[name] - ofCount[name]) / atRest.beats)
  let [headers, count] = [0, 1]
  const sent = await rounds(async () => {
    const keys = next()
    count = keys.length
    headers = await way(counting, keys, body)
    await counting.rest()
  })
  const ofRequest = (round: Round, name: Column | 'beats'): number =>
    (round[name] - ofCount[name] - round.beats * perBeat[name]) / count
  return { ...each(name => Math.max(0, median(sent.map(round => ofRequest(round, name))))), headers }
}

async function keysOf({ place }: Counting, count: number, ...more: string[]): Promise<string[]> {
  const { out } = await place.run('keys', 'create', '--type', 'famB', '--count', String(count), '--json', ...more)
  return out.trim().split('\n').map(line => (JSON.parse(line) as { key: string }).key) // prettier-ignore
}

/** Creates a key, one of three, of a balance with a plan of three windows. */
async function keyWithPlan(counting: Counting): Promise<string> {
  const terms = '{ windows: [{ credits: 100, per: month }, { credits: 50, per: 5h }, { requests: 10000, per: day }] }'
  const { id } = JSON.parse((await counting.place.run('balances', 'create', '--json')).out)
  await counting.place.run('balances', 'plan', 'set', id, '--terms', terms)
  return (await keysOf(counting, 3, '--balance', id))[2] ?? ''
}

/** A cost of which only what the store and the records do is stated: the rest depends on how many requests meet. */
function stored({ commands, messages }: Cost): Cost {
  const unstated = Object.fromEntries([...COLUMNS, 'headers'].map(name => [name, NaN])) as unknown as Cost
  return { ...unstated, commands, messages }
}

t.test('a request costs what docs/performance.md states', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = ({ json: { stream } }, res) => (stream === true ? sse(res, streamOf(200)) : json(res, JSON_REPLY))
  const counting = await startCounting(t, upstream, file => file)
  const recording = await startCounting(t, upstream, file => file, true)
  const [one = ''] = await keysOf(counting, 1, '--credits', '1000')
  // Keys of one balance: the first hold in a shard of the store costs a command more, once in a process.
  const shared = JSON.parse((await counting.place.run('balances', 'create', '--credits', '1000', '--json')).out)
  const unknown = await keysOf(counting, 2 * WARM + 20 * TIMES, '--balance', shared.id)
  const [recorded = ''] = await keysOf(recording, 1, '--credits', '1000')
  const times = (key: string, count: number) => (): string[] => Array.from({ length: count }, () => key)
  const stream = { ...BODY, stream: true, stream_options: { include_usage: true } }
  const hundred = await keysOf(recording, 100, '--credits', '10')
  const costs: readonly (readonly [title: string, Cost])[] = [
    ['JSON, alone', await costOf(counting, times(one, 20), inTurn)],
    ['a stream of 200 events, alone', await costOf(counting, times(one, 20), inTurn, stream)],
    // Those who come together share their round trips.
    ['JSON, 32 at once', { ...(await costOf(counting, times(one, 32), atOnce)), roundTrips: NaN }],
    ['JSON, a key out of the cache', await costOf(counting, () => unknown.splice(0, 20), inTurn)],
    [
      'JSON, a key with a plan of three windows',
      await costOf(counting, times(await keyWithPlan(counting), 20), inTurn),
    ],
    ['JSON and its recording, 100 of one key', stored(await costOf(recording, times(recorded, 100), atOnce))],
    ['JSON and its recording, 100 keys', stored(await costOf(recording, () => hundred, atOnce))],
  ]
  const names = [...COLUMNS, 'headers'] as const
  if (process.env['WRITE_TABLES'] !== undefined)
    writeTable(
      PAGE,
      HEADING,
      costs.map(([title, cost]) => [title, ...names.map(name => rangeOf(name, cost))]),
    )
  const commandsOf = (of: string): number => costs.find(([title]) => title.includes(of))?.[1].commands ?? NaN
  const ofPlan = commandsOf('a plan') - commandsOf('JSON, alone')
  t.ok(ofPlan <= 2.5, `a plan costs ${ofPlan} commands`)
  const stated = rowsOf(readFileSync(PAGE, 'utf8'), HEADING)
  t.same(stated.map(([title]) => title), costs.map(([title]) => title)) // prettier-ignore
  for (const [nth, [title, cost]] of costs.entries())
    for (const [at, name] of names.entries()) {
      const cell = stated[nth]?.[at + 1] ?? ''
      if (cell === '-') continue
      const [from = NaN, to = from] = cell.split(' to ').map(Number)
      t.ok(cost[name] >= from && cost[name] <= to, `${title}: ${cost[name]} ${name}, ${cell} is stated`)
    }
})

/** Returns the range that a count must stay in: it is exact, or what differs between machines is left room for. */
function rangeOf(name: Column | 'headers', cost: Cost): string {
  const count = cost[name]
  if (Number.isNaN(count)) return '-'
  if (name === 'headers') return String(count)
  // How calls of the system, turns of the event loop and runs of the recording meet requests depends on the machine.
  const isByMachine = name === 'turns' || name === 'reads' || name === 'writes' || Number.isNaN(cost.turns)
  const room = Math.max(count * (isByMachine ? 0.7 : 0.1), 0.3)
  return `${Math.max(0, count - room).toFixed(1)} to ${(count + room).toFixed(1)}`
}
