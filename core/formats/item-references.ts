/** References to items of earlier replies that the gateway keeps, because their provider does not. */
import { GatewayError } from '../errors.ts'
import { withElements } from '../lib/json/rebuild.ts'
import type { Body } from './body.ts'
import { list, object, text } from './json.ts'
import { mayBeOwnItem } from './translate/passthrough.ts'

/** The items of a format's replies that later requests may refer to. */
export interface ItemReferences {
  /** The name of references in the contents of a request. */
  readonly param: string
  /** The items of a complete reply, as JSON by id; undefined if the event does not end one. */
  of(json: unknown): ReadonlyMap<string, string> | undefined
  /** Replaces the first reference to each item by the item. @param items JSON by id. References to others stay */
  inline(body: Body, items: ReadonlyMap<string, string>): void
  /** Whether the gateway may have made the id of an item. */
  mayBeOwn(id: string): boolean
  /** The error for a reference to an item that is not kept, in the words of the vendor. */
  notFound(id: string): GatewayError
}

const ENDS: ReadonlySet<string> = new Set(['response.completed', 'response.incomplete'])

/** Most characters of an id that an error repeats. */
const SHOWN = 100

/** The references of the responses format. */
export const ITEM_REFERENCES: ItemReferences = {
  param: 'input.id',
  of(json) {
    const event = object(json)
    if (event?.['object'] !== 'response' && !ENDS.has(text(event?.['type']) ?? '')) return undefined
    const items = list((object(event?.['response']) ?? event)?.['output']).flatMap(value => {
      const id = text(object(value)?.['id'])
      return id ? [[id, JSON.stringify(value)] as const] : []
    })
    return new Map(items)
  },
  inline(body, items) {
    if (items.size === 0) return
    const input = body.view('input')
    if (!input) return
    // Further ones would multiply it.
    const replaced = new Set<string>()
    const { result } = withElements(input, item => {
      const id = item.member('type')?.is('item_reference') ? (item.member('id')?.text ?? '') : ''
      const kept = items.get(id)
      if (kept === undefined) return item
      if (replaced.has(id)) return undefined
      replaced.add(id)
      return Buffer.from(kept)
    })
    if (Buffer.isBuffer(result)) body.setBytes('input', result)
  },
  mayBeOwn: mayBeOwnItem,
  notFound(id) {
    const shown = id.slice(0, SHOWN)
    const message = `Item with id '${shown}' not found. Items are not persisted when \`store\` is set to false. Try again with \`store\` set to true, or remove this item from your input.`
    return new GatewayError('item_not_found', { param: 'input', message })
  },
}
