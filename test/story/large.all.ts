import t, { type Test } from 'tap'
import { createLog } from '../../core/lib/log.ts'
import { Scrubber } from '../../core/lib/scrubber.ts'
import { LongJobs } from '../../core/jobs/long-jobs.ts'
import { turn } from '../../core/lib/turns.ts'
import { startGateway, type TestGateway } from '../gateway.ts'
import { json, ScriptedUpstream } from '../upstream.ts'
import type { Edit } from '../gateway-file.ts'

/**
 * Requests and replies so large that they are read in slices, or translated on a thread of their own. They pass as
 * small ones do.
 */

const WORDS = 'é "quoted" \\ line\nbreak ✓ '
const LARGE = WORDS.repeat(40_000)
const PATHS = { chat: '/v1/chat/completions', responses: '/v1/responses', messages: '/v1/messages' }

async function start(t: Test): Promise<{ g: TestGateway; upstream: ScriptedUpstream }> {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = ({ path }, res) =>
    json(
      res,
      path === PATHS.messages
        ? {
            id: 'm',
            type: 'message',
            role: 'assistant',
            content: [{ type: 'text', text: LARGE }],
            stop_reason: 'end_turn',
            usage: { input_tokens: 10, output_tokens: 5 },
          }
        : {
            id: 'c',
            object: 'chat.completion',
            model: 'x',
            choices: [{ index: 0, message: { role: 'assistant', content: LARGE }, finish_reason: 'stop' }],
            usage: { prompt_tokens: 10, completion_tokens: 5 },
          },
    )
  const edit: Edit = file => file.set('upstreams.famC.speaks', ['chat-completions'])
  return { g: await startGateway(t, { upstream: upstream.url, edit }), upstream }
}

/** A request in the format of a path. */
const asked = (path: string, model: string, text: string): object => ({
  model,
  [path === PATHS.responses ? 'input' : 'messages']: [{ role: 'user', content: text }],
  ...(path === PATHS.messages && { max_tokens: 100 }),
  ...(path === PATHS.responses && { metadata: { a: 'b' }, instructions: 'be brief' }),
})
const said: Readonly<Record<string, (json: any) => string>> = {
  [PATHS.chat]: reply => reply.choices[0].message.content,
  [PATHS.responses]: reply => reply.output[0].content[0].text,
  [PATHS.messages]: reply => reply.content[0].text,
}

t.test(
  'large requests and replies pass completely, in every format and direction, and are charged as reported',
  async t => {
    const { g, upstream } = await start(t)
    for (const [type, model] of [
      ['famC', 'acme/famC-5.5'],
      ['famA', 'acme/famA-medium-5'],
    ] as const) {
      const key = await g.key(type, 1000n)
      for (const path of Object.values(PATHS)) {
        const { status, json: reply } = await g.call(path, { key, body: asked(path, model, LARGE) })
        t.equal(status, 200)
        t.ok(said[path]?.(reply) === LARGE, `${path} to ${type}: the reply's text is whole`)
        const { content } = (upstream.last.json['messages'] as { content: any }[]).at(-1) ?? {}
        t.ok(
          (Array.isArray(content) ? content[0].text : content) === LARGE,
          `${path} to ${type}: the request's text is whole`,
        )
        if (path === PATHS.responses)
          t.match(reply, { metadata: { a: 'b' }, instructions: 'be brief', model }, 'the reply repeats what it is to')
        const { text } = await g.call(path, { key, body: { ...asked(path, model, 'hi'), stream: true } })
        t.match(
          text,
          path === PATHS.chat
            ? /\[DONE\]|"finish_reason":"stop"/
            : path === PATHS.responses
              ? /response\.completed/
              : /message_stop|"stop_reason":"end_turn"/,
        )
      }
      const entries = await g.settled(key)
      t.strictSame(
        [
          ...new Set(
            entries.map(({ status, input_tokens, output_tokens }) => `${status} ${input_tokens} ${output_tokens}`),
          ),
        ],
        ['ok 10 5'],
      )
    }
  },
)

t.test('a large request that cannot be translated is refused as a small one is', async t => {
  const { g, upstream } = await start(t)
  const key = await g.key('famA')
  const body = {
    ...asked(PATHS.chat, 'acme/famA-medium-5', LARGE),
    messages: [
      { role: 'user', content: [{ type: 'text', text: LARGE }] },
      { role: 'user', content: [{ type: 'dream', a: 1 }] },
    ],
  }
  const large = await g.call(PATHS.chat, { key, body })
  body.messages[0]!.content[0] = { type: 'text', text: 'hi' }
  const small = await g.call(PATHS.chat, { key, body })
  t.equal(large.status, 400)
  t.strictSame({ ...large.json.error, message: '' }, { ...small.json.error, message: '' })
  t.equal(large.json.error.message.replace(/\S+$/, ''), small.json.error.message.replace(/\S+$/, ''))
  t.equal(upstream.requests.length, 0)
})

t.test('a small balance lowers the output limit of a large translated request as of a small one', async t => {
  const { g, upstream } = await start(t)
  const text = 'a'.repeat(100_000)
  const key = (
    await g.gateway.keys.changes.create({ type: 'famA', name: '', credits: 300_000_000n, expiresAt: undefined })
  ).secret
  const { status, headers } = await g.call(PATHS.chat, {
    key,
    body: { ...asked(PATHS.chat, 'acme/famA-medium-5', text), max_tokens: 64_000 },
  })
  t.equal(status, 200)
  const limit = Number(headers.get('x-tollgate-output-limit'))
  t.ok(limit > 0 && limit < 64_000, String(limit))
  t.equal(upstream.last.json['max_tokens'], limit)
  await g.settled(key)
})

