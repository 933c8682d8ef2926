import t, { type Test } from 'tap'
import { ENDS } from '../../core/formats/ends.ts'
import type { EndMeaning, FormatName } from '../../core/formats/terms.ts'
import {
  type Answer,
  type Cell,
  chunk,
  event,
  type Kind,
  REPLIES,
  response,
  STREAMS,
  testKinds,
} from '../reply-kinds.ts'
import { keepsTable } from '../tables.ts'
import { DONE } from '../stream-events.ts'
import { startGateway } from '../gateway.ts'
import { json, ScriptedUpstream } from '../upstream.ts'

/** Every word by which a reply ends, from an upstream of each format to a client of each format. */

const OWN = 'out_of_memory'
const OWN_REGULAR = 'done_well'
const UNKNOWN = 'gone_fishing'

/** A reply of an upstream that ends with a word. */
function endsWith(word: string): Kind['answer'] {
  const ended = { ...response, status: 'incomplete', incomplete_details: { reason: word } }
  const replies: Readonly<Record<FormatName, object>> = {
    'chat-completions': {
      ...REPLIES['chat-completions'],
      choices: [{ index: 0, message: { role: 'assistant', content: 'Hi there' }, finish_reason: word }],
    },
    responses: ended,
    messages: { ...REPLIES.messages, stop_reason: word },
  }
  const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 }
  const streams: Readonly<Record<FormatName, readonly string[]>> = {
    'chat-completions': [
      STREAMS['chat-completions'][0] ?? '',
      chunk({ choices: [{ index: 0, delta: {}, finish_reason: word }] }),
      chunk({ choices: [], usage }),
      DONE,
    ],
    responses: [
      ...STREAMS.responses.slice(0, -1),
      event('response.incomplete', { sequence_number: 4, response: ended }),
    ],
    messages: [
      ...STREAMS.messages.slice(0, 4),
      event('message_delta', { delta: { stop_reason: word, stop_sequence: null }, usage: { output_tokens: 5 } }),
      event('message_stop', {}),
    ],
  }
  return (res, { upstream, stream }) =>
    stream
      ? void res.writeHead(200, { 'content-type': 'text/event-stream' }).end(streams[upstream].join(''))
      : json(res, replies[upstream])
}

/** The words of each format for a meaning, in JSON and in streams. */
const WORDS: Readonly<Record<Exclude<EndMeaning, 'failed'>, Readonly<Record<FormatName, RegExp>>>> = {
  stop: words('stop', 'completed', 'end_turn'),
  // Without a call, the reply has ended regularly.
  calls: words('stop', 'completed', 'end_turn'),
  length: words('length', 'max_output_tokens', 'max_tokens'),
  context: words('length', 'max_output_tokens', 'model_context_window_exceeded'),
  filtered: words('content_filter', 'content_filter', 'refusal'),
  paused: words('stop', 'completed', 'pause_turn'),
  sequence: words('stop', 'completed', 'stop_sequence'),
}

function words(chat: string, responses: string, messages: string): Readonly<Record<FormatName, RegExp>> {
  const of = (name: string, word: string): RegExp => new RegExp(`"${name}":\\s*"${word}"`)
  return {
    'chat-completions': of('finish_reason', chat),
    responses: of(responses === 'completed' ? 'status' : 'reason', responses),
    messages: of('stop_reason', messages),
  }
}

