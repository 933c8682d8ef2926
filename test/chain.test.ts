import { PassThrough } from 'node:stream'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import authPlugin from '../plugins/auth.ts'
import gatePlugin from '../plugins/model-gate.ts'
import { GatewayError } from 'tollgate/plugin'
import { createLog } from '../core/lib/log.ts'
import { Scrubber } from '../core/lib/scrubber.ts'
import { type Options, startGateway, type TestGateway, until } from './gateway.ts'
import { json, ScriptedUpstream, sse } from './upstream.ts'
import { bodyOf, drive } from 'tollgate/testing'
import type { Edit } from './gateway-file.ts'
import { matchAll } from './matching.ts'
import { RawClient } from './raw.ts'
import { scene } from './scene.ts'
import { DONE, STOP, text, usage } from './stream-events.ts'

/** Imports `definePlugin` as a plugin with these hooks needs it: some hooks only the built-in plugins have. */
function defining(hooks: string): string {
  return /\b(?:decide|recorded)\b/.test(hooks)
    ? "import { defineBuiltIn as definePlugin } from 'tollgate/plugin/metering'"
    : "import { definePlugin } from 'tollgate/plugin'"
}

/** A promise that never resolves. */
const NEVER = 'new Promise(() => {})'

/**
 * Starts a gateway with one plugin of the test's own, `probe`, in front of the router. Its notes go through
 * `globalThis`.
 */
async function withProbe(
  t: Test,
  upstream: ScriptedUpstream,
  hooks: string,
  head = '',
  more: Partial<Options> = {},
): Promise<{ g: TestGateway; notes: string[] }> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-plugins-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const notes: string[] = []
  ;(globalThis as any).notes = notes
  writeFileSync(
    join(folder, 'probe.ts'),
    `import { GatewayError, Reply } from 'tollgate/plugin'
     ${defining(hooks)}
     const note = (text: string) => (globalThis as any).notes.push(text)
     void note, GatewayError, Reply
     export default definePlugin({ name: 'probe', summary: 'Tests.', on: 'inference', needs: ['body'], ${head} setup: () => (${hooks}) })`,
  )
  const g = await startGateway(t, {
    ...more,
    upstream: upstream.url,
    edit: file => {
      const edited = (more.edit ?? (same => same))(file).insertBefore('router', 'probe').set('plugins', [folder])
      // Other stages have the same limit, and need longer on a busy machine.
      return hooks.includes(NEVER) ? edited.set('limits.stage', '1s') : edited
    },
  })
  return { g, notes }
}

const BODY = { model: 'acme/famC-5.5', messages: [] }
const STREAM = 'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n' + usage(1, 1) + DONE
const REPLY = {
  choices: [{ message: { content: 'x' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 1, completion_tokens: 1 },
}

t.test('hooks run down, then up, then settle once', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => sse(res, text('a') + STOP + DONE)
  const { g, notes } = await withProbe(
    t,
    upstream,
    `{
      request() { note('request') },
      response(_x, head) { note('response ' + head.status); head.reply['x-probe'] = 'seen' },
      event(_x, event) { note('event ' + event.data.slice(0, 12)) },
      settle(_x, outcome) { note('settle ' + outcome.kind) },
      close() { note('close') },
    }`,
  )
  const key = await g.key('famC')
  const answer = await g.call('/v1/chat/completions', { key, body: { ...BODY, stream: true } })
  await g.settled(key)
  t.equal(answer.headers.get('x-probe'), 'seen')
  t.same(notes, [
    'request',
    'response 200',
    'event {"choices":[',
    'event {"choices":[',
    'event [DONE]',
    'settle relayed',
  ])
  await g.gateway.reload()
  await until(() => notes.includes('close'))
  t.pass('the old generation is closed when it has drained')
})

t.test('a stage decides once, after the events and before the last bytes, which wait for it', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = ({ json: { stream } }, res) => {
    if (!stream) return json(res, REPLY)
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(STREAM)
    // The stream ends some time after its last event.
    setTimeout(() => res.end(': bye\n\n'), 20)
  }
  const hooks = (returned: string): string => `{
    event(_x, event) { if (event.reading.terminal || event.reading.usage) note('event') },
    decide(x, outcome) { note('decide ' + outcome.kind); ${returned} },
    settle(_x, outcome) { note('settle ' + outcome.kind) },
  }`
  ;(globalThis as any).decided = Promise.withResolvers()
  for (const returned of ['return (globalThis as any).decided.promise', '']) {
    const { g, notes } = await withProbe(t, upstream, hooks(returned))
    for (const stream of [false, true]) {
      const { promise, resolve } = ((globalThis as any).decided = Promise.withResolvers<void>())
      const key = await g.key('famC')
      let got = ''
      const answer = g.call('/v1/chat/completions', { key, body: { ...BODY, stream } }).then(({ text }) => (got = text))
      await until(() => notes.includes('decide relayed'))
      if (returned !== '') t.equal(got, '')
      resolve()
      await answer
      t.match(got, stream ? '[DONE]' : '"usage"')
      await g.settled(key)
      const events = notes.splice(0).join(', ')
      t.match(events, /^(event, )+decide relayed, settle relayed$/)
      void promise
    }
  }
})

