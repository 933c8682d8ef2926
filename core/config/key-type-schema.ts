/** JSON Schema of a key type and its models. */

import { POLICY } from './price-schema.ts'
import { LIMITS, PLAN, PRICE_FACTOR } from './plan-schema.ts'
import { BOOLEAN, FORMAT_LIST, section, setting, whole } from './section-schema.ts'
import { DURATION, TOKENS_MAX, PAUSE } from './units.ts'

const MODEL_ID = {
  type: 'string',
  minLength: 1,
  maxLength: 200,
  pattern: '^[!-~]+$',
  expected: 'a model id: printable characters without spaces',
  description: 'Id of the model, as customers name it.',
} as const

/** One upstream, or several in order. */
const UPSTREAMS = {
  type: ['string', 'array'],
  minItems: 1,
  uniqueItems: true,
  items: { type: 'string' },
  expected: 'the name of an upstream, or a list of names in the order of preference',
} as const

/** The failures after which a request is sent to another account. */
const RETRIED = ['connect', 'timeout', '408', '409', '429', '5xx', '500', '502', '503', '504', '529', 'empty'] as const

/** An answer about a model. In YAML 1.2, `yes` and `no` are strings. */
const YES_OR_NO = { type: ['string', 'boolean'], enum: ['yes', 'no', true, false], expected: 'yes or no' } as const

const MODEL = {
  type: 'object',
  description: 'A model.',
  additionalProperties: false,
  required: ['id'],
  properties: {
    id: MODEL_ID,
    name: {
      type: 'string',
      minLength: 1,
      maxLength: 200,
      description: 'Name of the model for people, which `GET /v1/models` lists as `display_name`; the id by default.',
    },
    as: { ...MODEL_ID, description: 'The model of this key type that this one is an alias of.' },
    sends: { ...MODEL_ID, description: "The upstream's name of the model; the id by default." },
    upstream: { ...UPSTREAMS, description: "Upstreams of this model, if they differ from the key type's." },
    price: { type: 'string', description: 'Name of the price, an entry of `prices`.' },
    context: {
      type: 'integer',
      minimum: 1,
      maximum: TOKENS_MAX,
      description: 'Size of the context window, in tokens; 1,000,000 is assumed by default.',
    },
    maxOutput: {
      type: 'integer',
      minimum: 1,
      maximum: TOKENS_MAX,
      description: 'Maximum output of one reply, in tokens; `check` warns if it is missing.',
    },
    answers: {
      type: 'array',
      minItems: 1,
      maxItems: 100,
      items: { type: 'string', minLength: 1, maxLength: 200 },
      expected: 'a list of model names',
      description:
        'Other names by which the provider answers for this model. A reply by the name of another model of the key type is charged at the cheaper of both prices.',
    },
    reasoning: {
      type: 'string',
      enum: ['hidden', 'shown', 'none'],
      description:
        'Whether reasoning is billed but not sent (`hidden`), sent (`shown`), or absent (`none`). By default `shown` for a messages upstream, else `hidden`; `check` warns if it is missing.',
    },
    reasoningInLimit: {
      type: 'boolean',
      description: "Whether a request's output limit includes the reasoning; true by default.",
    },
    outputRate: {
      type: 'integer',
      minimum: 1,
      maximum: 100_000,
      description:
        'Output tokens per second of a fast reply (95th percentile). By default the `outputRate` of `usage-meter`, or what replies have shown, up to four times that.',
    },
    overhead: {
      type: 'integer',
      minimum: 0,
      maximum: TOKENS_MAX,
      description: 'Input tokens that the upstream adds to each request. By default what replies have shown.',
    },
    thinking: {
      type: 'string',
      enum: ['adaptive', 'budget'],
      description:
        'How a translated request asks a messages model to reason: by effort (`adaptive`, the default) or in tokens (`budget`).',
    },
    thinkingOff: {
      ...YES_OR_NO,
      description:
        'Whether the reasoning of the model can be turned off; `yes` by default. `no`: a translated request that turns it off asks for the least effort instead.',
    },
    sampling: {
      ...YES_OR_NO,
      description:
        'Whether the model accepts `temperature`, `top_p` and `top_k`; `yes` by default. `no`: the gateway drops them from translated requests.',
    },
    cacheMarks: {
      type: 'string',
      enum: ['client', 'conversations', 'always'],
      description:
        "When the gateway marks a request that it translates into messages for the provider's prompt cache: never (`client`: only the client does), if the client names a cache (`conversations`, the default), or always (`always`).",
    },
  },
} as const

