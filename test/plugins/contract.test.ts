/** The contract with authors at run time: misspelt members, the prompt, the end of a configuration. */
import { inspect } from 'node:util'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { definePlugin, type Exchange, type Host, type Plugin } from 'tollgate/plugin'
import { bodyOf, drive } from 'tollgate/testing'
import { startGateway, type TestGateway, until } from '../gateway.ts'
import { CHAT, MESSAGES, RESPONSES } from './facts.ts'

/** Starts a gateway with a plugin `probe` above `model-gate`, whose setup is this text. Its notes are in `seen`. */
async function probing(
  t: Test,
  setup: string,
  from = "import { definePlugin } from 'tollgate/plugin'",
  others: Readonly<Record<string, string>> = {},
  chained: readonly string[] = [],
): Promise<TestGateway> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-plugins-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  ;(globalThis as any).seen = []
  writeFileSync(
    join(folder, 'probe.js'),
    `${from}
     const seen = globalThis.seen
     export default definePlugin({ name: 'probe', summary: 'Tests.', on: 'inference', needs: ['body'], setup: ${setup} })`,
  )
  for (const [name, text] of Object.entries(others)) writeFileSync(join(folder, `${name}.js`), `${from}\n${text}`)
  return startGateway(t, {
    edit: file => file.insertBefore('model-gate', 'probe', ...chained).set('plugins', [folder]),
  })
}

const seen = (): unknown[] => (globalThis as any).seen
const BODY = { model: 'acme/famB-4.5', messages: [{ role: 'user', content: 'Hi' }] }

t.test('a misspelt member of x or x.body is an error with a suggestion, and the request is not served', async t => {
  const g = await probing(
    t,
    '() => ({ request(x) { try { x.hedaers } catch (e) { seen.push(e.message) } x.body.json } })',
  )
  const { status } = await g.call(CHAT, { key: await g.key('famB'), body: BODY })
  t.equal(status, 500)
  t.match(seen(), [/^x has no member "hedaers"; did you mean headers\?$/])
  const { thrown } = await drive(
    definePlugin({
      name: 'guess',
      summary: 'Guesses.',
      on: 'inference',
      needs: ['body'],
      setup: () => ({ request: x => void (x.body as any).json }),
    }),
    { facts: { body: bodyOf(Buffer.from('{}')) } },
  )
  t.match(String(thrown), /x.body has no member "json"; known: received, names, has, get, set, remove/)
})

t.test('a misspelt member of host is an error with a suggestion, and the file is not in force', async t => {
  await t.rejects(
    probing(t, '(_options, host) => ({ request: host.ledger })'),
    /host has no member "ledger"; known: config/,
  )
  await t.rejects(
    probing(t, '(_options, host) => ({ request: host.nwo })'),
    /host has no member "nwo"; did you mean now\?/,
  )
})

t.test('reading symbols, then, toJSON and facts that no stage has given is no error', async t => {
  const looks = `x => { seen.push(String(x[Symbol.iterator]), x.then, x.toJSON, x.tally, 'nothing' in x) }`
  const g = await probing(t, `() => ({ request: ${looks} })`)
  t.equal((await g.call(CHAT, { key: await g.key('famB'), body: BODY })).status, 200)
  t.strictSame(seen(), ['undefined', undefined, undefined, undefined, false])
})

t.test('a fact of a plugin that is not in the chain is undefined', async t => {
  const other = `export default definePlugin({ name: 'hue', summary: 'Tests.', on: 'inference', gives: ['hue'], setup: () => ({}) })`
  const g = await probing(t, '() => ({ settle: x => void seen.push(x.hue) })', undefined, { hue: other })
  await g.call(CHAT, { key: await g.key('famB'), body: BODY })
  await until(() => seen().length > 0)
  t.strictSame(seen(), [undefined])
})

t.test('assigning a member that x, x.body or host does not have is an error', async t => {
  const assigns = `x => {
    for (const [object, name] of [[x, 'mine'], [x.body, 'model'], [host, 'mine']])
      try { object[name] = 5 } catch (e) { seen.push(e.message) }
  }`
  const g = await probing(t, `(_options, host) => ({ request: ${assigns} })`)
  t.equal((await g.call(CHAT, { key: await g.key('famB'), body: BODY })).status, 200)
  t.match(seen(), [
    'x has no member "mine" to assign; keep your own state in a WeakMap or a fact',
    'x.body has no member "model" to assign',
    'host has no member "mine" to assign',
  ])
})

