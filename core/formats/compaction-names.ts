/** Names of compactions that a provider made, by which the gateway knows the account that can read them. */
import { createHash } from 'node:crypto'
import { list, object } from './json.ts'
import { isSealed } from './translate/passthrough.ts'

/** The types of items that only their provider can read. */
const COMPACTION: ReadonlySet<unknown> = new Set(['compaction', 'compaction_summary', 'context_compaction'])

/**
 * What the gateway calls a compaction that a provider made; undefined for other items. Clients may change its id, so the
 * name is made of its content.
 */
export function compactionName(type: unknown, content: unknown): string | undefined {
  if (!COMPACTION.has(type) || typeof content !== 'string' || content === '' || isSealed(content)) return undefined
  return `compaction:${createHash('sha256').update(content).digest('hex').slice(0, 32)}`
}

/** The names of the compactions in an event, or in a reply. */
export function compactionsIn(json: unknown): readonly string[] {
  const event = object(json) ?? {}
  const reply = object(event['response']) ?? event
  return [event['item'], ...list(reply['output'])].flatMap(value => {
    const item = object(value)
    return compactionName(item?.['type'], item?.['encrypted_content']) ?? []
  })
}
