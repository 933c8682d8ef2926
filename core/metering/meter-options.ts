/** The options of the metering stage. */
import { BOOLEAN, setting, whole } from '../config/section-schema.ts'

/** Input tokens of one image, if the file does not say. */
export const MEDIA_TOKENS = 3000

/** JSON Schema of the metering stage's options: how tokens are estimated and held for before they are counted. */
export const METER_OPTIONS = {
  type: 'object',
  additionalProperties: false,
  properties: {
    address: setting(BOOLEAN, true, "Whether the history records the client's address, which only the operator sees."),
    leastOutput: setting(whole(1, 1_000_000), 16, 'Output tokens that a balance must cover for a stream to start.'),
    leastLimit: setting(
      whole(1, 1_000_000),
      4096,
      'Minimum to which the output limit of a JSON request is lowered, in tokens.',
    ),
    unlimitedOutput: setting(whole(1, 1_000_000), 32_768, 'Output tokens held for a JSON reply without any limit.'),
    mediaTokens: setting(whole(1, 10_000_000), MEDIA_TOKENS, 'Tokens held and estimated for one image.'),
    pageTokens: setting(whole(1, 10_000_000), 3500, 'Tokens held and estimated for one page of a document.'),
    soundBytesPerToken: setting(whole(1, 100_000), 64, 'Bytes of encoded sound per token.'),
    toolTokens: setting(
      whole(0, 10_000_000),
      20_000,
      'Input tokens held and estimated for the results of one search that the provider runs.',
    ),
    openToolTokens: setting(
      whole(0, 10_000_000),
      100_000,
      'Input tokens held and estimated for the results of one call without a limit: fetched pages, code, MCP and others.',
    ),
    toolCalls: setting(
      whole(1, 1000),
      10,
      'Calls of one provider tool to hold for, and to allow in a JSON request, if the request has no limit.',
    ),
    imageTokens: setting(
      whole(0, 10_000_000),
      7000,
      'Output tokens held and estimated for one image that a provider tool creates.',
    ),
    bytesPerToken: setting(
      whole(1, 100),
      3,
      'Bytes of text per token if an upstream reports no usage for a complete reply.',
    ),
    outputRate: setting(
      whole(1, 100_000),
      150,
      'Tokens per second (95th percentile) of models without an `outputRate`.',
    ),
    cacheLifetime: setting(
      whole(0, 86_400),
      300,
      "Seconds for which a conversation's cached input counts as cached again.",
    ),
  },
} as const
