/** “Test this key”: one short request to the endpoint that the customer's clients use, and what it cost. */
import { read, Refusal, send } from './api.js'
import { button, field, fill, h, icon, select } from './dom.js'
import { amount, duration, number } from './format.js'

/** How each endpoint is asked for one short answer, and where the text is in its events. */
const ENDPOINTS = {
  '/v1/chat/completions': {
    body: (model, text) => ({ model, stream: true, max_tokens: 200, messages: [{ role: 'user', content: text }] }),
    textOf: event => event.choices?.[0]?.delta?.content,
  },
  '/v1/responses': {
    body: (model, text) => ({ model, stream: true, max_output_tokens: 200, input: text }),
    textOf: event => (event.type === 'response.output_text.delta' ? event.delta : undefined),
  },
  '/v1/messages': {
    body: (model, text) => ({ model, stream: true, max_tokens: 200, messages: [{ role: 'user', content: text }] }),
    textOf: event => event.delta?.text,
  },
}

const QUESTION = 'Say hello in one short sentence.'
/** The history has a request a moment after its end. */
const COST_TRIES = 20
const COST_EVERY_MS = 250

/** @param {any} info @param {() => void} onSpent called when the request has ended */
export function testCard(info, onSpent) {
  const paths = info.endpoints.map(endpoint => endpoint.replace('POST ', '')).filter(path => ENDPOINTS[path])
  const model = select(
    info.models.map(id => [id, id]),
    { value: info.default_model },
  )
  const path = select(paths.map(each => [each, each]))
  const output = h(
    'div.test-output',
    { role: 'log', 'aria-live': 'polite', 'aria-label': 'Answer' },
    h('span.muted', 'The answer appears here.'),
  )
  const result = h('p.muted', { role: 'status' })
  /** @type {AbortController | undefined} */
  let running
  const stop = button([icon('stop'), 'Stop'], () => running?.abort(), { class: 'button', disabled: true })
  const start = button(
    [icon('play'), 'Test this key'],
    async () => {
      running = new AbortController()
      stop.disabled = false
      fill(output)
      fill(result, 'Waiting for the model …')
      try {
        const sent = await ask(path.value, model.value, running.signal, text => output.append(text))
        fill(result, 'Answered. Looking up the cost …')
        fill(result, await costOf(sent))
      } catch (thrown) {
        if (running.signal.aborted) fill(result, 'Stopped. What was delivered is charged.')
        else fill(result, h('span.fault', wordsOf(thrown)))
      } finally {
        stop.disabled = true
        onSpent()
      }
    },
    { class: 'button primary' },
  )
  return h(
    'section.card.stack',
    h('h2', 'Test this key'),
    h('p.muted', 'Sends one short question as your client would. It is charged like any other request.'),
    h('div.fields', field('Model to ask', model), field('Endpoint', path)),
    h('div.row', start, stop),
    output,
    result,
  )
}

async function ask(path, model, signal, show) {
  const { body, textOf } = ENDPOINTS[path]
  const began = performance.now()
  let firstMs
  const response = await send(path, {
    method: 'POST',
    signal,
    headers: { accept: 'text/event-stream', 'content-type': 'application/json' },
    body: JSON.stringify(body(model, QUESTION)),
  })
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  for (;;) {
    const { value, done } = await reader.read()
    if (done) break
    const lines = (rest + value).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) {
      const event = line.startsWith('data: {') ? JSON.parse(line.slice(6)) : undefined
      if (event?.error) throw new Refusal(200, event.error.code ?? '', event.error.message ?? 'The reply broke off.')
      const text = event && textOf(event)
      if (!text) continue
      firstMs ??= performance.now() - began
      show(text)
    }
  }
  return { id: response.headers.get('x-request-id'), firstMs, totalMs: performance.now() - began }
}

async function costOf({ id, firstMs, totalMs }) {
  const took = `First text after ${duration(firstMs ?? totalMs)}, all of it after ${duration(totalMs)}.`
  for (let tries = 0; tries < COST_TRIES; tries++) {
    const { data } = await read(`/api/v1/key-info/history?request_id=${encodeURIComponent(id ?? '')}&page_size=1`)
    const [entry] = data
    if (entry)
      return `It cost ${amount(entry.cost, 9)} credits: ${number(entry.input_tokens)} input and ${number(entry.output_tokens)} output tokens. ${took} ${amount(entry.balance_after)} credits are left.`
    await new Promise(resolve => setTimeout(resolve, COST_EVERY_MS))
  }
  return `${took} The cost appears in the history.`
}

/** What to do, by the code of an error. */
const REMEDIES = {
  insufficient_quota: 'Redeem a code or buy credits.',
  invalid_api_key: 'Check the key, or ask for a new one.',
  model_not_found: 'Choose another model.',
  rate_limit_exceeded: 'Wait a moment and try again.',
}

function wordsOf(thrown) {
  if (!(thrown instanceof Refusal)) return 'The reply could not be read.'
  return [thrown.message, REMEDIES[thrown.code]].filter(Boolean).join(' ')
}
