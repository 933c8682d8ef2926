import { PerMinute, Reply } from 'tollgate/plugin'
import * as metering from 'tollgate/plugin/metering'
import {
  type Body,
  defineBuiltIn,
  type BuiltInExchange,
  turn,
  type BuiltInWith,
  setting,
  whole,
} from 'tollgate/plugin/metering'

/** Values that are visited in one step. */
const STEPS = 1000
/** Characters of text that are counted in one step. */
const SLICE = 65_536

/** Statuses with which an upstream indicates that it cannot count tokens. */
const NOT_THERE = new Set([403, 404, 405, 501])

/**
 * Counts the input tokens of a request without sending it. The upstream counts if it can; otherwise the text is
 * estimated in steps, so that a large request does not block others. Counting is free, so it is limited per key, and
 * refused for keys that are disabled or expired.
 */
export default defineBuiltIn({
  name: 'count-tokens',
  summary:
    'Answers POST /v1/messages/count_tokens and POST /v1/responses/input_tokens, with an estimate if the upstream cannot count. Free of charge.',
  on: 'counting',
  needs: ['key', 'secret', 'body', 'route'],
  gives: [],
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      mediaTokens: setting(
        whole(1, 10_000_000),
        metering.MEDIA_TOKENS,
        'Estimated tokens of one embedded image, sound or file.',
      ),
      perMinute: setting(whole(1), 300, 'Maximum requests per key and minute.'),
    },
  },
  setup({ mediaTokens, perMinute }, { keys, now }) {
    const asked = new PerMinute(now)

    const answer = async ({ body, format }: BuiltInWith<'body'> & Pick<BuiltInExchange, 'format'>): Promise<Reply> =>
      Reply.json(format.counted?.(await estimate(body, mediaTokens)))
    return {
      async request(x) {
        asked.limit(x.key.id, perMinute, 'This key counts tokens too often.')
        await keys.usable(x.secret)
        return x.route.format === x.format ? undefined : answer(x)
      },
      response: (x, head) => (NOT_THERE.has(head.status) ? answer(x) : undefined),
    }
  },
})

async function estimate(body: Body, mediaTokens: number): Promise<number> {
  const media = new Set(body.contents.attachments.flatMap(({ encoded }) => encoded?.start ?? []))
  let weight = 3
  let walked = 0
  for (const name of ['messages', 'system', 'input', 'instructions', 'tools']) {
    const view = body.view(name)
    if (!view) continue
    // The iterators of the values that are being visited, outermost first.
    const levels = view ? [[view].values()] : []
    for (let level = levels.at(-1); level; level = levels.at(-1)) {
      if (++walked % STEPS === 0) await turn()
      const { value, done } = level.next()
      if (done) levels.pop()
      else if (!value.isString) {
        weight += 1
        levels.push(value.children())
      } else if (name !== 'tools' && media.has(value.start)) weight += mediaTokens
      else weight += await stringWeight(value.text ?? '')
    }
  }
  return Math.ceil(weight)
}

async function stringWeight(text: string): Promise<number> {
  let weight = 0
  for (let at = 0; at < text.length; at += SLICE) {
    weight += textWeight(text.slice(at, at + SLICE))
    if (at > 0) await turn()
  }
  return weight
}

/** Estimates the tokens of a text from its kinds of characters, using averages of tokenizers. */
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

/** Returns whether a character is a letter, a digit or a space. */
function isPlain(code: number): boolean {
  return (
    code === 0x20 || (code >= 0x30 && code <= 0x39) || (code >= 0x41 && code <= 0x5a) || (code >= 0x61 && code <= 0x7a)
  )
}
