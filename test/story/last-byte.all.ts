/** What a customer owes when the gateway is killed at the moment in which he has his reply. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import http, { type ServerResponse } from 'node:http'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { expireHolds, holdsOf, until } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import type { Running } from '../process.ts'
import type { RealRedis } from '../redis.ts'
import { json, ScriptedUpstream } from '../upstream.ts'
import { withVictims } from '../victims.ts'
import { DONE } from '../stream-events.ts'

const skip = findServer(process.env) === undefined && 'no redis-server on PATH'
const USAGE = { prompt_tokens: 100, completion_tokens: 10 }
/** 100 tokens of input and 10 of output, in nano-credits. */
const OWED = 450_000n

const event = (data: object): string => `data: ${JSON.stringify(data)}\n\n`
const CHAT = event({ choices: [{ index: 0, delta: { content: 'hi' }, finish_reason: null }] })
const CHAT_END = `${event({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] })}${event({ choices: [], usage: USAGE })}data: [DONE]\n\n`
const MESSAGE = `event: message_start
data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":100,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}

`
const MESSAGE_END = `event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":10}}

event: message_stop
data: {"type":"message_stop"}

`
const RESPONSE = `event: response.created
data: {"type":"response.created","response":{"id":"r","object":"response","status":"in_progress","output":[]}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","item_id":"i","output_index":0,"content_index":0,"delta":"hi"}

`
const RESPONSE_END = `event: response.completed
data: {"type":"response.completed","response":{"id":"r","object":"response","status":"completed","output":[{"type":"message","id":"i","role":"assistant","status":"completed","content":[{"type":"output_text","text":"hi","annotations":[]}]}],"usage":{"input_tokens":100,"output_tokens":10,"total_tokens":110}}}

`

/** Instead of the last text: the end of the body. */
const END = ''

interface Kind {
  readonly name: string
  readonly type: 'famA' | 'famC'
  readonly path: string
  readonly stream: boolean
  /** What the upstream sends first, and what it sends at the end. */
  readonly begins: string
  readonly ends: string
  /** What the client sees last. */
  readonly last: string
}

const kind = (
  name: string,
  [type, path]: readonly ['famA' | 'famC', string],
  [begins, ends]: readonly [string, string],
  last: string,
): Kind => ({ name, type, path, begins, ends, last, stream: last !== '}' })

const KINDS: readonly Kind[] = [
  kind('a JSON reply', ['famC', '/v1/chat/completions'], ['', ''], '}'),
  kind('a chat stream', ['famC', '/v1/chat/completions'], [CHAT, CHAT_END], DONE),
  kind('a chat stream without [DONE]', ['famC', '/v1/chat/completions'], [CHAT, CHAT_END.replace(DONE, '')], END),
  kind('a chat stream that arrives whole', ['famC', '/v1/chat/completions'], ['', CHAT + CHAT_END], DONE),
  kind('a stream of messages', ['famA', '/v1/messages'], [MESSAGE, MESSAGE_END], 'data: {"type":"message_stop"}\n\n'),
  kind('a stream of responses', ['famC', '/v1/responses'], [RESPONSE, RESPONSE_END], '}}\n\n'),
  kind('a translated stream', ['famC', '/v1/messages'], [RESPONSE, RESPONSE_END], 'data: {"type":"message_stop"}\n\n'),
]
const MODELS = { famA: 'acme/famA-medium-5', famC: 'acme/famC-5.5' }

/** A gateway that stays, beside those that a test kills, and what the provider has been asked. */
async function open(t: Test, edit?: Edit) {
  const upstream = await ScriptedUpstream.start(t)
  const replies: ServerResponse[] = []
  upstream.script = (_received, res) => void replies.push(res)
  return { ...(await withVictims(t, upstream, edit)), replies }
}

/** The same, with a gateway to kill, and a JSON request of which the provider has not answered anything. */
async function openWithRequest(t: Test, edit?: Edit) {
  const opened = await open(t, edit)
  const victim = await opened.place.startProcess(t)
  const key = await opened.survivor.key('famC')
  const kind = KINDS[0] as Kind
  const got = await ask(victim, key, kind)
  await until(() => opened.replies.length > 0)
  /** Lets the provider answer. Resolves when the client has the last byte. */
  const answer = async (): Promise<void> => {
    finish(opened.replies[0] as ServerResponse, kind)
    await got.whole.promise
  }
  return { ...opened, victim, key, answer }
}

/** Requests a reply. @returns what the client has got so far, and a promise that resolves with its last byte */
async function ask(victim: Running, key: string, { type, path, stream, last }: Kind) {
  const messages = [{ role: 'user', content: 'hi' }]
  const body = {
    model: MODELS[type],
    max_tokens: 100,
    stream,
    ...(path.endsWith('responses') ? { input: 'hi' } : { messages }),
  }
  const request = http.request(victim.url + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
  })
  request.on('error', () => {})
  request.end(JSON.stringify(body))
  const got = { text: '', whole: Promise.withResolvers<void>() }
  request.on('response', response => {
    response.on('error', () => {})
    response.on('data', (chunk: Buffer) => {
      got.text += String(chunk)
      if (last !== END && got.text.endsWith(last)) got.whole.resolve()
    })
    response.on('end', got.whole.resolve)
  })
  return got
}

