import { PassThrough } from 'node:stream'
import t from 'tap'
import { createLog } from '../../core/lib/log.ts'
import { Scrubber } from '../../core/lib/scrubber.ts'
import { operate } from '../admin.ts'
import { until } from '../gateway.ts'
import { json, type Script, ScriptedUpstream, sse } from '../upstream.ts'

const CHAT = '/v1/chat/completions'
const PROMPT = 'the customer wrote this long and private prompt'
const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: PROMPT }] }
/** A provider that answers with JSON. */
const answers =
  (body: unknown, status = 200): Script =>
  (_received, res) =>
    json(res, body, status)
const DONE = { choices: [{ finish_reason: 'stop' }], usage: { prompt_tokens: 30, completion_tokens: 10 } }

t.test('each failed request has who failed, a code, what the provider said, and its attempts', async t => {
  const upstream = await ScriptedUpstream.start(t)
  const out = new PassThrough().setEncoding('utf8')
  let logged = ''
  out.on('data', (chunk: string) => (logged += chunk))
  const environment = { log: createLog(new Scrubber(), 'info', out) }
  const { gateway: g, api } = await operate(t, {}, { upstream: upstream.url, environment, env: { LOG_LEVEL: 'info' } })
  const { records } = g.gateway
  const key = await g.key('famC')
  const poor = await g.key('famC', 0n)
  const cases: {
    name: string
    script?: Script
    body?: unknown
    key?: string
    want: object
    says?: RegExp
  }[] = [
    {
      name: 'a body that is no JSON',
      body: '{',
      want: { who: 'client', code: 'invalid_body', status: 400, account: '', words: null },
      says: /^The request cannot be served as it was sent \(invalid_body\)\.$/m,
    },
    {
      name: 'a model that the key may not use',
      body: { ...BODY, model: 'none' },
      want: { who: 'client', code: 'model_not_found', status: 404, model: '' },
      says: /^See keyTypes\.famC\.models, line \d+ of gateway\.yaml\.$/m,
    },
    {
      name: 'a key with too little',
      key: poor,
      want: { who: 'key', code: 'allocation_exhausted', status: 429 },
      says: /^Nothing was held for it\.\nThe balance, a limit or the state of its key refused it \(allocation_exhausted\)\.$/m,
    },
    {
      name: 'a request that the provider rejects',
      script: answers({ error: { message: `"${PROMPT}" is no good prompt`, type: 'invalid_request_error' } }, 400),
      want: {
        who: 'client',
        code: 'upstream_rejected',
        status: 400,
        account: 'famC/1',
        words: 'invalid_request_error: "…" is no good prompt',
      },
    },
    {
      name: 'a provider that fails',
      script: answers({ error: { message: `sk-abcdefghijklmnopqrstuvwxyz0123 broke` } }, 500),
      want: { who: 'provider', code: 'upstream_failed', status: 502, account: 'famC/1', words: 'sk-*** broke' },
      says: /^famC\/1 was asked \d+ ms after the request came and answered with status 500, after \d+ ms \(a failure of the provider\)\.\nThe provider failed \(upstream_failed\)\.\nWhat was said of it: sk-\*\*\* broke$/m,
    },
    {
      name: 'a message with characters that a database or a terminal does not take',
      script: answers({ error: { message: 'bad \0\x1b[31m\u202e' } }, 500),
      want: { who: 'provider', code: 'upstream_failed', words: String.raw`bad \u0000\u001b[31m\u202e` },
    },
    {
      name: 'an account that its provider limits',
      script: answers({ error: { message: 'slow down', code: 'rate_limit_exceeded' } }, 429),
      want: { who: 'account', code: 'overloaded', words: 'rate_limit_exceeded: slow down' },
    },
    {
      name: 'a stream that ends with an error',
      body: { ...BODY, stream: true },
      script: (_received, res) =>
        sse(res, 'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: {"error":{"message":"died"}}\n\n'),
      want: { who: 'provider', code: 'upstream_failed', status: 200, words: 'died' },
    },
  ]
  for (const { name, script, body = BODY, key: of = key, want, says } of cases) {
    if (script) upstream.script = script
    g.gateway.pool.health(g.gateway.config.upstreams.get('famC')?.accounts[0] as never).reset(Date.now())
    const answer = await g.call(CHAT, { key: of, body })
    await until(async () => {
      await g.gateway.ledger.background.archiveAll()
      return (await records.failures.get(answer.headers.get('x-request-id') ?? '')) !== undefined
    })
    const id = answer.headers.get('x-request-id') ?? ''
    const [failure] = (await api('GET', '/failures?limit=1')).json.data
    t.match(failure, { id, alike: 1, ...want }, name)
    const { json: story } = await api('GET', `/requests/${id}`)
    const text = story.sentences.join('\n')
    t.match(text, new RegExp(`^The request ${id} ended at [^]* ms after it came\\.$`, 'm'))
    if (says) t.match(text, says, name)
    t.notMatch(JSON.stringify(story), /private prompt|abcdefghij/, 'neither the prompt nor a secret')
    const lineOf = (): string => logged.split('\n').find(each => each.includes(id) && each.includes('"outcome"')) ?? ''
    await until(() => lineOf() !== '')
    const line = JSON.parse(lineOf())
    const { who, code } = want as { who: string; code: string }
    t.match(line, { who, code })
    t.notMatch(JSON.stringify(line), /broke|slow down|died|no good/, 'the log has no words of the provider')
  }
  upstream.script = answers(DONE)
  const served = await g.call(CHAT, { key, body: BODY })
  const id = served.headers.get('x-request-id') ?? ''
  t.equal(served.status, 200)
  await until(async () => (await api('GET', `/requests/${id}`)).status === 200)
  const { json: story } = await api('GET', `/requests/${id}`)
  t.match(story, { who: null, code: null, attempts: [], charge: '0.00024' })
  t.match(
    story.sentences.slice(2).join('\n'),
    /^It asked for the model acme\/famC-5\.5\.\nIt was served\.\nIt used 30 input tokens \(0 from a cache\) and 10 output tokens\.\nIt was charged 0\.\d+ credits at the price \S+ \(version \w+, line \d+ of gateway\.yaml\)\./,
  )
  t.equal((await api('GET', `/requests/${id.replace(/.$/, 'x')}`)).status, 404)
  t.match((await api('GET', '/failures?code=overloaded&format=csv')).text, /^"id",.*\n"[^"]+",.*"overloaded"/)
})

