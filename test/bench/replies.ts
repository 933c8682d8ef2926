/** The provider's replies. The provider has another name for the model than the gateway's customers. */

const CHUNK = {
  id: 'chatcmpl-0123456789',
  object: 'chat.completion.chunk',
  created: 1_795_258_001,
  model: 'vendor/x-1',
}
const USAGE = { prompt_tokens: 200, completion_tokens: 60, total_tokens: 260 }

const event = (members: object): string => `data: ${JSON.stringify({ ...CHUNK, ...members })}\n\n`
const choice = (delta: object, finish_reason: string | null): object => ({
  choices: [{ index: 0, delta, logprobs: null, finish_reason }],
  usage: null,
})

export const EVENT = event(choice({ content: 'a few words ' }, null))

export const STREAM_END = `${event(choice({}, 'stop'))}${event({ choices: [], usage: USAGE })}data: [DONE]\n\n`

/** Returns a stream with so many events of text. */
export function streamOf(events: number): string {
  return EVENT.repeat(events) + STREAM_END
}

export const JSON_REPLY = JSON.stringify({
  ...CHUNK,
  object: 'chat.completion',
  choices: [{ index: 0, message: { role: 'assistant', content: 'x'.repeat(700) }, finish_reason: 'stop' }],
  usage: USAGE,
})

/** Returns the body of a request of about this size. */
export function requestOf(model: string, stream: boolean, bytes: number): string {
  const content = 'lorem ipsum dolor sit amet '.repeat(Math.ceil(bytes / 27)).slice(0, Math.max(0, bytes - 110))
  const messages = [{ role: 'user', content }]
  return JSON.stringify({ model, messages, ...(stream && { stream, stream_options: { include_usage: true } }) })
}
