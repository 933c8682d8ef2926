/** Images and files in requests: where they are, and of which type they are. */
import { refused } from './decoding.ts'
import type { Source } from './neutral.ts'

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

/** Types of images by the beginning of their base64 text. */
const BEGINNINGS: readonly (readonly [string, string])[] = [
  ['/9j/', 'image/jpeg'],
  ['iVBORw0KGgo', 'image/png'],
  ['R0lGOD', 'image/gif'],
  ['UklGR', 'image/webp'],
]

/** Other names of these types. */
const ALIASES: Readonly<Record<string, string>> = {
  'image/jpg': 'image/jpeg',
  'image/pjpeg': 'image/jpeg',
  'image/x-png': 'image/png',
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
