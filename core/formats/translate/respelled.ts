/** Brings what a body has in the shapes of other formats into the shape of its path. Everything else in it stays as it is. */
import type { Format } from '../format.ts'
import { list, object } from '../json.ts'
import type { Json } from '../terms.ts'
import { partsOf } from './decoding.ts'
import type { DroppedFields } from './dropped-fields.ts'
import { respelledElements } from './elements.ts'
import type { Item, ModelTraits, Request } from './neutral.ts'
import { isForeignPart, partsIn } from './parts.ts'
import { decodeChoice, decodeTools, isForeignChoice, isForeignTool, shapeOfTool } from './tools.ts'

/** What is not lost where a body only changes its shape. The model is not known yet. */
export const SHAPE_TRAITS: ModelTraits = { output: 1, thinking: 'adaptive', cacheMarks: 'client', textTools: true }

/** Stands before the items that are written, and behind those of earlier turns: all formats need somebody to ask. */
const ASKED: Item = { kind: 'message', role: 'user', parts: [{ kind: 'text', text: '.' }] }
const NOTHING: Request = { model: '', stream: false, usageAsked: false, items: [ASKED], tools: [], stops: [] }

/**
 * Returns a body with its foreign tools, choice, calls, results and parts in the shape of its path.
 * @param dropped what that shape cannot carry
 * @throws GatewayError invalid_body if it cannot carry something of the last turn
 */
export function respelled(body: Json, path: Format, dropped: DroppedFields): Json {
  const own = path.name
  const member = own === 'responses' ? 'input' : 'messages'
  const encode = (request: Partial<Request>): Json =>
    path.codec.encodeRequest({ ...NOTHING, ...request }, dropped, SHAPE_TRAITS)
  const tools = list(body['tools'])
  const texts = tools.filter(tool => shapeOfTool(object(tool) ?? {})?.endsWith('text'))
  const takingText = decodeTools(texts, dropped)
  const result: Record<string, unknown> = { ...body }
  if (Array.isArray(body[member]))
    result[member] = respelledElements(list(body[member]), { member, own }, dropped, (items, isPast) => {
      const all = [ASKED, ...items, ...(isPast ? [ASKED] : [])]
      const written = list(encode({ items: all, isPast, tools: takingText })[member]).map(each => object(each) ?? {})
      return isPast ? withoutAsked(withoutAsked(written, 'first'), 'last') : withoutAsked(written, 'first')
    })
  if (tools.some(tool => isForeignTool(tool, own)))
    result['tools'] = tools.flatMap((tool, at) =>
      isForeignTool(tool, own) ? list(encode({ tools: decodeTools([tool], dropped, at) })['tools']) : [tool],
    )
  const given = object(body['tool_choice'])
  const { choice } = isForeignChoice(body['tool_choice'], own) ? decodeChoice(body['tool_choice'], []) : {}
  if (choice) {
    const parallel = given?.['disable_parallel_tool_use'] === true ? { parallelTools: false } : {}
    const named = [...takingText, { name: 'any', at: '', freeform: false }]
    const { tool_choice, parallel_tool_calls } = encode({ tools: named, toolChoice: choice, ...parallel })
    Object.assign(result, { ...(parallel_tool_calls === false && { parallel_tool_calls }), tool_choice })
  }
  if (own === 'messages' && list(body['system']).some(part => isForeignPart(object(part) ?? {}, own))) {
    const parts = partsOf(body['system'], 'system', { past: false, dropped }, partsIn(own))
    result['system'] = encode({ items: [{ kind: 'message', role: 'system', parts }, ASKED] })['system']
  }
  return result
}

/** The elements without `ASKED`, which may be a block of one of them. */
function withoutAsked(elements: readonly Json[], place: 'first' | 'last'): Json[] {
  const [index, from, to] = place === 'first' ? [0, 1, undefined] : [elements.length - 1, 0, -1]
  const content = list(elements[index]?.['content']).slice(from, to)
  const left = content.length > 0 ? [{ ...elements[index], content }] : []
  return [...elements.slice(0, index), ...left, ...elements.slice(index + 1)]
}
