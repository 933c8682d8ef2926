/** JSON Schema of prices and of `requestPolicy`. */
import { POLICIES, type PolicyName } from '../formats/policies.ts'
import { CALL_NAMES, type CallName, RATE_NAMES } from '../money/price.ts'
import { MOST_TOKENS } from './units.ts'

const PRICE = {
  type: 'number',
  minimum: 0,
  description: 'a plain decimal, in credits per million tokens, such as 0.30',
} as const

const FACTOR = {
  type: 'number',
  minimum: 0,
  description: 'a factor that all rates are multiplied by, a plain decimal such as 0.5 or 2',
} as const

const FEE = { type: 'number', minimum: 0, description: 'credits for one call, a plain decimal such as 0.01' } as const

const RATES = Object.fromEntries(RATE_NAMES.map(name => [name, PRICE])) as {
  readonly [K in (typeof RATE_NAMES)[number]]: typeof PRICE
}

/** Schema of price factors, keyed by the name under which a reply reports them. */
const factors = (example: string) =>
  ({
    type: 'object',
    description: `factors by name, such as ${example}`,
    propertyNames: { pattern: '^[!-~]{1,64}$', description: 'the name that a reply reports, such as priority' },
    additionalProperties: FACTOR,
  }) as const

/** Schema of one entry of `prices`. */
export const PRICE_ENTRY = {
  type: 'object',
  description: 'prices by class of token',
  additionalProperties: false,
  required: ['input', 'output'],
  properties: {
    ...RATES,
    tiers: {
      type: 'array',
      description:
        'rates for long input, such as [{ above: 200000, input: 6, output: 22.5 }]; [] where long input costs no more',
      items: {
        type: 'object',
        description: 'one set of rates for long input, such as { above: 200000, input: 6, output: 22.5 }',
        additionalProperties: false,
        required: ['above', 'input', 'output'],
        properties: {
          above: {
            type: 'integer',
            minimum: 1,
            maximum: MOST_TOKENS,
            description: 'a number of input tokens, above which these rates hold for the whole request',
          },
          ...RATES,
        },
      },
    },
    serviceTier: factors('{ flex: 0.5, priority: 2 }'),
    speed: factors('{ fast: 6 }'),
    inferenceGeo: factors('{ us: 1.1 }'),
    calls: {
      type: 'object',
      description: 'credits for one call of a tool that the provider runs, such as { webSearch: 0.01 }',
      additionalProperties: false,
      properties: Object.fromEntries(CALL_NAMES.map(name => [name, FEE])) as { readonly [K in CallName]: typeof FEE },
    },
  },
} as const

/** Schema of the actions for members that cost money, keep state, or change the model or the address. */
export const POLICY = {
  type: 'object',
  description:
    'what becomes of members that cost money or change where a request goes, such as { service_tier: refuse }',
  additionalProperties: false,
  properties: Object.fromEntries(
    Object.entries(POLICIES).map(([name, { actions }]) => [
      name,
      { type: 'string', enum: actions, description: `${actions.join(', ')}: what becomes of ${name}` },
    ]),
  ) as unknown as {
    readonly [K in PolicyName]: { readonly type: 'string'; readonly enum: readonly ['refuse', 'drop', 'allow'] }
  },
} as const
