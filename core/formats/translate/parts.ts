/** Parts of messages and of results in the shapes of all formats. Their types tell the shape, whatever the path. */
import * as chat from '../chat-completions/parts.ts'
import { object, text } from '../json.ts'
import * as messages from '../messages/parts.ts'
import * as responses from '../responses/parts.ts'
import type { FormatName, Json } from '../terms.ts'
import type { Place } from './decoding.ts'
import type { Part } from './neutral.ts'

type Decode = (part: Json, at: string, place: Place) => Part[]

/** The formats that have a type of parts. Where several have it, each reads its own. */
export const PART_TYPES: Readonly<Record<string, readonly FormatName[]>> = {
  text: ['chat-completions', 'responses', 'messages'],
  refusal: ['chat-completions', 'responses'],
  image_url: ['chat-completions'],
  input_audio: ['chat-completions', 'responses'],
  file: ['chat-completions'],
  input_text: ['responses'],
  output_text: ['responses'],
  input_image: ['responses'],
  computer_screenshot: ['responses'],
  input_file: ['responses'],
  image: ['messages'],
  document: ['messages'],
  search_result: ['messages'],
}

/** Types that other vendors have, too, for parts without a source. */
export const NEEDS_SOURCE: ReadonlySet<string> = new Set(['image', 'document'])

/** Whether only other formats have a type of parts. */
export function isForeignType(type: string, own: FormatName): boolean {
  return Object.hasOwn(PART_TYPES, type) && PART_TYPES[type]?.includes(own) === false
}

/** Whether a part has the shape of another format. */
export function isForeignPart(part: Json, own: FormatName): boolean {
  const type = text(part['type']) ?? ''
  return isForeignType(type, own) && (object(part['source']) !== undefined || !NEEDS_SOURCE.has(type))
}

/**
 * Returns what decodes the parts of a format, and those of others by their types.
 * @param own decodes those of the format, and unknown ones
 */
export function partsIn(format: FormatName, own?: Decode): Decode {
  return (part, at, place) => {
    const type = text(part['type']) ?? ''
    const formats = Object.hasOwn(PART_TYPES, type) ? PART_TYPES[type] : undefined
    const reader = formats === undefined || formats.includes(format) ? format : (formats[0] ?? format)
    return reader === format && own ? own(part, at, place) : DECODERS[reader](part, at, place)
  }
}

const DECODERS: Readonly<Record<FormatName, Decode>> = {
  'chat-completions': chat.decodePart,
  responses: responses.decodePart,
  messages: messages.decodeInner,
}
