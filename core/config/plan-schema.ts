/** JSON Schemas of plans and of limits, which gateway.yaml and the API of operators share. */
import { RANGE } from './section-schema.ts'
import { PAUSE, TOKENS_MAX } from './units.ts'

/** Ids of models, and names of groups. */
const MODELS = {
  type: 'array',
  minItems: 1,
  maxItems: 200,
  uniqueItems: true,
  items: { type: 'string', minLength: 1, maxLength: 200 },
  expected: 'a list of model ids and names of `groups`',
} as const

/** A number of credits. In JSON, a text is exact as well. */
const CREDITS = { type: ['number', 'string'], exclusiveMinimum: 0, expected: 'a plain decimal above 0' } as const

const COUNT = { type: 'integer', minimum: 1, maximum: 1_000_000_000_000 } as const

const WINDOW = {
  type: 'object',
  description: 'A window: how much may be used in which time. It has one of `credits`, `requests` and `tokens`.',
  additionalProperties: false,
  required: ['per'],
  properties: {
    credits: { ...CREDITS, description: 'Credits that requests may cost, at the prices of the file.' },
    requests: { ...COUNT, description: 'Number of requests.' },
    tokens: { ...COUNT, description: 'Number of input and output tokens.' },
    per: {
      type: 'string',
      minLength: 1,
      expected: 'day, week, month, or a duration such as 5h',
      description:
        '`day`, `week` or `month`; or a duration: without an `anchor`, that is the last hours, such as `5h`.',
    },
    anchor: {
      type: 'string',
      minLength: 1,
      expected: "purchase, first use, or a time such as '08:00' or 'Mon 08:00'",
      description:
        "When it begins anew: at `purchase` and so long after it; at `first use` after the one before has ended; or at a time of each day (`'08:00'`), week (`Mon 08:00`) or month (`15 08:00`), by default at its beginning.",
    },
    zone: {
      type: 'string',
      minLength: 1,
      description: 'Time zone of the calendar, such as `Europe/Berlin`; UTC by default.',
    },
    models: { ...MODELS, description: 'Models and `groups` that it counts; by default all.' },
  },
} as const

/** Schema of a plan. */
export const PLAN = {
  type: 'object',
  description:
    'The plan that a new key with a balance of its own gets: what its customer may use in each window, beside prepaid credits.',
  additionalProperties: false,
  required: ['windows'],
  properties: {
    windows: {
      type: 'array',
      minItems: 1,
      maxItems: 8,
      items: WINDOW,
      expected: 'a list of windows',
      description: 'The windows. A request needs room in each that counts its model.',
    },
    then: {
      type: 'string',
      enum: ['credits', 'refuse'],
      default: 'refuse',
      description: 'What happens when a window is used up: prepaid `credits` are used, or requests are refused.',
    },
    until: {
      type: 'string',
      minLength: 1,
      expected: '1 month, 2 weeks and the like, or a duration such as 30d',
      description:
        'For how long the plan is valid from its purchase: `1 month`, `2 weeks` and the like by the calendar, or a duration such as `30d`; by default for ever.',
    },
    cachedInput: {
      type: ['number', 'string'],
      minimum: 0,
      maximum: 1,
      expected: 'a plain decimal from 0 to 1',
      description:
        'How much of a token counts, in a window of tokens, if the provider read it from its cache; 1 by default.',
    },
  },
} as const

/** Schemas of the limits that a key type and a single key may have. */
export const LIMITS = {
  requestsPerMinute: { ...COUNT, description: 'Requests in a minute.' },
  tokensPerMinute: {
    ...COUNT,
    description: 'Input and output tokens in a minute. A request reserves what it may use, and its end corrects that.',
  },
  creditsPerDay: { ...CREDITS, description: 'Credits that requests may cost in a day of UTC, whatever pays them.' },
  credits: { ...CREDITS, description: 'Prepaid credits that a key may be charged in its life.' },
  concurrency: {
    type: 'integer',
    minimum: 1,
    maximum: 100_000,
    description: 'Maximum concurrent requests of one key.',
  },
  queue: {
    ...PAUSE,
    description:
      'How long a request above `concurrency` waits for another one to end. Half of `limits.stage` counts if it is less. In each process, at most `concurrency` requests of a key wait.',
  },
  models: { ...MODELS, description: 'Models and `groups` that a key may use; by default all of its type.' },
  addresses: {
    type: 'array',
    minItems: 1,
    maxItems: 100,
    items: RANGE,
    description: 'Addresses and subnets from which a key may buy, such as `[198.51.100.0/24]`; by default all.',
  },
  maxInput: {
    type: 'integer',
    minimum: 1,
    maximum: TOKENS_MAX,
    description: 'Maximum input of a request, in tokens as they are estimated before it is sent.',
  },
  maxOutput: {
    type: 'integer',
    minimum: 1,
    maximum: TOKENS_MAX,
    description: 'Maximum output of a reply, in tokens. The limit of a request is lowered to it.',
  },
} as const

/** Schema of what prices are multiplied by. */
export const PRICE_FACTOR = {
  type: ['number', 'string'],
  minimum: 0,
  maximum: 1000,
  expected: 'a plain decimal from 0 to 1000 with at most four decimal places, such as 0.85',
} as const

/** Schema of the groups of models. */
export const GROUP = { ...MODELS, expected: 'a list of model ids', description: 'Ids of models.' } as const
