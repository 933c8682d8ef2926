/** Items of a conversation that are only references, which their provider resolves. */
import type { JsonView } from '../lib/json/view.ts'

/** The members without which an item of a type is only a reference. Items of other types have several that matter. */
const SUBSTANCE: Readonly<Record<string, readonly string[]>> = {
  message: ['content'],
  reasoning: ['encrypted_content', 'content'],
  compaction: ['encrypted_content'],
  image_generation_call: ['result'],
}

/** Names that do not tell what an item contains. */
const LABELS: ReadonlySet<string> = new Set(['id', 'type', 'status'])

/** Whether an item is only a reference, which the provider resolves. */
export function isBare(item: JsonView): boolean {
  const type = item.member('type')?.text
  if (type === 'item_reference') return true
  // A past search has few members beside its id.
  if (type?.endsWith('_search_call')) return false
  if (holdsLabelsOnly(item)) return true
  const substance = type === undefined ? ['content'] : SUBSTANCE[type]
  return substance?.every(name => isVoid(item.member(name))) === true
}

function holdsLabelsOnly(item: JsonView): boolean {
  for (const name of item.names()) if (!LABELS.has(name)) return false
  return true
}

/** Whether a value is missing or empty. */
function isVoid(value: JsonView | undefined): boolean {
  return !value || value.isNull || value.is('') || (value.isList && value.entries === 1)
}
