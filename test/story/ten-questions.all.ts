import t from 'tap'
import { testEnvironment } from '../environment.ts'
import { stopBrowser } from '../browser.ts'
import { Place } from '../process.ts'
import { answered, pressFirst, type Question } from '../questions.ts'
import { json, ScriptedUpstream } from '../upstream.ts'
import { until } from '../gateway.ts'
import { keepsTable } from '../tables.ts'
import { loadConfig } from '../../core/config/load.ts'
import { checkChain } from '../../core/chain/check-chain.ts'
import { Records } from '../../core/records/records.ts'

/** What an operator asks. Each answer stands on one page, and in the output of one command. */

t.teardown(stopBrowser)

const DAY_MS = 86_400_000
const day = (ago: number): string => new Date(Date.now() - ago * DAY_MS).toISOString().slice(0, 10)
const usage = { prompt_tokens: 30_000, completion_tokens: 1000 }

interface Known {
  readonly ann: string
  readonly bob: string
  readonly failed: string
  readonly served: string
}

const QUESTIONS: readonly Question<Known>[] = [
  {
    question: 'Why did this request fail?',
    command: ({ failed }) => ['why', failed],
    says: /famC\/1 was asked .* status 500.*\nThe provider failed \(upstream_failed\)\.\nWhat was said of it: on fire/,
    area: ({ ann }) => `failures?key=${ann}&code=upstream_failed`,
    press: pressFirst,
    shows: /The provider failed \(upstream_failed\)/,
  },
  {
    question: 'What did famC earn yesterday, after cost?',
    command: () => ['usage', '--since', 'yesterday', '--until', 'yesterday', '--by', 'type', '--json'],
    says: /"group":"famC",.*"credits":"0\.21","cost":"0\.105","margin":"0\.105"/,
    area: () => `usage?by=type&from=${day(1)}&to=${day(1)}`,
    shows: /famC[^]*0\.21[^]*0\.105[^]*0\.105/,
  },
  {
    question: 'Who runs out this week?',
    command: () => ['keys', 'running-out'],
    says: /^key_\w+ .*: \d+(?:\.\d)? days {2}Ann\n$/,
    area: () => 'overview',
    shows: /Needs attention[^]*Ann[^]*credits last \d+(?:\.\d)? days/,
  },
  {
    question: 'Which account failed, and why?',
    command: () => ['upstreams'],
    says: /famC\/1 .*last failure .*500/,
    area: () => 'accounts',
    shows: /famC\/1[^]*Last failure[^]*500/,
  },
  {
    question: 'Which errors did customers get?',
    command: () => ['usage', '--by', 'code'],
    says: /upstream_failed +1 /,
    area: () => `usage?by=code&from=${day(1)}&to=${day(0)}`,
    shows: /upstream_failed/,
  },
  {
    question: 'Why is Bob refused?',
    command: ({ bob }) => ['failures', '--key', bob],
    says: /key +allocation_exhausted .*For more, ask the shop/,
    area: ({ bob }) => `failures?key=${bob}`,
    press: pressFirst,
    shows: /The balance, a limit or the state of its key refused it \(allocation_exhausted\)/,
  },
  {
    question: 'How did this balance come about?',
    command: ({ ann }) => ['keys', 'statement', ann],
    says: /charge +-0\.105 credits {2}balance 0\.\d[^]* 1 .* grant +0\.6 credits {2}balance 0\.6/,
    area: ({ ann }) => `key/${ann}`,
    shows: /Statement, newest first[^]*charge[^]*grant/,
  },
  {
    question: 'What did this request cost, and what did I earn by it?',
    command: ({ served }) => ['why', served],
    says: /It was charged 0\.105 credits at the price \S+ \(version \w+, line \d+ of gateway\.yaml\)\.[^]*It costs you 0\.0525, which leaves 0\.0525\./,
    area: ({ ann }) => `key/${ann}`,
    press: pressFirst,
    shows: /Your cost[^]*0\.0525 credits[^]*Margin[^]*0\.0525 credits/,
  },
  {
    question: 'Who spent most?',
    command: () => ['usage', '--by', 'key', '--since', '7d'],
    says: /^key +name [^]*?\nkey_\w+ +Ann /,
    area: () => `usage?by=key&from=${day(7)}&to=${day(0)}`,
    shows: /Ann[^]*0\.315/,
  },
  {
    question: 'Which models are slow?',
    command: () => ['usage', '--by', 'model', '--json'],
    says: /"group":"acme\/famC-5\.5",.*"ms_p50":\d+/,
    area: () => `usage?by=model&from=${day(1)}&to=${day(0)}`,
    shows: /acme\/famC-5\.5[^]*\d+ ms/,
  },
]

