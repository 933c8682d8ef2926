/** Events of streams, as providers send them. */

/** The tokens of a chunk of 16 KiB, at three bytes each: what a stream may deliver beyond its hold. */
export const CHUNK_TOKENS = 5462n

/** An event of responses or messages. */
export function typed(event: { readonly type: string; readonly [name: string]: unknown }): string {
  return `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`
}

/** An event of chat completions with any data. */
export function event(data: object): string {
  return `data: ${JSON.stringify(data)}\n\n`
}

/** An event with text. */
export function text(content: string): string {
  return event({ choices: [{ index: 0, delta: { content }, finish_reason: null }] })
}

/** The event that ends the text. */
export const STOP = event({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] })

/** An event with the usage. */
export function usage(input: number, output: number): string {
  return event({ choices: [], usage: { prompt_tokens: input, completion_tokens: output } })
}

/** The last event. */
export const DONE = 'data: [DONE]\n\n'

/** The end of a stream that reports its usage. */
export function ended(input: number, output: number): string {
  return STOP + usage(input, output) + DONE
}
