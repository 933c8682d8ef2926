/** The ids of what replies store at their provider. */
import { ID_MAX } from './contents.ts'
import { list, object, text } from './json.ts'

/** Most ids of one reply that are remembered. */
const IDS_MAX = 1000

/**
 * The ids of what a reply, or the event with its usage, left at the provider: the reply, and what is stored beside it.
 * @param isThread whether the request keeps its message as a part of a thread
 */
export function storedIds(
  json: unknown,
  isThread = false,
): { readonly reply: string | undefined; readonly others: readonly string[] } {
  const event = object(json) ?? {}
  const reply = object(event['response']) ?? object(event['message']) ?? object(event['delta']) ?? event
  const items = list(reply['output']).map(object)
  const spoken = list(reply['choices']).map(choice => object(object(object(choice)?.['message'])?.['audio'])?.['id'])
  const ids = [
    object(reply['conversation'])?.['id'],
    object(reply['container'])?.['id'],
    ...items.flatMap(item => [item?.['id'], item?.['container_id']]),
    ...spoken,
    ...(isThread && reply['type'] === 'message' ? [reply['id']] : []),
  ]
  return {
    reply: reply['object'] === 'response' ? text(reply['id']) : undefined,
    // Later requests cannot refer to the ids beyond this number.
    others: ids
      .filter((id): id is string => typeof id === 'string' && id !== '' && id.length <= ID_MAX)
      .slice(0, IDS_MAX),
  }
}