t.test('drive refuses what the gateway would not load: wrong options, an unknown hook, a missing fact', async t => {
  const plugin = (setup: object, needs: readonly 'key'[] = []): Plugin =>
    definePlugin({
      name: 'limit',
      summary: 'Limits.',
      on: 'inference',
      needs,
      options: {
        type: 'object',
        additionalProperties: false,
        properties: { most: { type: 'integer', minimum: 1, description: 'Most.' } },
      },
      setup: () => setup,
    })
  await t.rejects(drive(plugin({}), { options: { mots: 1 } }), {
    message: 'limit.mots: there is no setting "mots" here; did you mean most?',
  })
  await t.rejects(drive(plugin({}), { options: { most: 'x' } }), { message: /^limit\.most: expected / })
  await t.rejects(drive(plugin({ reqest: () => {} }), {}), {
    message: 'there is no hook "reqest"; did you mean request?',
  })
  await t.rejects(
    drive(plugin({ request: () => ({ wrong: 1 }) }), {}).then(({ thrown }) => Promise.reject(thrown)),
    {
      message: '"wrong" is not in its `gives`; to answer, return a Reply',
    },
  )
  await t.rejects(drive(plugin({}, ['key']), {}), { message: '"limit" needs "key"; give it in `facts`' })
})

t.test('a module of Tollgate that does not exist is an error with the names of those that do', async t => {
  await t.rejects(
    probing(t, '() => ({})', "import { definePlugin } from 'tollgate/plugins'"),
    /there is no module .*tollgate\/plugins.*; did you mean tollgate\/plugin\?/,
  )
  await t.rejects(
    probing(t, '() => ({})', "import { definePlugin } from 'tollgate/metering'"),
    /there is no module .*tollgate\/metering.*; did you mean tollgate\/plugin\/metering\?/,
  )
})

t.test('a plugin of the built-in kind gets the whole host', async t => {
  const from = "import { defineBuiltIn as definePlugin } from 'tollgate/plugin/operator'"
  const g = await probing(t, '(_options, host) => ({ request() { seen.push(typeof host.ledger) } })', from)
  await g.call(CHAT, { key: await g.key('famB'), body: BODY })
  t.strictSame(seen(), ['object'])
})

t.test(
  'host.retired aborts while exchanges of the old configuration still run; balance and usage are those of the key',
  async t => {
    const g = await probing(
      t,
      `(_options, host) => {
      host.retired.addEventListener('abort', () => seen.push('retired'))
      return {
        async settle(x) { seen.push(x.key.id, (await host.balance(x.key)).granted, (await host.usage(x.key)).total.requests >= 0) },
        close() { seen.push('closed') },
      }
    }`,
    )
    const key = await g.key('famB', 5n)
    await g.call(CHAT, { key, body: BODY })
    await until(() => seen().length === 3)
    await g.gateway.reload()
    t.match(seen(), [await g.id(key), 5_000_000_000n, true])
    await g.gateway.stop()
    t.strictSame(
      seen()
        .slice(3)
        .filter(word => word === 'retired').length > 0,
      true,
    )
  },
)

t.test('a listener of host.retired that fails does not stop a reload, and the gateway serves on', async t => {
  const g = await probing(
    t,
    `(_options, host) => {
      host.retired.addEventListener('abort', () => { throw new Error('a listener that throws') })
      host.retired.onabort = async () => { throw new Error('a listener that rejects') }
      return { close() { seen.push('closed') } }
    }`,
  )
  await g.gateway.reload()
  await until(() => seen().includes('closed'))
  t.equal(
    await g
      .key('famB', 5n)
      .then(key => g.call(CHAT, { key, body: BODY }))
      .then(({ status }) => status),
    200,
  )
})

