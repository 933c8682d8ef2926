import { setImmediate as turn } from 'node:timers/promises'
import { type Body, definePlugin, Reply } from '../core/plugin.ts'

/** Characters of text that are weighed in one go. */
const SLICE = 65_536
/** Strings of this length under these names are media, whose text says nothing of their tokens. */
const MEDIA_MIN = 1024
const MEDIA_NAMES = new Set(['data', 'url', 'image_url', 'file_data'])

/** Statuses by which an upstream says that it counts no tokens. */
const NOT_THERE = new Set([404, 405, 501])

/**
 * How many tokens a request would take, for clients that want to know before they send it. The upstream counts where it
 * can; else the text is weighed, in slices, so that a large one holds nobody up. Nothing is billed.
 */
export default definePlugin({
  name: 'count-tokens',
  summary: 'Answers POST /v1/messages/count_tokens where the upstream does not: with an estimate. Costs nothing.',
  on: 'counting',
  needs: ['body', 'route'],
  gives: [],
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      mediaTokens: { type: 'integer', minimum: 1, maximum: 10_000_000, default: 1600, description: 'tokens of one embedded image, sound or file' },
    },
  },
  setup({ mediaTokens }) {
    const answer = async (body: Body): Promise<Reply> => Reply.json({ input_tokens: await estimate(body.json, mediaTokens) })
    return {
      request: ({ format, route, body }) => (route.format === format ? undefined : answer(body)),
      response: ({ body }, head) => (NOT_THERE.has(head.status) ? answer(body) : undefined),
    }
  },
})

async function estimate(json: Readonly<Record<string, unknown>>, mediaTokens: number): Promise<number> {
  let weight = 0
  let walked = 0
  const { messages, system, tools } = json
  const left: [name: string, value: unknown][] = Object.entries({ messages, system, tools })
  for (let next = left.pop(); next; next = left.pop()) {
    const [name, value] = next
    if (typeof value === 'string') {
      if (value.length >= MEDIA_MIN && MEDIA_NAMES.has(name)) weight += mediaTokens
      else
        for (let at = 0; at < value.length; at += SLICE) {
          weight += textWeight(value.slice(at, at + SLICE))
          if (at > 0) await turn()
        }
    } else if (typeof value === 'object' && value !== null) {
      weight += 1
      left.push(...Object.entries(value as Record<string, unknown>))
    } else weight += 1
    if (++walked % 1000 === 0) await turn()
  }
  return Math.max(1, Math.ceil(weight))
}

/** Tokens of a text, by the kind of its characters: what tokenizers make of them on average. */
function textWeight(text: string): number {
  let weight = 0
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code >= IDEOGRAPHS) weight += 1
    else if (code > ASCII) weight += 0.5
    else weight += isPlain(code) ? 0.25 : 0.5
  }
  return weight
}

const ASCII = 0x7f
const IDEOGRAPHS = 0x2e80

/** A letter, a digit or a space. */
function isPlain(code: number): boolean {
  return code === 0x20 || (code >= 0x30 && code <= 0x39) || (code >= 0x41 && code <= 0x5a) || (code >= 0x61 && code <= 0x7a)
}