t.test('no stage decides about a reply without usage, or one that broke off', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = ({ json: { stream } }, res) => {
    if (!stream) return json(res, { choices: REPLY.choices })
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write('data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n', () => res.destroy())
  }
  const { g, notes } = await withProbe(
    t,
    upstream,
    `{ decide(_x, outcome) { note('decide ' + outcome.kind) }, settle(_x, outcome) { note('settle ' + outcome.kind) } }`,
  )
  for (const stream of [false, true]) {
    const key = await g.key('famC')
    await g.call('/v1/chat/completions', { key, body: { ...BODY, stream } })
    await g.settled(key)
  }
  t.same(notes, ['settle relayed', 'settle broken'])
})

t.test('a stage can reply itself; the stages below it do not run', async t => {
  const upstream = await ScriptedUpstream.start(t)
  const { g, notes } = await withProbe(
    t,
    upstream,
    `{ request: () => Reply.json({ hello: 1 }), settle(_x, outcome) { note(outcome.kind) } }`,
  )
  t.same((await g.call('/v1/chat/completions', { key: await g.key('famC'), body: BODY })).json, { hello: 1 })
  t.equal(upstream.requests.length, 0)
  t.same(notes, [], 'a stage that ends the way down has not let the request pass')
})

for (const [name, made] of [
  ['a reply', `Reply.json({ hello: 1 }, {}, 202)`],
  ['the promise of one', `Promise.resolve(Reply.json({ hello: 1 }, {}, 202))`],
] as const) {
  t.test(`a stage can replace the reply of the upstream by ${name}, and nothing is charged`, async t => {
    const upstream = await ScriptedUpstream.start(t)
    upstream.script = ({ json: { stream } }, res) => (stream ? sse(res, STREAM) : json(res, REPLY))
    const { g, notes } = await withProbe(
      t,
      upstream,
      `{ response: () => ${made}, settle(_x, outcome) { note(outcome.kind) } }`,
    )
    const key = await g.key('famC')
    for (const stream of [false, true]) {
      const { status, json } = await g.call('/v1/chat/completions', { key, body: { ...BODY, stream } })
      t.same([status, json], [202, { hello: 1 }])
    }
    t.same(
      (await g.settled(key)).map(({ cost_nano }) => cost_nano),
      ['0', '0'],
    )
    t.same(notes, ['answered', 'answered'])
  })
}

/** An error with a request that refers to itself, as errors of HTTP clients have. */
const CIRCLE = `(() => {
  const request: any = { body: 'a prompt' }
  request.socket = { parser: request }
  return Object.assign(new Error('secret detail'), { request })
})()`

