/** Parts of messages and of tool outputs in the responses format. */
import { partsOf, present, sourceOf, textAt, unknownType, untranslatable } from '../translate/decoding.ts'
import type { Part } from '../translate/neutral.ts'
import type { Json } from '../terms.ts'
import { text } from '../json.ts'

/** Decodes parts. @throws GatewayError invalid_body */
export function decodeParts(content: unknown, at: string): Part[] {
  return partsOf(content, at, decodePart)
}

function decodePart(part: Json, at: string): Part {
  switch (part['type']) {
    case 'input_text':
    case 'output_text':
    case 'text':
      return { kind: 'text', text: textAt(part['text'], `${at}.text`) }
    case 'refusal':
      return { kind: 'refusal', text: textAt(part['refusal'], `${at}.refusal`) }
    case 'input_image': {
      if (typeof part['image_url'] !== 'string') throw elsewhere(`${at}.file_id`)
      return present({
        kind: 'image' as const,
        source: sourceOf(part['image_url'], `${at}.image_url`),
        detail: text(part['detail']),
      })
    }
    case 'input_file': {
      const name = text(part['filename'])
      const url = text(part['file_url'])
      if (url !== undefined) return present({ kind: 'file' as const, source: sourceOf(url, `${at}.file_url`), name })
      if (typeof part['file_data'] !== 'string') throw elsewhere(`${at}.file_id`)
      return present({ kind: 'file' as const, source: sourceOf(part['file_data'], `${at}.file_data`), name })
    }
    default:
      throw unknownType(at, part['type'])
  }
}

function elsewhere(param: string): Error {
  return untranslatable(param, 'the file is stored at another provider; send its data')
}
