/** Parts of messages in the chat-completions format. */
import { marked, objectAt, type Place, textAt, unknownPart, untranslatable } from '../translate/decoding.ts'
import { mediaPart, sourceOf } from '../translate/media.ts'
import type { Part } from '../translate/neutral.ts'
import type { Json } from '../terms.ts'
import { object, text, words } from '../json.ts'

/** The members of a part, with those that each type has. */
const PART = new Set(words('type text refusal image_url input_audio file cache_control'))
const INNER = {
  image_url: new Set(words('url detail')),
  input_audio: new Set(words('data format')),
  file: new Set(words('file_data filename file_id')),
} as const

/** Decodes a part. @throws GatewayError invalid_body */
export function decodePart(part: Json, at: string, place: Place): Part[] {
  // A part of an unknown type is named as a whole.
  if (PART.has(text(part['type']) ?? '')) place.dropped.within(part, at, PART)
  for (const [name, known] of Object.entries(INNER)) place.dropped.within(object(part[name]), `${at}.${name}`, known)
  return marked(decoded(part, at, place), part, place.dropped)
}

function decoded(part: Json, at: string, place: Place): Part[] {
  switch (part['type']) {
    case 'text':
      return [{ kind: 'text', text: textAt(part['text'], `${at}.text`) }]
    case 'refusal':
      return [{ kind: 'refusal', text: textAt(part['refusal'], `${at}.refusal`) }]
    case 'image_url': {
      // Some clients send the URL alone.
      const image = object(part['image_url']) ?? { url: part['image_url'] }
      const source = sourceOf(textAt(image['url'], `${at}.image_url.url`), `${at}.image_url.url`)
      return [mediaPart(source, 'image', { detail: text(image['detail']) })]
    }
    case 'input_audio': {
      const audio = objectAt(part['input_audio'], `${at}.input_audio`)
      const data = textAt(audio['data'], `${at}.input_audio.data`)
      return [{ kind: 'audio', data, encoding: text(audio['format']) ?? 'wav' }]
    }
    case 'file': {
      const file = objectAt(part['file'], `${at}.file`)
      if (file['file_data'] === undefined)
        throw untranslatable(`${at}.file.file_id`, 'the file is stored at another provider; send it as file_data')
      const data = textAt(file['file_data'], `${at}.file.file_data`)
      const source = sourceOf(data, `${at}.file.file_data`)
      return [mediaPart(source, 'file', { name: text(file['filename']) })]
    }
    default:
      return unknownPart(part, at, place)
  }
}
