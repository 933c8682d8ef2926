/** The texts of a request that its model reads, in any format. */
import type { JsonView } from '../lib/json/view.ts'
import { Slices } from '../lib/turns.ts'
import type { Body } from './body.ts'

/** The top-level members with the texts, as they are in any of the formats. */
const TOP_LEVEL = ['system', 'instructions', 'messages', 'input'] as const

/**
 * Members that no model reads as text: what a part is, ids, links and encrypted values. Texts of members that are not
 * listed here count, so that a new kind of part hides nothing.
 */
const NO_TEXT: ReadonlySet<string> = new Set([
  'type',
  'role',
  'id',
  'call_id',
  'tool_call_id',
  'tool_use_id',
  'item_id',
  'file_id',
  'image_url',
  'url',
  'file_url',
  'file_data',
  'media_type',
  'format',
  'detail',
  'status',
  'phase',
  'signature',
  'encrypted_content',
  'cache_control',
])

/** The member with the arguments of a tool. They may have any names. */
const ARGUMENTS = 'input'

/** Values that are looked at between two looks at the clock. */
const STEPS = 256

/** A value that has not been looked at yet. */
interface Waiting {
  readonly view: JsonView
  /** Whether it belongs to the arguments of a tool. */
  readonly isArgument: boolean
}

/**
 * Returns the texts of a request, in their order. Other work gets its turn meanwhile.
 * @throws TypeError without a body: no stage has read it yet
 */
export async function promptTexts(body: Body | undefined): Promise<readonly string[]> {
  if (!body) throw new TypeError('x.prompt() needs the fact "body"')
  const texts: string[] = []
  const slices = new Slices()
  const roots = TOP_LEVEL.flatMap(name => body.view(name) ?? [])
  const waiting: Waiting[] = roots.map(view => ({ view, isArgument: false })).reverse()
  for (let steps = 1; ; steps++) {
    const next = waiting.pop()
    if (!next) return texts
    if (steps % STEPS === 0 && slices.over) await slices.next()
    const { text } = next.view
    if (text === undefined) waiting.push(...partsOf(next).reverse())
    else texts.push(text)
  }
}

/** Returns the values in a value that may be texts, or contain some. */
function partsOf({ view, isArgument }: Waiting): Waiting[] {
  if (!view.isObject) return [...view.elements()].map(element => ({ view: element, isArgument }))
  const isData = view.member('type')?.is('base64') === true || view.member('format') !== undefined
  return [...view.members()]
    .filter(({ name }) => isArgument || !(NO_TEXT.has(name) || (name === 'data' && isData)))
    .map(({ name, value }) => ({ view: value, isArgument: isArgument || (name === ARGUMENTS && value.isObject) }))
}
