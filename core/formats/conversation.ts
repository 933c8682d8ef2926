/** What a request says, for the comparison with earlier ones. */
import type { Body } from './body.ts'

/** Members that say how a reply is to be made, and are no input. */
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
/** Members by which a provider may leave out what was said. */
const SHORTENING = ['context_management', 'truncation', 'transforms', 'compression']

/** What a request says, one message or item after the other, and all else of it that becomes input. */
export interface Conversation {
  readonly said: readonly Buffer[]
  readonly frame: readonly string[]
  /** The provider may leave out some of it. */
  readonly shortened: boolean
}

/** Most messages or items of a request that are compared one by one; a longer request counts as shortened. */
const SAID_MAX = 5000

/** What a request says, as it came. @param member that its format says it in */
export function conversationOf(body: Body, member: string): Conversation {
  const value = body.received_view(member)
  const said = value?.isList ? [...value.elements()] : value ? [value] : []
  const frame = [...body.names]
    .filter(name => name !== member && !MANNER.has(name))
    .flatMap(name => [name, body.received_view(name)?.bytes.toString('latin1') ?? ''])
  const shortened = said.length > SAID_MAX || SHORTENING.some(name => body.received_view(name) !== undefined)
  return { said: shortened ? [] : said.map(({ bytes }) => bytes), frame, shortened }
}
