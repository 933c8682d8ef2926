/**
 * Masks words in replies. It shows a rewriter, which sees only the events that contain one of its matches. A word that
 * the provider splits between two events of a stream is not masked.
 */
import { definePlugin } from 'tollgate/plugin'

export default definePlugin({
  name: 'mask-words',
  summary: 'Replaces words in replies by asterisks.',
  on: 'inference',
  options: {
    type: 'object',
    additionalProperties: false,
    required: ['words'],
    properties: {
      words: {
        type: 'array',
        minItems: 1,
        items: { type: 'string', pattern: '^[A-Za-z0-9]+$', expected: 'letters and digits' },
        description: 'Words to mask.',
      },
    },
  },
  setup({ words }) {
    const any = new RegExp(words.join('|'), 'g')
    return {
      rewrite: () => ({
        matches: words,
        event: ({ type, data }) => [{ type, data: data.replaceAll(any, word => '*'.repeat(word.length)) }],
      }),
    }
  },
})
