/** Images and files in requests: where they are, and of which type they are. */
import { present, refused } from './decoding.ts'
import type { Part, Source } from './neutral.ts'

/** The source that a URL or data URL names. @throws GatewayError invalid_body */
export function sourceOf(url: string, param: string): Source {
  if (/^https?:/i.test(url)) return { from: 'url', url }
  const comma = url.startsWith('data:') ? url.indexOf(',') : -1
  const [mediaType = '', ...parameters] = url.slice('data:'.length, Math.max(comma, 0)).split(';')
  const data = url.slice(comma + 1)
  if (comma === -1 || mediaType === '' || parameters.at(-1) !== 'base64' || data === '')
    throw refused(param, `"${param}" must be an http(s) URL or a base64 data URL.`)
  return inline(mediaType, data)
}

/** The source as a URL. */
export function urlOf(source: Source): string {
  return source.from === 'url' ? source.url : `data:${source.mediaType};base64,${source.data}`
}

/** Types of images and documents by the beginning of their base64 text. */
const BEGINNINGS: readonly (readonly [string, string])[] = [
  ['/9j/', 'image/jpeg'],
  ['iVBORw0KGgo', 'image/png'],
  ['R0lGOD', 'image/gif'],
  ['UklGR', 'image/webp'],
  ['JVBERi', 'application/pdf'],
]

/** Other names of these types. */
const ALIASES: Readonly<Record<string, string>> = {
  'image/jpg': 'image/jpeg',
  'image/pjpeg': 'image/jpeg',
  'image/x-png': 'image/png',
  'audio/mpeg': 'audio/mp3',
  'audio/x-wav': 'audio/wav',
  'audio/wave': 'audio/wav',
}

/**
 * An image, sound or file, as its type says: clients send all of them under the names of each other.
 * @param otherwise what the client calls it, which counts if there is no type
 */
export function mediaPart(
  source: Source,
  otherwise: 'image' | 'file',
  { detail, name }: { readonly detail?: string | undefined; readonly name?: string | undefined } = {},
): Part {
  const [type = '', subtype = ''] = source.from === 'data' ? source.mediaType.split('/') : []
  if (type === 'audio' && source.from === 'data') return { kind: 'audio', data: source.data, encoding: subtype }
  const isImage = type === 'image' || (type === '' && otherwise === 'image')
  return isImage
    ? present({ kind: 'image' as const, source, detail })
    : present({ kind: 'file' as const, source, name })
}

/**
 * Inline data with the type that providers know. For an image it is the one that its data begins with: clients often
 * state another one, and some providers compare.
 * @param data base64
 */
export function inline(stated: string, data: string): Source {
  const plain = stated.toLowerCase()
  const begins = plain.startsWith('image/') ? BEGINNINGS.find(([beginning]) => data.startsWith(beginning)) : undefined
  return { from: 'data', mediaType: begins?.[1] ?? ALIASES[plain] ?? plain, data }
}
