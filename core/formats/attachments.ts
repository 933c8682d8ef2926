/** Media and documents in the parts of a request. */
import { BACKSLASH } from '../lib/json/bytes.ts'
import type { JsonView } from '../lib/json/view.ts'

/** A part that is not text. */
export interface Attachment {
  readonly kind: 'image' | 'sound' | 'document'
  /** Where the medium is: in the request, behind a URL, or stored at the provider. */
  readonly place: 'inline' | 'url' | 'stored'
  /** The encoded bytes, if they are in the request. */
  readonly encoded?: JsonView
}

/** The member, unless it is null. */
function present(value: JsonView | undefined): JsonView | undefined {
  return value?.isNull ? undefined : value
}

/** The head of a base64 data URL. */
const DATA_HEAD = /^data:[\w/+.-]{1,100}(?:;[\w=-]{1,100}){0,4};base64,/
/** Bytes that the longest such head may have, if each slash in it is escaped. */
const HEAD_MAX = 2048
/** Bytes of encoded text that are checked in one step. */
const ENCODED_SLICE = 128 * 1024
/**
 * What base64 in a JSON string does not contain: other characters, and escapes of anything but a slash or a line break.
 */
const NOT_ENCODED = /[^A-Za-z0-9+/=_\\-]|\\[^/nr]/

/** The beginning of the text of a string. */
function beginning(value: JsonView): string {
  const text = value.bytes.toString('latin1', 1, Math.min(value.end - value.start - 1, HEAD_MAX))
  return text.replaceAll('\\/', '/')
}

/**
 * Whether a string is base64, with or without the head of a data URL. Other strings are text, and count as text in
 * addition to the medium that the part claims to be.
 */
function* isEncoded(value: JsonView): Generator<void, boolean> {
  const { bytes } = value
  const head = DATA_HEAD.exec(beginning(value))?.[0]
  // With escapes, the head has more bytes than characters.
  let at = head === undefined ? 1 : bytes.indexOf(',', 1) + 1
  while (at < bytes.length - 1) {
    let end = Math.min(at + ENCODED_SLICE, bytes.length - 1)
    // An escape must not be split.
    if (end < bytes.length - 1 && bytes[end - 1] === BACKSLASH) end--
    if (NOT_ENCODED.test(bytes.toString('latin1', at, end))) return false
    at = end
    yield
  }
  return true
}

/**
 * Whether encoded bytes may be an image: the data URL says so, if there is one, and they do not begin like a PDF or a
 * zip archive.
 */
function isImage(value: JsonView): boolean {
  const begins = beginning(value)
  const data = begins.slice(DATA_HEAD.exec(begins)?.[0].length ?? 0)
  return (
    (!begins.startsWith('data:') || /^data:image\//i.test(begins)) &&
    !data.startsWith('JVBERi') &&
    !data.startsWith('UEsD')
  )
}

/** Notes a part if it is an attachment. */
export function* attached(part: JsonView, found: Attachment[]): Generator<void> {
  const medium = mediumOf(part)
  if (!medium) return
  const { kind, source } = medium
  if (!source?.isString) found.push({ kind, place: 'stored' })
  else if (yield* isEncoded(source))
    found.push({ kind: kind === 'image' && !isImage(source) ? 'document' : kind, place: 'inline', encoded: source })
  else found.push({ kind, place: 'url' })
}

/** What medium a part is, and the value that holds it or its URL; undefined for a part that is text. */
function mediumOf(part: JsonView): { kind: Attachment['kind']; source: JsonView | undefined } | undefined {
  /** The member `inner` of a member, or else the member itself. */
  const of = (name: string, inner: string): JsonView | undefined =>
    present(part.member(name)?.member(inner)) ?? part.member(name)
  const type = part.member('type')?.text
  switch (type) {
    case 'image_url':
    case 'input_image':
    case 'computer_screenshot':
      return { kind: 'image', source: of('image_url', 'url') }
    case 'image_generation_call':
      return { kind: 'image', source: part.member('result') }
    case 'input_audio':
      return { kind: 'sound', source: part.member('input_audio')?.member('data') }
    case 'audio_url':
      return { kind: 'sound', source: of('audio_url', 'url') }
    case 'document_url':
      return { kind: 'document', source: of('document_url', 'url') }
    case 'file':
    case 'input_file': {
      const nested = part.member('file')
      const file = nested?.isObject ? nested : part
      return { kind: 'document', source: present(file.member('file_data')) ?? file.member('file_url') }
    }
    case 'video_url':
    case 'input_video':
      return { kind: 'document', source: of('video_url', 'url') }
    case 'container_upload':
      return { kind: 'document', source: undefined }
    case 'image':
    case 'document': {
      const source = part.member('source')
      const place = source?.member('type')?.text
      // Documents of plain text, or of further parts, are measured as those.
      if (place !== 'base64' && place !== 'url' && place !== 'file') return undefined
      return { kind: type, source: source?.member(place === 'base64' ? 'data' : 'url') }
    }
    default:
      return undefined
  }
}
