/** The conversation of a request, for comparing it with earlier ones. */
import { createHash, hash } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import type { JsonView } from '../lib/json/view.ts'
import { object, text } from './json.ts'
import type { RequestMembers } from './terms.ts'

/** Members that say how to reply, and neither are input nor choose a prompt cache. */
const MANNER = new Set([
  'stream',
  'stream_options',
  'max_tokens',
  'max_completion_tokens',
  'max_output_tokens',
  'temperature',
  'top_p',
  'metadata',
  'store',
])
/** Members by which a provider may leave out a part of the conversation. */
const SHORTENING = ['context_management', 'truncation', 'transforms', 'compression']

/** A request body as it arrived. */
interface Received {
  readonly received: Buffer
  readonly names: Iterable<string>
  receivedView(name: string): JsonView | undefined
}

/** A conversation as digests. */
export interface Conversation {
  /** The messages or items, one by one. */
  readonly said: readonly { readonly digest: string; readonly bytes: number }[]
  /** Everything else that becomes input. */
  readonly frame: string
}

/** Size of a request from which its conversation is compared, in bytes. */
const BODY_BYTES_MIN = 8192
/** Most messages that are compared one by one. */
const SAID_MAX = 5000
/** Characters of a digest. */
export const DIGEST_LENGTH = 32

/**
 * The conversation as it arrived; undefined if it is too small or too long, or if the provider may leave out a part of
 * it.
 * @param member the member in which its format has it
 */
export function conversationOf(body: Received, member: string): Conversation | undefined {
  if (body.received.length < BODY_BYTES_MIN) return undefined
  const value = body.receivedView(member)
  const said = value?.isList ? [...value.elements()] : [value].filter(only => only !== undefined)
  if (said.length > SAID_MAX || SHORTENING.some(name => body.receivedView(name) !== undefined)) return undefined
  const frame = [...body.names]
    .filter(name => name !== member && !MANNER.has(name))
    .flatMap(name => [name, body.receivedView(name)?.bytes.toString('latin1') ?? ''])
  return {
    said: said.map(({ bytes }) => ({ digest: digestOf(bytes), bytes: bytes.length })),
    frame: digestOf(JSON.stringify(frame)),
  }
}

function digestOf(text: string | Buffer): string {
  return hash('sha256', text).slice(0, DIGEST_LENGTH)
}

/** Headers by which clients name their session. */
const SESSION_HEADERS = [
  'x-claude-code-session-id',
  'session-id',
  'session_id',
  'thread-id',
  'conversation_id',
] as const
/** Most bytes of a message that tell one conversation from another. */
const TOLD_APART_BYTES = 65_536

/**
 * Returns what identifies the conversation that a request continues: the name that its client gives it, or else its
 * system text and its first message.
 * @param member the member in which its format has the messages
 * @param owner the key, since different customers may use the same name
 */
export function conversationKey(
  body: Pick<Received, 'receivedView'> & Pick<RequestMembers, 'get'>,
  member: string,
  headers: Readonly<IncomingHttpHeaders>,
  owner: string,
): string {
  const named =
    text(body.get('prompt_cache_key')) ??
    SESSION_HEADERS.map(name => text(headers[name])).find(name => name !== undefined) ??
    sessionOf(text(object(body.get('metadata'))?.['user_id']))
  if (named !== undefined) return `${owner} ${named}`
  const hash = createHash('sha1')
  const add = (bytes: Buffer | undefined): void => void (bytes && hash.update(bytes.subarray(0, TOLD_APART_BYTES)))
  for (const name of ['system', 'instructions']) add(body.receivedView(name)?.bytes)
  const said = body.receivedView(member)
  if (said?.isList) {
    for (const element of said.elements()) {
      add(element.bytes)
      const role = element.member('role')?.text
      if (role !== 'system' && role !== 'developer') break
    }
  } else add(said?.bytes)
  return `${owner} ${hash.digest('base64')}`
}

/** Returns the session id in a user's id, where one client puts it as JSON. */
export function sessionOf(userId: string | undefined): string | undefined {
  if (!userId?.startsWith('{')) return undefined
  try {
    return text(object(JSON.parse(userId))?.['session_id'])
  } catch {
    return undefined
  }
}