t.test('x, x.body and host can be printed', async t => {
  ;(globalThis as any).inspect = inspect
  const g = await probing(
    t,
    '(_options, host) => ({ request: x => void seen.push(...[x, x.body, host].map(inspect)) })',
  )
  t.equal((await g.call(CHAT, { key: await g.key('famB'), body: BODY })).status, 200)
  t.match(seen(), [/HttpExchange/, /Body/, /newId/])
})

t.test('a callback of whenClosed that throws does not keep the old configuration from draining', async t => {
  const g = await probing(
    t,
    `() => ({
      request: x => void x.whenClosed(() => { seen.push('called'); throw new Error('a callback that throws') }),
      close() { seen.push('closed') },
    })`,
  )
  t.equal((await g.call(CHAT, { key: await g.key('famB'), body: BODY })).status, 200)
  await until(() => seen().includes('called'))
  await g.gateway.reload()
  await until(() => seen().includes('closed'))
})

t.test('a fact cannot have the name of another member of an exchange', async t => {
  for (const name of ['gone', 'owner', 'limits']) {
    const gives = `export default definePlugin({ name: 'owner', summary: 'Tests.', on: 'inference', gives: ['${name}'],
      setup: () => ({ request: () => ({ ${name}: 'mine' }) }) })`
    const g = await probing(t, '() => ({})', undefined, { owner: gives }, ['owner'])
    t.equal((await g.call(CHAT, { key: await g.key('famB'), body: BODY })).status, 500, name)
  }
})

/** Returns the prompt of a body, as a plugin sees it. */
async function promptOf(path: string, body: object): Promise<readonly string[]> {
  const { x } = await drive(
    definePlugin({ name: 'reads', summary: 'Reads.', on: 'inference', setup: (_options: object, _host: Host) => ({}) }),
    { exchange: { path }, facts: { body: bodyOf(Buffer.from(JSON.stringify(body))) } },
  )
  return (x as Exchange).prompt()
}

t.test('x.prompt() gives the texts that the model reads, in each format, and neither ids nor media', async t => {
  t.strictSame(
    await promptOf(CHAT, {
      model: 'm',
      messages: [
        { role: 'system', content: 'be kind' },
        {
          role: 'user',
          name: 'Ann',
          content: [
            { type: 'text', text: 'look' },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
            { type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } },
          ],
        },
        {
          role: 'assistant',
          tool_calls: [{ id: 'c1', type: 'function', function: { name: 'find', arguments: '{"a":1}' } }],
        },
        { role: 'tool', tool_call_id: 'c1', content: 'found' },
      ],
    }),
    ['be kind', 'Ann', 'look', 'find', '{"a":1}', 'found'],
  )
  t.strictSame(
    await promptOf(RESPONSES, {
      instructions: 'be kind',
      input: [
        { role: 'user', content: [{ type: 'input_text', text: 'look' }] },
        { type: 'function_call', call_id: 'c1', name: 'find', arguments: '{}' },
        { type: 'function_call_output', call_id: 'c1', output: 'found' },
        { type: 'reasoning', id: 'r1', encrypted_content: 'AAAA', summary: [{ type: 'summary_text', text: 'hm' }] },
      ],
    }),
    ['be kind', 'look', 'find', '{}', 'found', 'hm'],
  )
  t.strictSame(await promptOf(RESPONSES, { input: 'only a text' }), ['only a text'])
  t.strictSame(
    await promptOf(MESSAGES, {
      system: [{ type: 'text', text: 'be kind', cache_control: { type: 'ephemeral' } }],
      messages: [
        {
          role: 'user',
          content: [{ type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'a page' } }],
        },
        {
          role: 'user',
          content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } }],
        },
        {
          role: 'assistant',
          content: [{ type: 'tool_use', id: 't1', name: 'find', input: { url: 'https://a', type: 'b' } }],
        },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't1', content: 'found' }] },
      ],
    }),
    ['be kind', 'a page', 'find', 'https://a', 'b', 'found'],
  )
})

t.test('x.prompt() without a body is an error that names the fact', async t => {
  const { x } = await drive(definePlugin({ name: 'reads', summary: 'Reads.', on: 'all', setup: () => ({}) }), {})
  await t.rejects(x.prompt(), { message: 'x.prompt() needs the fact "body"' })
})
