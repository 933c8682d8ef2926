/** Parts of messages and of tool outputs in the responses format. */
import { marked, type Place, textAt, unknownPart, untranslatable } from '../translate/decoding.ts'
import { mediaPart, sourceOf } from '../translate/media.ts'
import type { Part } from '../translate/neutral.ts'
import type { Json } from '../terms.ts'
import { text, words } from '../json.ts'

/** The members of all parts. Those of replies, such as `annotations`, tell the model nothing. */
const PART = new Set(
  words(`
    type text refusal image_url file_id detail filename file_url file_data annotations logprobs cache_control
  `),
)

const TYPES = new Set(words('input_text output_text text refusal input_image computer_screenshot input_file'))

/** Decodes a part. @throws GatewayError invalid_body */
export function decodePart(part: Json, at: string, place: Place): Part[] {
  // A part of an unknown type is named as a whole.
  if (TYPES.has(text(part['type']) ?? '')) place.dropped.within(part, at, PART)
  return marked(decoded(part, at, place), part, place.dropped)
}

function decoded(part: Json, at: string, place: Place): Part[] {
  switch (part['type']) {
    case 'input_text':
    case 'output_text':
    case 'text':
      return [{ kind: 'text', text: textAt(part['text'], `${at}.text`) }]
    case 'refusal':
      return [{ kind: 'refusal', text: textAt(part['refusal'], `${at}.refusal`) }]
    case 'input_image':
    case 'computer_screenshot': {
      if (typeof part['image_url'] !== 'string') throw elsewhere(`${at}.file_id`)
      const source = sourceOf(part['image_url'], `${at}.image_url`)
      return [mediaPart(source, 'image', { detail: text(part['detail']) })]
    }
    case 'input_file': {
      const name = text(part['filename'])
      const url = text(part['file_url'])
      if (url !== undefined) return [mediaPart(sourceOf(url, `${at}.file_url`), 'file', { name })]
      if (typeof part['file_data'] !== 'string') throw elsewhere(`${at}.file_id`)
      return [mediaPart(sourceOf(part['file_data'], `${at}.file_data`), 'file', { name })]
    }
    default:
      return unknownPart(part, at, place)
  }
}

function elsewhere(param: string): Error {
  return untranslatable(param, 'the file is stored at another provider; send its data')
}
