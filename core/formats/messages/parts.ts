/** Blocks of messages and of results in the messages format, which are parts in others. */
import { GatewayError } from '../../errors.ts'
import { objectAt, partsOf, type Place, textAt, unknownPart, untranslatable } from '../translate/decoding.ts'
import { inline, mediaPart } from '../translate/media.ts'
import type { Part, Source } from '../translate/neutral.ts'
import type { Json } from '../terms.ts'
import { object, text, words } from '../json.ts'

/** The members of blocks that are translated, or that are named in other words. */
export const BLOCK = new Set(
  words(`
    type text citations cache_control thinking signature data id name input tool_use_id content is_error source title
    context encrypted_content caller toolset_name
  `),
)
const SOURCE = new Set(words('type url media_type data file_id content'))

/** Decodes a block within a result or a document. @throws GatewayError invalid_body */
export function decodeInner(block: Json, at: string, place: Place): Part[] {
  place.dropped.have(block, ['cache_control'])
  place.dropped.within(block, at, BLOCK)
  return decodePart(block, at, place)
}

/** Blocks about tools and models of the provider. The text of the reply contains what they found. */
const PROVIDER_BLOCK = /^server_tool_use$|^mcp_tool|_tool_result$|^container_upload$|^tool_|^fallback$/

/** Decodes a block. @throws GatewayError invalid_body */
export function decodePart(block: Json, at: string, place: Place): Part[] {
  const { dropped } = place
  const type = text(block['type']) ?? ''
  dropped.within(object(block['source']), `${at}.source`, SOURCE)
  if (type === 'text') {
    const said = textAt(block['text'], `${at}.text`)
    return said === '' ? [] : [{ kind: 'text', text: said }]
  }
  if (type === 'image')
    return [mediaPart(decodeSource(objectAt(block['source'], `${at}.source`), `${at}.source`), 'image')]
  if (type === 'document') return decodeDocument(block, at, place)
  if (type === 'compaction') {
    const said = text(block['content'])
    if (said) return [{ kind: 'text', text: said }]
    // A compaction that failed has replaced nothing.
    if (block['content'] !== null || text(block['encrypted_content']))
      throw new GatewayError('compaction_bound', { param: at })
    dropped.add(type)
    return []
  }
  if (type === 'search_result') return [{ kind: 'text', text: searchResult(block) }]
  if (!PROVIDER_BLOCK.test(type)) return unknownPart(block, at, place)
  dropped.add(type)
  return []
}

function decodeSource(source: Json, at: string): Source {
  if (source['type'] === 'url') return { from: 'url', url: textAt(source['url'], `${at}.url`) }
  if (source['type'] !== 'base64') throw untranslatable(at, 'the file is stored at another provider; send its data')
  return inline(text(source['media_type']) ?? '', textAt(source['data'], `${at}.data`))
}

function decodeDocument(block: Json, at: string, place: Place): Part[] {
  const source = objectAt(block['source'], `${at}.source`)
  const title = text(block['title'])
  const heads = [title, text(block['context'])].flatMap(head =>
    head ? [{ kind: 'text' as const, text: `${head}\n\n` }] : [],
  )
  if (source['type'] === 'text') return [...heads, { kind: 'text', text: textAt(source['data'], `${at}.source.data`) }]
  if (source['type'] === 'content')
    return [...heads, ...partsOf(source['content'], `${at}.source.content`, place, decodeInner)]
  return [...heads.slice(title ? 1 : 0), mediaPart(decodeSource(source, `${at}.source`), 'file', { name: title })]
}

function searchResult(block: Json): string {
  const content = Array.isArray(block['content'])
    ? block['content'].map(part => text(object(part)?.['text']) ?? '')
    : []
  return [text(block['title']), text(block['source']), ...content].filter(line => line).join('\n')
}