const misbehaviour: { does: string; hooks: string; status: number; logged?: RegExp; head?: string; edit?: Edit }[] = [
  { does: 'throws in request', hooks: `request() { throw new Error('secret detail') }`, status: 500 },
  { does: 'rejects in request', hooks: `async request() { throw new Error('secret detail') }`, status: 500 },
  { does: 'never resolves in request', hooks: `request: () => ${NEVER}`, status: 500, logged: /1000 ms/ },
  {
    does: 'returns a fact that it does not declare',
    hooks: `request: () => ({ surprise: 1 })`,
    status: 500,
    logged: /surprise.* is not in its `gives`/,
  },
  {
    does: 'does not return a fact that it declares',
    head: `gives: ['stored'],`,
    edit: file => file.remove('stored-state'),
    hooks: `request: (() => {}) as any`,
    status: 500,
    logged: /its request hook did not return .*stored/,
  },
  {
    does: 'throws a gateway error in response',
    hooks: `response() { throw new GatewayError('unavailable') }`,
    status: 503,
    logged: /^$/,
  },
  { does: 'throws in response', hooks: `response() { throw new Error('secret detail') }`, status: 500 },
  { does: 'rejects in response', hooks: `async response() { throw new Error('secret detail') }`, status: 500 },
  { does: 'never resolves in response', hooks: `response: () => ${NEVER}`, status: 500, logged: /1000 ms/ },
  {
    does: 'returns something else than a reply in response',
    hooks: `response: (async () => {}) as any`,
    status: 500,
    logged: /its response hook returned something else than a Reply/,
  },
  {
    does: 'replaces the reply by one that cannot be sent',
    hooks: `response: () => Reply.json({}, { 'x-probe': 'secret detail\\n' })`,
    status: 500,
    logged: /x-probe has a character that HTTP cannot carry/,
  },
  {
    does: 'replaces the reply by one without a body',
    hooks: `response: () => Reply.json(undefined)`,
    status: 500,
    logged: /the body of a Reply must be a string or a Buffer/,
  },
  { does: 'throws in rewrite', hooks: `rewrite() { throw new Error('secret detail') }`, status: 500 },
  {
    does: 'has an asynchronous rewrite',
    hooks: `rewrite: (async () => {}) as any`,
    status: 500,
    logged: /its rewrite hook returned no Rewriter/,
  },
  {
    does: 'sets a header with a line break',
    hooks: `response(_x, head) { head.reply['x-probe'] = 'secret detail\\n' }`,
    status: 500,
    logged: /x-probe has a character that HTTP cannot carry/,
  },
  {
    does: 'sets a header with a snowman',
    hooks: `rewrite(_x, head) { head.reply['x-probe'] = 'snow \u2603' }`,
    status: 500,
    logged: /x-probe has a character that HTTP cannot carry/,
  },
  {
    does: 'sets a header without a value',
    hooks: `response(_x, head) { (head.reply as any)['x-probe'] = undefined }`,
    status: 500,
    logged: /the value of the header x-probe is not a string/,
  },
  {
    does: 'sets the length of the reply',
    hooks: `response(_x, head) { head.reply['content-length'] = '5' }`,
    status: 500,
    logged: /the header content-length can only be set by the gateway/,
  },
  {
    does: 'throws an error whose header has a name with a space',
    hooks: `request() { throw new GatewayError('bad_request', { headers: { 'x note': 'a' } }) }`,
    status: 500,
    logged: /x note.* is not a header name/,
  },
  {
    does: 'throws an error with a header that frames the reply',
    hooks: `response() { throw new GatewayError('upstream_rejected', { headers: { trailer: 'x' } }) }`,
    status: 500,
    logged: /the header trailer can only be set by the gateway/,
  },
  {
    does: 'throws an error with a status that HTTP does not know',
    hooks: `response() { throw new GatewayError('upstream_rejected', { status: 7 }) }`,
    status: 500,
    logged: /7 is not the status of an HTTP response/,
  },
  {
    does: 'sets a header whose name has a capital letter',
    hooks: `response(_x, head) { head.reply['X-Probe'] = '5' }`,
    status: 500,
    logged: /X-Probe.* is not a header name in lower case/,
  },
  {
    does: 'gives a body to a reply that cannot have one',
    hooks: `response: () => new Reply(204, 'hello')`,
    status: 500,
    logged: /a reply with status 204 has no body/,
  },
  {
    does: 'throws an error with an unknown code',
    hooks: `request() { throw new GatewayError('toString' as any, { message: 'secret detail' }) }`,
    status: 500,
    logged: /there is no error code .*toString/,
  },
  {
    does: 'throws an error that cannot be written as JSON',
    hooks: `request() { throw new GatewayError('bad_request', { param: 5n as any }) }`,
    status: 500,
    logged: /cannot send an error/,
  },
  {
    does: 'throws an error with a cause that contains itself',
    hooks: `request() { throw new GatewayError('internal', { cause: ${CIRCLE} }) }`,
    status: 500,
    logged: /secret detail/,
  },
  {
    does: 'throws an error that contains itself in settle',
    hooks: `settle() { throw ${CIRCLE} }`,
    status: 200,
    logged: /secret detail/,
  },
  ...[
    `(() => { const inner = new AggregateError([], ''); inner.errors.push(inner); return inner })()`,
    `new (class extends Error { get message(): string { throw this } })()`,
    `new Proxy({}, { get() { throw new Error('no') }, getPrototypeOf() { throw new Error('no') } })`,
    `Object.assign(new Error(), { message: Symbol('x'), code: 5, errors: 5 })`,
    `Object.assign(() => {}, { toString() { throw new Error('no') } })`,
  ].map(thrown => ({
    does: `throws ${thrown} in settle`,
    hooks: `settle() { throw ${thrown} }`,
    status: 200,
    logged: /settle hook failed/,
  })),
  {
    does: 'throws an object that cannot be a string in settle',
    hooks: `settle() { throw Object.create(null) }`,
    status: 200,
    logged: /settle hook failed/,
  },
  { does: 'rejects in event', hooks: `event: (async () => { throw new Error('secret detail') }) as any`, status: 200 },
  {
    does: 'returns a Rewriter with an unknown member',
    hooks: `rewrite: (() => ({ match: ['x'], event: () => undefined })) as any`,
    status: 500,
    logged: /its Rewriter has an unknown member .*match/,
  },
  {
    does: 'has a progress hook whose promise never resolves',
    hooks: `progress: () => ${NEVER}`,
    status: 200,
    logged: /^$|progress hook took more than 1000 ms/,
  },
  {
    does: 'has a decide hook whose promise never resolves',
    hooks: `decide: () => ${NEVER}`,
    status: 200,
    logged: /decide hook took more than 1000 ms/,
  },
  { does: 'throws in decide', hooks: `decide() { throw new Error('secret detail') }`, status: 200 },
  { does: 'throws in event', hooks: `event() { throw new Error('secret detail') }`, status: 200 },
  { does: 'throws in settle', hooks: `settle() { throw new Error('secret detail') }`, status: 200 },
]
for (const { does, hooks, status, head, edit, logged = /secret detail/ } of misbehaviour) {
  t.test(`a plugin that ${does} hurts its own exchange at most, and the log names it`, async t => {
    const upstream = await ScriptedUpstream.start(t)
    upstream.script = ({ json: { stream } }, res) => (stream ? sse(res, STREAM) : json(res, REPLY))
    const out = new PassThrough()
    const log = createLog(new Scrubber(), 'error', out)
    const { g } = await withProbe(t, upstream, `{ ${hooks} }`, head, {
      env: { LOG_LEVEL: 'error' },
      environment: { log },
      ...(edit && { edit }),
    })
    for (const stream of [false, true]) {
      const key = await g.key('famC')
      const answer = await g.call('/v1/chat/completions', { key, body: { ...BODY, stream } })
      t.equal(answer.status, status)
      t.notMatch(answer.text, 'secret detail')
      await g.settledAll([key])
      // A look-up would pass the plugin, too.
      const account = await g.id(key)
      const { reads } = g.gateway.ledger
      const [entry] = await reads.history({ account }, { count: 1 })
      if (status === 200) t.match(entry, { kind: 'settle', notes: { usage: { output: 1 } } }, 'the money is settled')
      else t.match(await reads.balance(account), { settled: 0n, held: 0n })
      await new Promise<void>(resolve => log.flush(() => resolve()))
      const lines = String(out.read() ?? '')
      t.match(lines, logged)
      t.notMatch(lines, 'a prompt')
      if (lines !== '' && !lines.includes('cannot send')) t.match(lines, 'probe')
    }
  })
}

