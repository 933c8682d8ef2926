/** JSON Schema of prices and of `requestPolicy`. */
import { POLICIES, type PolicyName } from '../formats/policies.ts'
import { CALL_NAMES, type CallName, RATE_NAMES } from '../money/price.ts'
import { TOKENS_MAX } from './units.ts'

const RATE = {
  type: 'number',
  minimum: 0,
  expected: 'a plain decimal, in credits per million tokens, such as 0.30',
} as const

const FACTOR = {
  type: 'number',
  minimum: 0,
  expected: 'a factor for all rates, a plain decimal such as 0.5 or 2',
} as const

const FEE = { type: 'number', minimum: 0, expected: 'credits for one call, a plain decimal such as 0.01' } as const

/** Descriptions of the rates, each in credits per million tokens. */
const RATE_TEXTS: Readonly<Record<(typeof RATE_NAMES)[number], string>> = {
  input: 'Input tokens.',
  cacheRead: 'Input tokens that were read from the prompt cache; by default the rate of `input`.',
  cacheWrite5m: 'Input tokens that were written to the prompt cache for five minutes; by default the rate of `input`.',
  cacheWrite1h:
    'Input tokens that were written to the prompt cache for an hour; by default the rate of `cacheWrite5m`.',
  imageInput: 'Input tokens of images; by default the rate of `input`.',
  audioInput: 'Input tokens of sound.',
  output: 'Output tokens.',
  reasoning: 'Reasoning tokens; by default the rate of `output`.',
  rejected: 'Tokens of a prediction that was not used; by default the rate of `output`.',
  audioOutput: 'Output tokens of sound.',
  imageOutput: 'Output tokens of images.',
}

const RATES = Object.fromEntries(
  RATE_NAMES.map(name => [name, { ...RATE, description: RATE_TEXTS[name] }]),
) as unknown as { readonly [K in (typeof RATE_NAMES)[number]]: typeof RATE }

/** Descriptions of the fees, each in credits per call. */
const CALL_TEXTS: Readonly<Record<CallName, string>> = {
  webSearch: 'A web search.',
  webFetch: 'A fetched web page.',
  fileSearch: 'A search in files.',
  codeExecution: 'A run of code.',
  imageGeneration: 'A generated image.',
  mcp: 'A call of an MCP tool.',
  otherTools: 'A call of any other tool.',
}

/** Schema of price factors, keyed by the name under which a reply reports them. */
const factors = (example: string, description: string) =>
  ({
    type: 'object',
    expected: `factors by name, such as ${example}`,
    description: `Factors for all rates, by ${description}.`,
    propertyNames: { pattern: '^[!-~]{1,64}$', expected: 'a name that replies report, such as priority' },
    additionalProperties: FACTOR,
  }) as const

/** Schema of one entry of `prices`. */
export const PRICE_ENTRY = {
  type: 'object',
  description: 'A price: rates in credits per million tokens, factors, and fees.',
  additionalProperties: false,
  required: ['input', 'output'],
  properties: {
    ...RATES,
    tiers: {
      type: 'array',
      expected: 'a list such as [{ above: 200000, input: 6, output: 22.5 }], or []',
      description: 'Rates for long input; `[]` if long input costs no more.',
      items: {
        type: 'object',
        expected: 'rates for long input, such as { above: 200000, input: 6, output: 22.5 }',
        description: 'Rates for input above a threshold.',
        additionalProperties: false,
        required: ['above', 'input', 'output'],
        properties: {
          above: {
            type: 'integer',
            minimum: 1,
            maximum: TOKENS_MAX,
            description: 'Number of input tokens above which these rates apply to the whole request.',
          },
          ...RATES,
        },
      },
    },
    serviceTier: factors('{ flex: 0.5, priority: 2 }', 'service tier'),
    speed: factors('{ fast: 6 }', 'speed'),
    inferenceGeo: factors('{ us: 1.1 }', 'region of inference'),
    calls: {
      type: 'object',
      expected: 'fees by tool, such as { webSearch: 0.01 }',
      description: 'Credits per call of a tool that the provider runs.',
      additionalProperties: false,
      properties: Object.fromEntries(
        CALL_NAMES.map(name => [name, { ...FEE, description: CALL_TEXTS[name] }]),
      ) as unknown as { readonly [K in CallName]: typeof FEE },
    },
  },
} as const

/** Schema of the actions for members that cost money, keep state, or change the model or the address. */
export const POLICY = {
  type: 'object',
  expected: 'actions by member, such as { service_tier: refuse }',
  description: 'What happens to request members that cost money, keep state, or change the model or the address.',
  additionalProperties: false,
  properties: Object.fromEntries(
    Object.entries(POLICIES).map(([name, { actions, members }]) => [
      name,
      { type: 'string', enum: actions, description: `What happens to ${members.join(', ')}.` },
    ]),
  ) as unknown as {
    readonly [K in PolicyName]: { readonly type: 'string'; readonly enum: readonly ['refuse', 'drop', 'allow'] }
  },
} as const