function finish(res: ServerResponse, { stream, ends }: Kind): void {
  if (!stream) return json(res, { choices: [{ message: { content: 'hi' }, finish_reason: 'stop' }], usage: USAGE })
  if (!res.headersSent) res.writeHead(200, { 'content-type': 'text/event-stream' })
  res.end(ends)
}

t.test('a gateway that is killed when its client has the last byte has charged the reply', { skip }, async t => {
  const { redis, replies, survivor, place } = await open(t, file =>
    // However slow the machine is, the store is not taken for dead: that would leave the charge on disk.
    file.set('store.commandTimeout', '30s'),
  )
  const { ledger } = survivor.gateway
  const victims = await Promise.all(KINDS.map(() => place.startProcess(t)))
  for (const [index, kind] of KINDS.entries()) {
    const victim = victims[index] as Running
    const key = await survivor.key(kind.type)
    const got = await ask(victim, key, kind)
    await until(() => replies.length > index)
    const res = replies[index] as ServerResponse
    if (kind.begins !== '') {
      res.writeHead(200, { 'content-type': 'text/event-stream' }).write(kind.begins)
      await until(() => got.text.includes('hi'))
    }
    // The store answers nothing any more, and the client has its reply all the same.
    redis.signal('SIGSTOP')
    finish(res, kind)
    await got.whole.promise
    victim.child.kill('SIGKILL')
    await victim.closed
    redis.signal('SIGCONT')
    const id = await survivor.id(key)
    await until(async () => (await ledger.reads.balance(id)).held === 0n)
    const [entry] = await survivor.settled(key)
    t.match(entry, { type: 'settle', cost_nano: String(OWED), status: 'ok' }, kind.name)
  }
})

t.test('a settlement that the store does not answer at once is on disk as well', { skip }, async t => {
  // The store is given up only much later.
  const edit: Edit = file => file.set('store.commandTimeout', '10m')
  const { redis, survivor, place, victim, key, answer } = await openWithRequest(t, edit)
  redis.signal('SIGSTOP')
  await answer()
  const outbox = join(dirname(survivor.file), 'data', 'outbox')
  const onDisk = (): string =>
    (existsSync(outbox) ? readdirSync(outbox) : [])
      .filter(name => name.endsWith('.jsonl'))
      .map(name => readFileSync(join(outbox, name), 'utf8'))
      .join('')
  await until(() => onDisk().includes('"charge":"450000"'))
  victim.child.kill('SIGKILL')
  await victim.closed
  // What it had not read is lost with it.
  await redis.kill()
  await redis.run()
  await place.startProcess(t)
  const [entry] = await survivor.settled(key)
  t.match(entry, { cost_nano: String(OWED), status: 'ok' })
})

for (const [how, silence] of [
  ['is away', (redis: RealRedis) => redis.kill()],
  ['has answered nothing for a while', (redis: RealRedis) => redis.signal('SIGSTOP')],
] as const)
  t.test(`while the store ${how}, a client gets the last byte when the charge is on disk`, { skip }, async t => {
    const { redis, survivor, place, victim, key, answer } = await openWithRequest(t)
    await silence(redis)
    await victim.saw(/did not answer in time|Connection is closed|ECONNREFUSED|isn't writeable/)
    await answer()
    victim.child.kill('SIGKILL')
    await victim.closed
    if (how === 'is away') await redis.run()
    else redis.signal('SIGCONT')
    await place.startProcess(t)
    const [entry] = await survivor.settled(key)
    t.match(entry, { cost_nano: String(OWED), status: 'ok' })
  })

t.test(
  'a request that is killed with its gateway before its reply costs nothing, and a stream that has begun its input',
  { skip },
  async t => {
    const { replies, survivor, place } = await open(t)
    const { ledger } = survivor.gateway
    const victim = await place.startProcess(t)
    const [json, chat] = KINDS as readonly [Kind, Kind]
    const waiting = await survivor.key('famC')
    const streaming = await survivor.key('famC')
    await ask(victim, waiting, json)
    await until(() => replies.length === 1)
    const got = await ask(victim, streaming, chat)
    await until(() => replies.length === 2)
    const opening = event({ choices: [{ index: 0, delta: { role: 'assistant', content: '' }, finish_reason: null }] })
    replies[1]?.writeHead(200, { 'content-type': 'text/event-stream' }).write(opening)
    await until(() => got.text.includes('assistant'))
    const floor = async (key: string): Promise<string | undefined> =>
      [...(await holdsOf(ledger, await survivor.id(key))).values()][0]?.split(' ')[1]
    await until(async () => Number(await floor(streaming)) > 0)
    victim.child.kill('SIGKILL')
    await victim.closed
    for (const key of [waiting, streaming]) await expireHolds(ledger, await survivor.id(key))
    await ledger.background.reap()
    t.match(await survivor.settled(waiting), [{ type: 'reaped', cost_nano: '0' }])
    const [entry] = await survivor.settled(streaming)
    t.equal(entry?.['type'], 'reaped')
    t.ok(Number(entry?.['cost_nano']) > 0)
  },
)