t.test(
  'a request that no account could take has the state of each, and the line of the own upstream of its model',
  async t => {
    const { gateway: g, api } = await operate(
      t,
      {},
      {
        edit: file =>
          file
            .set('upstreams.spare', {
              url: 'simulated',
              speaks: ['chat-completions'],
              accounts: [
                { name: 'off', key: 'simulated' },
                { name: 'waiting', key: 'simulated' },
                { name: 'other', key: 'simulated', models: ['acme/famC-5.6-sol'] },
                { name: 'spent', key: 'simulated', quota: { credits: 0.000001, per: 'day' } },
              ],
            })
            .set('keyTypes.famC.models.3.upstream', 'spare'),
      },
    )
    const key = await g.key('famC')
    const { pool, config } = g.gateway
    const [off, waiting, , spent] = config.upstreams.get('spare')?.accounts.map(account => pool.health(account)) ?? []
    const story = async (): Promise<string> => {
      const { status, headers } = await g.call(CHAT, { key, body: BODY })
      t.not(status, 200)
      const id = headers.get('x-request-id') ?? ''
      await until(async () => (await api('GET', `/requests/${id}`)).status === 200)
      const { json } = await api('GET', `/requests/${id}`)
      t.match(json.sentences.join('\n'), /\nSee upstreams\.spare\.accounts, line \d+ of gateway\.yaml\.\n/)
      return json.sentences.filter((each: string) => each.startsWith('The state of')).join('\n')
    }
    for (const health of [off, waiting]) if (health) health.disabled = true
    t.match(
      await story(),
      /^The state of spare\/spent was: its quota is used up until \S+Z\.\nThe state of spare\/off was: disabled\.\n/,
    )
    if (waiting) waiting.disabled = false
    for (const [health, reason] of [
      [waiting, 'slow down'],
      [spent, 'busy'],
    ] as const)
      health?.failed(config.upstreams.get('spare')?.health as never, {
        now: Date.now(),
        request: {},
        reason,
        waitMs: 60_000,
      })
    t.match(
      await story(),
      new RegExp(
        [
          'The state of spare/off was: disabled\\.',
          'The state of spare/waiting was: the provider asks to wait until \\S+Z; its last failure was at \\S+Z\\.',
          'The state of spare/other was: it does not serve acme/famC-5\\.5\\.',
          'The state of spare/spent was: the provider asks to wait until \\S+Z; .*',
        ].join('\n'),
      ),
    )
  },
)
