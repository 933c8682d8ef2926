/** The conversation of a request, for comparing it with earlier ones. */
import type { Body } from './body.ts'

/** Members that say how to reply and are not input. */
const MANNER = new Set([
  'stream',
  'stream_options',
  'max_tokens',
  'max_completion_tokens',
  'max_output_tokens',
  'temperature',
  'top_p',
  'metadata',
  'user',
  'store',
])
/** Members by which a provider may leave out a part of the conversation. */
const SHORTENING = ['context_management', 'truncation', 'transforms', 'compression']

/** The messages or items of a request, one by one, and everything else in it that becomes input. */
export interface Conversation {
  readonly said: readonly Buffer[]
  readonly frame: readonly string[]
  /** The provider may leave out a part of it. */
  readonly shortened: boolean
}

/** Most messages that are compared one by one. A longer conversation counts as shortened. */
const SAID_MAX = 5000

/** The conversation as it arrived. @param member the member in which its format has it */
export function conversationOf(body: Body, member: string): Conversation {
  const value = body.receivedView(member)
  const said = value?.isList ? [...value.elements()] : [value].filter(only => only !== undefined)
  const frame = [...body.names]
    .filter(name => name !== member && !MANNER.has(name))
    .flatMap(name => [name, body.receivedView(name)?.bytes.toString('latin1') ?? ''])
  const shortened = said.length > SAID_MAX || SHORTENING.some(name => body.receivedView(name) !== undefined)
  return { said: shortened ? [] : said.map(({ bytes }) => bytes), frame, shortened }
}