function hasFailed(t: Test, answer: Answer, { client, stream }: Cell): void {
  // The first event of a messages stream is the provider's.
  const said = answer.text.replace(/^event: message_start\n.*\n/, '')
  t.notMatch(said, /"finish_reason":\s*"|"stop_reason":\s*"|response\.(?:completed|incomplete)|message_stop/)
  if (!stream) return void t.ok(answer.status >= 500, answer.text)
  t.match(answer.text, /Hi there/, 'what was said is there')
  const ends: Readonly<Record<FormatName, RegExp>> = {
    'chat-completions': /data: \{"error":\{/,
    responses: /event: (?:error|response\.failed)\n/,
    messages: /event: error\n/,
  }
  t.match(answer.text, ends[client])
}

function isKept(t: Test, answer: Answer, word: string): void {
  t.equal(answer.status, 200)
  t.match(answer.text, new RegExp(`"${word}"`), 'the word passes untouched')
  t.notMatch(answer.text, /"error":\{/)
}

const known = (meaning: EndMeaning, word: string): Kind => ({
  name: `${word} means ${meaning}`,
  answer: endsWith(word),
  check(t, answer, cell) {
    if (meaning === 'failed') return hasFailed(t, answer, cell)
    if (cell.upstream === cell.client) return isKept(t, answer, word)
    t.equal(answer.status, 200)
    t.match(answer.text, WORDS[meaning][cell.client])
  },
  why: ({ upstream, stream }) =>
    upstream === 'responses' && stream && meaning === 'stop'
      ? 'an incomplete response has not ended regularly'
      : undefined,
})

const unknown: Kind = {
  name: 'an unknown word',
  answer: endsWith(UNKNOWN),
  check: (t, answer, cell) => (cell.upstream === cell.client ? isKept(t, answer, UNKNOWN) : hasFailed(t, answer, cell)),
  charged: () => ({ input_tokens: 10, output_tokens: 5 }),
}

const kinds = ENDS.flatMap(([meaning, all]) => all.split(' ').map(word => known(meaning, word)))

t.test('words by which replies end', t =>
  testKinds(t, [...kinds, unknown, known('failed', OWN), known('stop', OWN_REGULAR)], file =>
    ['editor', 'famA', 'famC'].reduce(
      (edited, name) => edited.set(`upstreams.${name}.ends`, { [OWN.toUpperCase()]: 'failed', [OWN_REGULAR]: 'stop' }),
      file,
    ),
  ),
)

t.test('an unknown word is marked, and no other account is asked; a known failure asks the next', async t => {
  const provider = await ScriptedUpstream.start(t)
  const g = await startGateway(t, {
    upstream: provider.url,
    edit: file =>
      file.set(
        'upstreams.editor.accounts',
        ['a', 'b'].map(name => ({ name, key: `${name}-secret-0123456789` })),
      ),
  })
  const key = await g.key('editor')
  const ask = async (path: string, word: string) => {
    const cell: Cell = { upstream: 'chat-completions', client: 'messages', stream: false }
    const whole = REPLIES['chat-completions']
    provider.requests.length = 0
    provider.script = (_received, res) => (provider.requests.length > 1 ? json(res, whole) : endsWith(word)(res, cell))
    const messages = [{ role: 'user', content: 'hello' }]
    const answer = await g.call(path, { key, body: { model: 'acme/famB-4.6', max_tokens: 100, messages } })
    const id = await g.id(key)
    await g.settled(key)
    const [entry] = await g.gateway.ledger.reads.history({ account: id }, { count: 1 })
    const failures = [...g.gateway.pool.members.values()].reduce((sum, { health }) => sum + health.counts.failures, 0)
    return {
      status: answer.status,
      tries: provider.requests.length,
      unread: entry?.notes.unread,
      cost: entry?.charge,
      failures,
    }
  }
  t.match(await ask('/v1/chat/completions', UNKNOWN), {
    status: 200,
    tries: 1,
    unread: [`end.${UNKNOWN}`],
    failures: 0,
  })
  const translated = await ask('/v1/messages', UNKNOWN)
  t.match(translated, { status: 502, tries: 1, unread: [`end.${UNKNOWN}`], failures: 0 })
  t.equal(translated.cost, 0n, 'nothing was delivered')
  for (const path of ['/v1/chat/completions', '/v1/messages'])
    t.match(await ask(path, 'insufficient_system_resource'), { status: 200, tries: 2, unread: undefined })
})

t.test('docs/providers.md has the table of ends', t => {
  const rows = ENDS.map(([meaning, all, vendors]) => [
    all
      .split(' ')
      .map(word => `\`${word}\``)
      .join(', '),
    meaning,
    vendors,
  ])
  keepsTable(t, new URL('../../docs/providers.md', import.meta.url), 'words', rows)
  t.end()
})