/** Schema of one entry of `keyTypes`. */
export const KEY_TYPE = {
  type: 'object',
  description: 'A key type: the models, formats and prices of the keys that you sell under one name.',
  additionalProperties: false,
  required: ['upstream', 'formats', 'default', 'models'],
  properties: {
    upstream: {
      ...UPSTREAMS,
      description: 'Entry of `upstreams`, or several: the next one serves when no account of those before it can.',
    },
    retry: section('When a request is sent to another account.', {
      attempts: setting(whole(1, 20), 3, 'Maximum accounts that a request is sent to, until one of them answers.'),
      totalTime: setting(DURATION, '30s', 'Time after which a request that fails is not sent to another account.'),
      on: {
        type: 'array',
        uniqueItems: true,
        // YAML reads 429 as a number.
        items: { type: ['string', 'integer'], enum: [...RETRIED, 408, 409, 429, 500, 502, 503, 504, 529] },
        default: ['connect', '408', '429', '5xx', 'empty'],
        expected: `a list of ${RETRIED.join(', ')}`,
        description:
          'Failures after which another account is asked: no connection, a status, or a stream that fails or ends before any content (`empty`). `timeout` is for a request that was sent and not answered; the provider may bill it.',
      },
      opening: setting(
        PAUSE,
        '5s',
        'How long the events before the first content of a stream are held back while another account could be asked.',
      ),
    }),
    formats: { ...FORMAT_LIST, description: 'Formats that customers may use.' },
    default: { ...MODEL_ID, description: 'Id of the default model, one of `models`.' },
    fillDefault: setting(BOOLEAN, false, 'Whether a request without a model gets the default one.'),
    public: setting(
      BOOLEAN,
      true,
      "Whether everybody may see it on the customers' page, in the list of models and prices, and on the page of the status.",
    ),
    priceFactor: {
      ...PRICE_FACTOR,
      description:
        'What the prices of the models are multiplied by for keys of this type, such as `0.85`; 1 by default. With 0, they are free.',
    },
    onLoss: {
      type: 'string',
      enum: ['warn', 'ignore'],
      default: 'warn',
      description:
        'What happens when a request is charged less than it cost you: a line in the log and a count (`warn`), or nothing (`ignore`). Both sums are of what this request used.',
    },
    plan: PLAN,
    limits: section('Limits of each key of this type. A key may have narrower ones of its own.', {
      ...LIMITS,
      concurrency: { ...LIMITS.concurrency, default: 50 },
      queue: { ...LIMITS.queue, default: '2s' },
    }),
    abandoned: setting(
      whole(1, 1000),
      8,
      'Maximum replies of one key that are read to the end at the same time after their clients left.',
    ),
    onDisabled: {
      type: 'string',
      enum: ['end', 'finish'],
      default: 'end',
      description:
        'Whether running streams end (`end`) or continue (`finish`) when their key is disabled, expires or is rotated.',
    },
    manages: {
      type: 'array',
      uniqueItems: true,
      items: { type: 'string', minLength: 1 },
      default: [],
      description:
        'Key types of the keys that a managing key of this type may create for its balance, by the stage `own-keys`.',
    },
    holdAhead: setting(whole(1, TOKENS_MAX), 4096, 'Output tokens by which the hold of a running stream stays ahead.'),
    clampOutput: setting(
      BOOLEAN,
      false,
      'Whether to lower the output limit of a request to what the balance covers, instead of refusing it.',
    ),
    policy: POLICY,
    models: {
      type: 'array',
      minItems: 1,
      items: MODEL,
      expected: 'a list of models',
      description: 'Models of this key type.',
    },
  },
} as const
