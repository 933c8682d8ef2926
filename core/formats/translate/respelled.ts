/** Brings what a body has in the shapes of other formats into the shape of its path. Everything else in it stays as it is. */
import type { Format } from '../format.ts'
import { list, object, text } from '../json.ts'
import type { FormatName, Json } from '../terms.ts'
import { type Place, unlessPast } from './decoding.ts'
import { DroppedFields } from './dropped-fields.ts'
import { elementsIn, shapeOfElement } from './elements.ts'
import type { Item, ModelTraits, Request, Role } from './neutral.ts'
import { isForeignPart, partsIn } from './parts.ts'
import { decodeChoice, decodeTools, isForeignChoice, isForeignTool, nameOf, shapeOfTool } from './tools.ts'

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
  return new Respelling(path, body, dropped).body()
}

class Respelling {
  readonly #path: Format
  readonly #own: FormatName
  readonly #given: Json
  readonly #dropped: DroppedFields
  /** The tools whose input is text. */
  readonly #takingText: Request['tools']

  constructor(path: Format, body: Json, dropped: DroppedFields) {
    this.#path = path
    this.#own = path.name
    this.#given = body
    this.#dropped = dropped
    const tools = list(body['tools']).filter(tool => shapeOfTool(object(tool) ?? {})?.endsWith('text'))
    // What these lack in the neutral model is not lost: the path's own tools stay as they are.
    this.#takingText = decodeTools(tools, new DroppedFields())
  }

  body(): Json {
    const { messages, input, system, tools, tool_choice: choice } = this.#given
    const result: Record<string, unknown> = { ...this.#given }
    const own = this.#own
    if (own === 'responses' && Array.isArray(input)) result['input'] = this.#conversation(input, 'input')
    if (own !== 'responses' && Array.isArray(messages)) {
      const leading = own === 'messages' && system === undefined ? leadingRules(messages) : 0
      const rules = messages.slice(0, leading).flatMap(each => blocksOf(object(each)?.['content']))
      if (rules.length > 0) result['system'] = rules
      result['messages'] = this.#conversation(messages.slice(leading), 'messages')
    }
    if (own === 'messages' && Array.isArray(result['system']))
      result['system'] = this.#parts(result['system'], 'system', { past: false, dropped: this.#dropped }, 'user')
    if (list(tools).some(tool => isForeignTool(tool, own))) result['tools'] = this.#tools(list(tools))
    if (isForeignChoice(choice, own)) Object.assign(result, this.#choice(choice))
    return result
  }

  #encoded(request: Partial<Request>): Json {
    return this.#path.codec.encodeRequest({ ...NOTHING, ...request }, this.#dropped, SHAPE_TRAITS)
  }

  /** Items in the shape of the path. `isPast`: they are older than the last turn. */
  #written(items: readonly Item[], isPast: boolean): Json[] {
    const all = [ASKED, ...items, ...(isPast ? [ASKED] : [])]
    const encoded = this.#encoded({ items: all, isPast, tools: this.#takingText })
    const written = list(encoded['input'] ?? encoded['messages']).map(each => object(each) ?? {})
    return isPast ? withoutAsked(withoutAsked(written, 'first'), 'last') : withoutAsked(written, 'first')
  }