/** Ends the gateway's thread for long jobs as soon as it has a job of a kind. @returns a function that stops this */
function endsThreadAt(g: TestGateway, kind: 'request' | 'reply'): () => void {
  const { longJobs } = g.gateway
  const of = longJobs.of.bind(longJobs)
  longJobs.of = (key, x) => {
    const jobs = of(key, x)
    const run = jobs[kind] as (job: unknown) => Promise<never>
    const ending = async (job: unknown): Promise<never> => {
      const answer = run(job)
      // The thread has the job by then, as it takes longer to start.
      await turn()
      await longJobs.close()
      return answer
    }
    return { ...jobs, [kind]: ending }
  }
  return () => void (longJobs.of = of)
}

t.test('a request that ends the thread for long jobs fails, and the next one is translated', async t => {
  const { g } = await start(t)
  const key = await g.key('famA', 1000n)
  const stop = endsThreadAt(g, 'request')
  t.equal((await g.call(PATHS.chat, { key, body: asked(PATHS.chat, 'acme/famA-medium-5', LARGE) })).status, 500)
  stop()
  t.equal((await g.call(PATHS.chat, { key, body: asked(PATHS.chat, 'acme/famA-medium-5', LARGE) })).status, 200)
  await g.settled(key)
})

t.test('a reply that the gateway fails to translate costs nothing', async t => {
  const { g } = await start(t)
  const key = await g.key('famA', 1000n)
  endsThreadAt(g, 'reply')
  t.equal((await g.call(PATHS.chat, { key, body: asked(PATHS.chat, 'acme/famA-medium-5', 'hi') })).status, 500)
  const [entry] = await g.settled(key)
  t.match(entry, { status: 'failed', input_tokens: 0, output_tokens: 0 })
  t.equal((await g.balance(key)).exact.used, '0')
})

t.test('keys take turns on the thread for long jobs, and a job that takes too long ends with its thread', async t => {
  const { g } = await start(t)
  const document = (bytes: number): Uint8Array =>
    Buffer.from(JSON.stringify(Buffer.alloc(bytes, 'text').toString('base64')))
  const order: string[] = []
  const weigh = (jobs: LongJobs, key: string, bytes: number): Promise<void> =>
    jobs
      .of(key, { whenClosed: () => () => {} })
      .documents({ documents: [document(bytes)], pageTokens: 1 })
      .then(() => void order.push(key))
  await Promise.all(
    ['greedy', 'greedy', 'greedy', 'greedy', 'other', 'third'].map(key => weigh(g.gateway.longJobs, key, 100_000)),
  )
  t.ok(order.indexOf('third') <= 3, order.join(' '))
  const hasty = new LongJobs(2 ** 28, () => 1, createLog(new Scrubber(), 'silent', process.stdout))
  t.teardown(() => hasty.close())
  const [first, second] = [weigh(hasty, 'a', 20_000_000), weigh(hasty, 'b', 20_000_000)]
  await t.rejects(first, { code: 'internal' })
  await t.rejects(second, { code: 'internal' }, 'the next one has a thread of its own')
})

t.test('jobs of ended exchanges and of a stopped gateway are dropped', async t => {
  const { g } = await start(t)
  const jobs = new LongJobs(2 ** 28, () => 30_000, createLog(new Scrubber(), 'silent', process.stdout))
  const document = Buffer.from(JSON.stringify(Buffer.alloc(5_000_000, 'text').toString('base64')))
  const ends: (() => void)[] = []
  const weigh = (): Promise<unknown> =>
    jobs
      .of('key', { whenClosed: callback => (ends.push(callback), () => {}) })
      .documents({ documents: [document], pageTokens: 1 })
  const [first, second, third] = [weigh(), weigh(), weigh()]
  ends[1]?.()
  await t.rejects(second, { code: 'internal' }, 'it still waited')
  await first
  const refused = t.rejects(weigh(), { code: 'unavailable' }, 'it waits behind the third')
  await jobs.close()
  await refused
  await third?.catch(() => {})
  t.equal(g.gateway.running, 0)
})

t.test('a large reply passes as a small one does: byte order mark, repeated names, odd numbers', async t => {
  const { g, upstream } = await start(t)
  const reply = (text: string, more: string): string =>
    `{"id":"c","object":"chat.completion","model":"x","choices":[{"index":0,"message":{"role":"assistant","content":${JSON.stringify(text)}},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1},"usage":{"prompt_tokens":10,"completion_tokens":5}${more}}`
  const key = await g.key('famC', 1000n)
  for (const path of [PATHS.chat, PATHS.messages]) {
    for (const [mark, more] of [
      ['\ufeff', ''],
      ['', ',"odd":1e400'],
      ['', `,"odd":${'9'.repeat(1500)}`],
    ] as const) {
      for (const text of ['short', LARGE]) {
        upstream.script = (_received, res) => json(res, mark + reply(text, more))
        t.equal(
          (await g.call(path, { key, body: asked(path, 'acme/famC-5.5', 'hi') })).status,
          200,
          `${path} ${text.length} ${more.slice(0, 20)}`,
        )
      }
    }
  }
  const entries = await g.settled(key)
  t.strictSame(
    [
      ...new Set(
        entries.map(({ status, input_tokens, output_tokens }) => `${status} ${input_tokens} ${output_tokens}`),
      ),
    ],
    ['ok 10 5'],
  )
})
