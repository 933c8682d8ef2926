/** What the support of a shop with three plans is asked. Each answer stands on one page, and in the output of one command. */
import t from 'tap'
import { stopBrowser } from '../browser.ts'
import { until } from '../gateway.ts'
import { Place } from '../process.ts'
import { answered, pressFirst, type Question } from '../questions.ts'
import { json, ScriptedUpstream } from '../upstream.ts'

t.teardown(stopBrowser)

interface Known {
  readonly ann: string
  readonly bob: string
  readonly cleo: string
  readonly dear: string
  readonly mixed: string
  readonly unserved: string
  readonly refunded: string
}

const QUESTIONS: readonly Question<Known>[] = [
  {
    question: 'Why was I charged three times as much for the same question?',
    command: ({ dear }) => ['why', dear],
    says: /1500 output tokens \(1000 of reasoning\)\.\nIt was charged 0\.0225\d* credits of the plan at the price medium/,
    area: ({ ann }) => `key/${ann}`,
    press: pressFirst,
    shows: /1500 output tokens \(1000 of reasoning\)[^]*0\.0225\d* credits of the plan/,
  },
  {
    question: 'What do I earn on this model?',
    command: () => ['usage', '--by', 'model', '--json'],
    says: /"group":"acme\/famC-5\.5",.*"credits":"0\.\d+","cost":"0\.\d+","margin":"0\.\d+","without_cost":"0"/,
    area: () => 'usage?by=model',
    shows: /acme\/famC-5\.5/,
  },
  {
    question: 'Why does Bob get a 429?',
    command: ({ bob }) => ['failures', '--key', bob],
    says: /key +window_exhausted .*2 requests of your day are used; more at/,
    area: ({ bob }) => `failures?key=${bob}&code=window_exhausted`,
    press: pressFirst,
    shows: /window_exhausted[^]*2 requests of your day are used/,
  },
  {
    question: 'Can you refund it?',
    command: ({ refunded }) => ['credit', refunded, '--reason', 'a poor answer'],
    says: /^Refunded 0\.0075\d* credits of entry \S+, 0\.0075\d* of them to the plan\./,
    area: ({ ann }) => `key/${ann}`,
    shows: /Statement, newest first[^]*refund[^]*a poor answer/,
  },
  {
    question: 'What has Ann bought?',
    command: ({ ann }) => ['keys', 'statement', ann],
    says: / 2 .* plan .* bought\n[^]* 1 .* grant +0\.001 credits/,
    area: ({ ann }) => `key/${ann}`,
    shows: /Statement, newest first[^]*plan bought[^]*grant/,
  },
  {
    question: 'How much of the plan is left, and when does it end?',
    command: ({ ann }) => ['keys', 'show', ann],
    says: /has the plan of famC, which ends at \S+Z.*\n.*credits/,
    area: ({ ann }) => `key/${ann}`,
    shows: /The plan of famC, since [^]*left/,
  },
  {
    question: 'Which paid for this request, my plan or my credits?',
    command: ({ mixed }) => ['why', mixed],
    says: /It was charged 0\.00753 credits at the price/,
    area: ({ cleo }) => `key/${cleo}`,
    press: pressFirst,
    shows: /of 0\.004 of the plan, and 0\.98\d+ credits[^]*0\.00753 credits of the balance/,
  },
  {
    question: 'Which of the keys of Cleo has used it?',
    command: () => ['usage', '--by', 'key', '--csv'],
    says: /"Phone",1,/,
    area: () => 'usage?by=key',
    shows: /Cleo[^]*Phone|Phone[^]*Cleo/,
  },
  {
    question: 'Why could no account serve my request?',
    command: ({ unserved }) => ['why', unserved],
    says: /The state of famC\/1 was: disabled[^]*\nSee upstreams\.famC\.accounts, line \d+ of gateway\.yaml\./,
    area: ({ bob }) => `failures?key=${bob}&code=overloaded`,
    press: pressFirst,
    shows: /The state of famC\/1 was: disabled/,
  },
  {
    question: 'Whose plan is used up?',
    command: () => ['keys', 'list'],
    says: /Bob/,
    area: ({ bob }) => `key/${bob}`,
    shows: /0 of 2 left/,
  },
]

t.test('the support of a shop with three plans finds each answer on one page and in one command', async t => {
  const upstream = await ScriptedUpstream.start(t)
  let usage: object = {}
  upstream.script = (_received, res) =>
    json(res, { choices: [{ message: { content: 'x'.repeat(2000) }, finish_reason: 'stop' }], usage })
  const place = new Place(
    t,
    file =>
      file
        .set('prices.bought', { input: 1.5, output: 7.5 })
        .set('upstreams.famC.cost', { '*': 'bought' })
        .set('keyTypes.famC.plan', { windows: [{ credits: 20, per: 'month' }], until: '60d', then: 'credits' })
        .append({ admin: { listen: { port: 0 } } }),
    { FAMC_URL: upstream.url, FAMC_KEY: 'upstream-secret-0123456789' },
  )
  const running = await place.start(t)
  const run = async (...args: string[]): Promise<any> => {
    const { out, err, code } = await place.run(...args, '--json')
    if (code !== 0) throw new Error(err)
    return JSON.parse(out)
  }
  const made = (...more: string[]): Promise<{ id: string; key: string; balance_id: string }> =>
    run('keys', 'create', '--type', 'famC', ...more)
  const ann = await made('--name', 'Ann', '--credits', '0.001')
  const bob = await made('--name', 'Bob')
  const cleo = await made('--name', 'Cleo', '--credits', '1')
  const give = (id: string, terms: string) => run('balances', 'plan', 'set', id, '--terms', terms)
  await give(bob.id, '{ windows: [{ requests: 2, per: day }], until: 7d }')
  await give(cleo.id, '{ windows: [{ credits: 0.004, per: 5h }], then: credits }')
  const phone = await run('keys', 'create', '--type', 'famC', '--name', 'Phone', '--balance', cleo.id)
  let status = 0
  const ask = async ({ key }: { key: string }, completion = 500, reasoning = 0): Promise<string> => {
    usage = {
      prompt_tokens: 10,
      completion_tokens: completion,
      completion_tokens_details: { reasoning_tokens: reasoning },
    }
    const body = { model: 'acme/famC-5.5', max_tokens: 2000, messages: [{ role: 'user', content: 'hi' }] }
    const response = await running.chat(key, body)
    await response.text()
    status = response.status
    return response.headers.get('x-request-id') ?? ''
  }
  const refunded = await ask(ann)
  const dear = await ask(ann, 1500, 1000)
  for (let times = 0; times < 3; times++) await ask(bob)
  const mixed = await ask(cleo)
  await ask(phone)
  await place.run('upstreams', 'disable', 'famC/1')
  let unserved = ''
  await until(async () => {
    unserved = await ask(bob)
    return status === 503
  })
  await place.run('upstreams', 'enable', 'famC/1')
  for (const id of [mixed, unserved]) await until(async () => (await place.run('why', id)).code === 0)
  await answered(t, { place, running }, QUESTIONS, {
    ann: ann.id,
    bob: bob.id,
    cleo: cleo.id,
    dear,
    mixed,
    unserved,
    refunded,
  })
})