  /** Calls and their results are written anew together if one of them is foreign, so that their ids and types agree. */
  #conversation(values: readonly unknown[], member: string): unknown[] {
    const { elements, last, decode } = elementsIn(values, { member, own: this.#own }, this.#dropped)
    const steps = stepsOf(elements).map(({ from, to }) => {
      const step = elements.slice(from, to)
      return { from, to, step, isForeign: this.#isForeign(step) }
    })
    let items: Item[] = []
    return steps.flatMap(({ from, to, step, isForeign }, nth) => {
      if (!isForeign) return step.map((each, at) => this.#element(each, `${member}[${from + at}]`, from + at <= last)) // prettier-ignore
      for (const [at, each] of step.entries()) items.push(...decode(each, from + at))
      if (to - 1 !== last && steps[nth + 1]?.isForeign) return []
      const written = this.#written(items, to - 1 <= last)
      items = []
      return written
    })
  }

  /** Whether a step must be written anew: chat completions have no media in results, only behind all of them. */
  #isForeign(step: readonly Json[]): boolean {
    return step.some(
      each =>
        shapeOfElement(each, this.#own) !== this.#own ||
        (each['role'] === 'tool' && list(each['content']).some(part => isForeignPart(object(part) ?? {}, this.#own))),
    )
  }

  /** An element of the path's own shape, whose parts may have others. */
  #element(element: Json, at: string, past: boolean): Json {
    const result: Record<string, unknown> = { ...element }
    const role = element['role'] === 'assistant' ? 'assistant' : 'user'
    for (const name of ['content', 'output'])
      if (Array.isArray(element[name]))
        result[name] = this.#parts(element[name], `${at}.${name}`, { past, dropped: this.#dropped }, role)
    return result
  }

  #parts(values: readonly unknown[], at: string, place: Place, role: Role): unknown[] {
    return values.flatMap((value, index): readonly unknown[] => {
      const part = object(value)
      if (!part) return [value]
      const here = `${at}[${index}]`
      if (!isForeignPart(part, this.#own)) return [this.#element(part, here, place.past)]
      const decode = partsIn(this.#own)
      const parts = unlessPast(place, text(part['type']) ?? '', () => decode(part, here, place), each => each) // prettier-ignore
      const [written] = this.#written([{ kind: 'message', role, parts }], place.past)
      return blocksOf(written?.['content'])
    })
  }

  #tools(tools: readonly unknown[]): unknown[] {
    const names = new Set(tools.flatMap(tool => (isForeignTool(tool, this.#own) ? [] : nameOf(object(tool) ?? {}))))
    return tools.flatMap((tool, at) => {
      if (!isForeignTool(tool, this.#own)) return [tool]
      const decoded = decodeTools([tool], this.#dropped, at).filter(({ name }) => {
        if (names.has(name)) this.#dropped.add(`tools.${name}`)
        return !names.has(name) && names.add(name)
      })
      return list(this.#encoded({ tools: decoded })['tools'])
    })
  }

  #choice(given: unknown): Json {
    const { choice } = decodeChoice(given, [])
    const parallel = object(given)?.['disable_parallel_tool_use'] === true ? { parallelTools: false } : {}
    const tools = [...this.#takingText, { name: 'any', at: '', freeform: false }]
    const made = this.#encoded({ tools, ...(choice && { toolChoice: choice }), ...parallel })
    const { tool_choice, parallel_tool_calls } = made
    return { ...(parallel_tool_calls === false && { parallel_tool_calls }), tool_choice }
  }
}

/** The content of a message as a list of parts. */
function blocksOf(content: unknown): readonly unknown[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : list(content)
}

/** The number of messages at the beginning that say rules, as chat completions have them. */
function leadingRules(messages: readonly unknown[]): number {
  const first = messages.findIndex(each => !/^(?:system|developer)$/.test(text(object(each)?.['role']) ?? ''))
  return first === -1 ? 0 : first
}

/** Where the steps of a conversation begin and end: calls and the results that follow them, or anything else. */
function stepsOf(elements: readonly Json[]): { from: number; to: number }[] {
  const steps: { from: number; to: number }[] = []
  let before: 'call' | 'result' | undefined
  elements.forEach((element, at) => {
    const kind = kindOf(element)
    const step = steps.at(-1)
    if (step && before && kind && !(before === 'result' && kind === 'call')) step.to = at + 1
    else steps.push({ from: at, to: at + 1 })
    before = kind
  })
  return steps
}

function kindOf(element: Json): 'call' | 'result' | undefined {
  const { role, type, tool_calls: calls, function_call: call } = element
  const types = [text(type) ?? '', ...list(element['content']).map(part => text(object(part)?.['type']) ?? '')]
  if (role === 'tool' || role === 'function' || types.some(each => /_output$|^tool_result$/.test(each))) return 'result'
  return list(calls).length > 0 || object(call) || types.some(each => /_call$|^tool_use$/.test(each))
    ? 'call'
    : undefined
}

/** The elements without `ASKED`, which may be a block of one of them. */
function withoutAsked(elements: readonly Json[], place: 'first' | 'last'): Json[] {
  const [index, from, to] = place === 'first' ? [0, 1, undefined] : [elements.length - 1, 0, -1]
  const content = list(elements[index]?.['content']).slice(from, to)
  const left = content.length > 0 ? [{ ...elements[index], content }] : []
  return [...elements.slice(0, index), ...left, ...elements.slice(index + 1)]
}