t.test('the last stage that a request passed settles first', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-plugins-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const settled: string[] = []
  ;(globalThis as any).settled = settled
  for (const name of ['first', 'second'])
    writeFileSync(
      join(folder, `${name}.ts`),
      `import { definePlugin } from 'tollgate/plugin'
       const settle = () => void (globalThis as any).settled.push('${name}')
       export default definePlugin({ name: '${name}', summary: 'Tests.', on: 'inference', setup: () => ({ settle }) })`,
    )
  const { g } = await scene(t, file =>
    file.insertBefore('router', 'first').insertBefore('router', 'second').set('plugins', [folder]),
  )
  const key = await g.key('famC')
  await g.call('/v1/chat/completions', { key, body: BODY })
  await g.settled(key)
  t.same(settled, ['second', 'first'])
})

t.test('the time that a client takes to send its body is not the time of a stage', async t => {
  const { g } = await scene(t, file => file.set('limits.stage', '1s'), {
    script: (_received, res) => json(res, REPLY),
  })
  const body = JSON.stringify(BODY)
  const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${await g.key('famC')}\r\n`
  const client = new RawClient(g.gateway.port, `${head}content-length: ${body.length}\r\n\r\n`, body.slice(0, 9))
  await sleep(2500)
  client.send(body.slice(9))
  await until(() => client.answer.includes('\r\n\r\n'))
  t.match(client.answer, /^HTTP\/1\.1 200 /)
  client.socket.destroy()
})

t.test('a plugin may read the conversation of a stream until the end', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => sse(res, STREAM)
  const { g, notes } = await withProbe(t, upstream, '{ settle: async x => note((await x.prompt()).join()) }')
  const content = 'word '.repeat(20_000)
  const body = { ...BODY, messages: [{ role: 'user', content }], stream: true }
  const key = await g.key('famC')
  t.equal((await g.call('/v1/chat/completions', { key, body })).status, 200)
  await g.settled(key)
  t.strictSame(notes, [content])
})

t.test('a Rewriter that fails in a stream ends the stream with an internal error, and the log names it', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => sse(res, STREAM)
  for (const [event, logged] of [
    ['() => { throw new Error("secret detail") }', 'stage probe failed: secret detail'],
    ['async () => []', 'stage probe failed: its Rewriter did not return a list of events'],
    ['() => [{ type: "a\\nb: c", data: "x" }]', 'stage probe failed: its Rewriter did not return a list of events'],
    ['() => [{ type: "", data: {} }]', 'stage probe failed: its Rewriter did not return a list of events'],
  ] as const) {
    const out = new PassThrough()
    const log = createLog(new Scrubber(), 'error', out)
    const more = { env: { LOG_LEVEL: 'error' }, environment: { log } }
    const { g } = await withProbe(t, upstream, `{ rewrite: () => ({ event: (${event}) as any }) }`, '', more)
    const key = await g.key('famC')
    const { status, text } = await g.call('/v1/chat/completions', { key, body: { ...BODY, stream: true } })
    t.match([status, text], [200, /"code":"internal"/])
    t.notMatch(text, 'secret detail')
    matchAll(t, await g.settled(key), [{ status: 'broken', cost_nano: '0' }])
    await new Promise<void>(resolve => log.flush(() => resolve()))
    t.match(String(out.read()), logged)
  }
})

t.test('a GatewayError of a Rewriter ends the stream in its own words', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => sse(res, STREAM)
  const event = `() => { throw new GatewayError('invalid_body', { message: 'blocked by policy' }) }`
  const { g } = await withProbe(t, upstream, `{ rewrite: () => ({ event: ${event} }) }`)
  const { text } = await g.call('/v1/chat/completions', { key: await g.key('famC'), body: { ...BODY, stream: true } })
  t.match(text, 'blocked by policy')
})

t.test('a Rewriter may be an instance of a class', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => sse(res, STREAM)
  const hooks = `{ rewrite: () => new class {
    seen = 0
    get matches() { return ['"content"'] }
    event() { this.seen++; return this.seen === 1 ? [{ type: '', data: '{"choices":[]}' }] : undefined }
  }() }`
  const { g } = await withProbe(t, upstream, hooks)
  const { text } = await g.call('/v1/chat/completions', { key: await g.key('famC'), body: { ...BODY, stream: true } })
  t.notMatch(text, '"content"')
  t.match(text, '[DONE]')
})

t.test('a reply that a stage promised is free, even if its client does not wait for it', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = ({ json: { stream } }, res) => (stream ? sse(res, STREAM) : json(res, REPLY))
  const { g, notes } = await withProbe(
    t,
    upstream,
    `{ response: x => {
      note('waits')
      return new Promise(resolve => x.signal.addEventListener('abort', () => resolve(Reply.json({}))))
    } }`,
    '',
    { edit: file => file.set('upstreams.famC.onDisconnect', 'cancel') },
  )
  for (const stream of [false, true]) {
    const key = await g.key('famC')
    const leave = new AbortController()
    const call = g.call('/v1/chat/completions', { key, body: { ...BODY, stream }, signal: leave.signal })
    await until(() => notes.splice(0).length > 0)
    leave.abort()
    await t.rejects(call)
    await g.settled(key)
    t.match((await g.balance(key)).exact, { used: '0', held: '0' })
  }
})

for (const [does, hook, status, asked] of [
  ['accepts every account', `attempt: () => {}`, 200, 2],
  ['refuses the second account', `attempt: (() => { let times = 0; return () => ++times > 1 })()`, 200, 2],
  ['refuses every account', `attempt: () => false`, 502, 1],
  ['throws', `attempt() { throw new Error('secret detail') }`, 500, 1],
  ['never resolves', `attempt: () => ${NEVER}`, 500, 1],
] as const)
  t.test(`a stage that ${does} when a request goes to another account decides whether it is asked`, async t => {
    const upstream = await ScriptedUpstream.start(t)
    const keys: string[] = []
    upstream.script = ({ headers }, res) => {
      keys.push(String(headers['authorization']))
      return keys.length === 1 ? json(res, {}, 500) : json(res, REPLY)
    }
    const accounts = ['one', 'two', 'three'].map(name => ({ name, key: `key-${name}` }))
    const { g } = await withProbe(t, upstream, `{ ${hook} }`, '', {
      edit: file => file.set('upstreams.famC.accounts', accounts),
    })
    const key = await g.key('famC')
    const answer = await g.call('/v1/chat/completions', { key, body: BODY })
    t.equal(answer.status, status)
    t.notMatch(answer.text, 'secret detail')
    t.equal(keys.length, asked)
    t.equal(new Set(keys).size, asked, 'each account is asked once')
    await g.settled(key)
  })

t.test('a stage that never closes does not keep the gateway from stopping', async t => {
  const { g } = await withProbe(t, await ScriptedUpstream.start(t), '{ close: () => new Promise(() => {}) }')
  await g.gateway.stop()
  t.equal(g.gateway.running, 0)
})

t.test('a plugin that throws when it is set up leaves the old configuration in force', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => json(res, REPLY)
  const { g } = await withProbe(
    t,
    upstream,
    `(() => { if ((globalThis as any).sulk) throw new Error('no'); return {} })()`,
  )
  ;(globalThis as any).sulk = true
  t.equal(await g.gateway.reload(), false)
  t.equal((await g.call('/v1/chat/completions', { key: await g.key('famC'), body: BODY })).status, 200)
})

t.test('reloads under load lose no request and mix no prices', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => json(res, REPLY)
  // All may run at once, and none waits for what others hold.
  const edit: Edit = file => file.set('keyTypes.famC.limits.concurrency', 100)
  const g = await startGateway(t, { upstream: upstream.url, edit })
  const key = await g.key('famC', 1000n)
  let running = true
  const reloads = (async () => {
    for (let times = 0; running && times < 50; times++) {
      t.ok(await g.gateway.reload())
      await new Promise(resolve => setImmediate(resolve))
    }
  })()
  const answers = await Promise.all(
    Array.from({ length: 100 }, () => g.call('/v1/chat/completions', { key, body: BODY })),
  )
  running = false
  await reloads
  t.same(
    answers.filter(({ status }) => status !== 200).map(({ status, text }) => `${status} ${text}`),
    [],
  )
  const entries = await g.settled(key)
  t.ok(entries.every(({ cost_nano }) => cost_nano === '18000'))
  t.equal((await g.balance(key)).exact.used, String(100 * 18_000))
})

t.test('a stage can be driven without a socket', async t => {
  const missing = await drive(authPlugin, {})
  t.match(missing.thrown, { code: 'missing_key' })
  const famC = { name: 'famC', formats: [], models: new Map(), default: { id: 'x' } }
  const config = { keyTypes: new Map([['famC', famC]]) }
  const facts = { key: { type: 'famC' }, body: bodyOf(Buffer.from('{"model":"a"}')) }
  const gate = await drive(gatePlugin, { host: { config: config as never }, facts: facts as never })
  t.ok(gate.thrown instanceof GatewayError)
  t.match(gate.thrown, { code: 'format_not_allowed', status: 404 })
})

/** Starts a gateway with a plugin `probe` of this declaration at the top of the chain. */
async function withPlugin(t: Test, declared: string, more: Edit = file => file): Promise<TestGateway> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-plugins-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  writeFileSync(
    join(folder, 'probe.ts'),
    `import { Reply } from 'tollgate/plugin'
     ${defining(declared)}
     void Reply
     export default definePlugin({ name: 'probe', summary: 'Tests.', ${declared} })`,
  )
  return startGateway(t, {
    edit: file => more(file.insertBefore('access-log', 'probe').set('plugins', [folder])),
  })
}

t.test('a stage that takes too long to watch what is recorded does not stop recording', async t => {
  const g = await withPlugin(t, "on: 'all', setup: () => ({ recorded: () => new Promise<void>(() => {}) })", file =>
    file.set('limits.stage', '200ms'),
  )
  const key = await g.key('famC')
  await g.call('/v1/chat/completions', {
    key,
    body: { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 20 },
  })
  await g.settled(key)
  await g.gateway.ledger.background.archiveAll()
  t.equal((await g.gateway.records.history.entries({ account: await g.id(key) }, { count: 5 })).length, 1)
})

t.test('an unknown hook and an unknown scope are refused with a suggestion', async t => {
  await t.rejects(
    withPlugin(t, "on: 'all', setup: () => ({ request: 5 as any })"),
    /stage probe cannot be set up: its "request" is not a function/,
  )
  await t.rejects(withPlugin(t, "on: 'all', requires: ['key'], setup: () => ({})"), {
    message: /has an unknown member \\"requires\\"; known: name, summary/,
  })
  await t.rejects(withPlugin(t, "on: 'all', options: { type: 'objekt' } as any, setup: () => ({})"), {
    message: /the options of plugin \\"probe\\" are not a JSON Schema/,
  })
  await t.rejects(
    withPlugin(t, "on: 'all', setup: () => ({ requst() {} })"),
    /stage probe cannot be set up: there is no hook "requst"; did you mean request\?/,
  )
  await t.rejects(withPlugin(t, "on: 'inferense', setup: () => ({})"), {
    message: /has an unknown scope \\"inferense\\"; did you mean inference\?/,
  })
  await t.rejects(withPlugin(t, "on: ['all', 'FETCH /x'], setup: () => ({})"), {
    message: /has an unknown scope \\"FETCH \/x\\"; use all, inference, counting, or an endpoint such as GET \/path/,
  })
})

t.test('a stage can serve endpoints with PUT and OPTIONS', async t => {
  const g = await withPlugin(
    t,
    "on: ['PUT /note', 'OPTIONS /note'], setup: () => ({ request: x => Reply.json({ method: x.method }) })",
  )
  for (const method of ['PUT', 'OPTIONS']) t.match(await g.call('/note', { method }), { status: 200, json: { method } })
  t.equal((await g.call('/note', { method: 'GET' })).status, 405)
})
