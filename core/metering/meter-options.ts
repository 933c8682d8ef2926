/** Input tokens of one image, if the file does not say. */
export const MEDIA_TOKENS = 3000

/** JSON Schema of the metering stage's options: how tokens are estimated and held for before they are counted. */
export const METER_OPTIONS = {
  type: 'object',
  additionalProperties: false,
  properties: {
    address: {
      type: 'boolean',
      default: true,
      description: "Whether the history records the client's address, which only the operator sees.",
    },
    leastOutput: {
      type: 'integer',
      minimum: 1,
      maximum: 1_000_000,
      default: 16,
      description: 'Output tokens that a balance must cover for a stream to start.',
    },
    leastLimit: {
      type: 'integer',
      minimum: 1,
      maximum: 1_000_000,
      default: 4096,
      description: 'Minimum to which the output limit of a JSON request is lowered, in tokens.',
    },
    unlimitedOutput: {
      type: 'integer',
      minimum: 1,
      maximum: 1_000_000,
      default: 32_768,
      description: 'Output tokens held for a JSON reply without any limit.',
    },
    mediaTokens: {
      type: 'integer',
      minimum: 1,
      maximum: 10_000_000,
      default: MEDIA_TOKENS,
      description: 'Tokens held and estimated for one image.',
    },
    pageTokens: {
      type: 'integer',
      minimum: 1,
      maximum: 10_000_000,
      default: 3500,
      description: 'Tokens held and estimated for one page of a document.',
    },
    soundBytesPerToken: {
      type: 'integer',
      minimum: 1,
      maximum: 100_000,
      default: 64,
      description: 'Bytes of encoded sound per token.',
    },
    toolTokens: {
      type: 'integer',
      minimum: 0,
      maximum: 10_000_000,
      default: 20_000,
      description: 'Input tokens held and estimated for the results of one search that the provider runs.',
    },
    openToolTokens: {
      type: 'integer',
      minimum: 0,
      maximum: 10_000_000,
      default: 100_000,
      description:
        'Input tokens held and estimated for the results of one call without a limit: fetched pages, code, MCP and others.',
    },
    toolCalls: {
      type: 'integer',
      minimum: 1,
      maximum: 1000,
      default: 10,
      description:
        'Calls of one provider tool to hold for, and to allow in a JSON request, if the request has no limit.',
    },
    imageTokens: {
      type: 'integer',
      minimum: 0,
      maximum: 10_000_000,
      default: 7000,
      description: 'Output tokens held and estimated for one image that a provider tool creates.',
    },
    bytesPerToken: {
      type: 'integer',
      minimum: 1,
      maximum: 100,
      default: 3,
      description: 'Bytes of text per token if an upstream reports no usage for a complete reply.',
    },
    outputRate: {
      type: 'integer',
      minimum: 1,
      maximum: 100_000,
      default: 150,
      description: 'Tokens per second (95th percentile) of models without an `outputRate`.',
    },
    cacheLifetime: {
      type: 'integer',
      minimum: 0,
      maximum: 86_400,
      default: 300,
      description: "Seconds for which a conversation's cached input counts as cached again.",
    },
  },
} as const