t.test('docs/operating.md says where each answer stands', t => {
  const names = { ann: 'KEY', bob: 'KEY', failed: 'REQUEST', served: 'REQUEST' }
  const rows = QUESTIONS.map(({ question, command, area }) => {
    const [name = ''] = area(names).split(/[/?]/)
    const page = name === 'key' ? 'Keys, and the key' : `${name.charAt(0).toUpperCase()}${name.slice(1)}`
    return [question, `\`npx tollgate ${command(names).join(' ')}\``, page]
  })
  keepsTable(t, new URL('../../docs/operating.md', import.meta.url), 'question', rows)
  t.end()
})

t.test('an operator finds each answer on one page and in one command', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => json(res, { choices: [{ finish_reason: 'stop' }], usage })
  const place = new Place(
    t,
    file =>
      file
        .set('contact', 'the shop')
        .set('prices.bought', { input: 1.5, output: 7.5 })
        .set('upstreams.famC.cost', { '*': 'bought' })
        .append({ admin: { listen: { port: 0 } } }),
    { FAMC_URL: upstream.url, FAMC_KEY: 'upstream-secret-0123456789' },
  )
  const running = await place.start(t)
  const made = async (...more: string[]): Promise<{ id: string; key: string }> =>
    JSON.parse((await place.run('keys', 'create', '--type', 'famC', '--json', ...more)).out)
  const ann = await made('--name', 'Ann', '--credits', '0.6')
  const bob = await made('--name', 'Bob', '--credits', '0.000001')
  const ask = async ({ key }: { key: string }): Promise<{ status: number; id: string }> => {
    const response = await running.chat(key, {
      model: 'acme/famC-5.5',
      max_tokens: 2000,
      messages: [{ role: 'user', content: 'hi' }],
    })
    await response.text()
    return { status: response.status, id: response.headers.get('x-request-id') ?? '' }
  }
  t.equal((await ask(ann)).status, 200)
  t.equal((await ask(ann)).status, 200)
  const { config } = await loadConfig(place.file, place.env, checkChain)
  const records = await Records.open(config?.store as never, testEnvironment(place.env))
  t.teardown(() => records.close())
  const recorded = async (requests: number): Promise<void> =>
    until(
      async () => Number((await records.database.all('SELECT SUM(requests) AS n FROM totals'))[0]?.['n']) === requests,
    )
  await recorded(2)
  // A day passes.
  for (const table of ['day_accounts', 'day_models', 'day_account_models'])
    await records.database.all(`UPDATE ${table} SET day = day - 1`)
  upstream.script = (_received, res) => json(res, { error: { message: 'on fire' } }, 500)
  const failed = await ask(ann)
  t.equal(failed.status, 502)
  upstream.script = (_received, res) => json(res, { choices: [{ finish_reason: 'stop' }], usage })
  const served = await ask(ann)
  t.equal(served.status, 200)
  t.equal((await ask(bob)).status, 429)
  await recorded(5)

  const known = { ann: ann.id, bob: bob.id, failed: failed.id, served: served.id }
  await answered(t, { place, running }, QUESTIONS, known)
})
