/** JSON Schema of a key type and its models. */

import { POLICY } from './price-schema.ts'
import { FORMAT_LIST } from './section-schema.ts'
import { MOST_TOKENS, PAUSE } from './units.ts'

const MODEL_ID = {
  type: 'string',
  minLength: 1,
  maxLength: 200,
  pattern: '^[!-~]+$',
  description: 'a model id: printable characters without spaces',
} as const

const MODEL = {
  type: 'object',
  description: 'a model such as { id: acme/name, price: medium }',
  additionalProperties: false,
  required: ['id'],
  properties: {
    id: MODEL_ID,
    as: { ...MODEL_ID, description: 'the id of another model of this key type, which this one is an alias of' },
    sends: { ...MODEL_ID, description: "the upstream's own name for the model; the id by default" },
    price: { type: 'string', description: 'the name of an entry of `prices`' },
    context: {
      type: 'integer',
      minimum: 1,
      maximum: MOST_TOKENS,
      description: 'the context window, a number of tokens',
    },
    maxOutput: {
      type: 'integer',
      minimum: 1,
      maximum: MOST_TOKENS,
      description: 'the most output of one reply, a number of tokens',
    },
    reasoning: {
      type: 'string',
      enum: ['hidden', 'shown', 'none'],
      description:
        'hidden (billed, never sent), shown (its text is sent) or none: what the model does with its reasoning',
    },
    reasoningInLimit: {
      type: 'boolean',
      description:
        "true or false: whether a request's output limit bounds the model's reasoning as well; true by default",
    },
    outputRate: {
      type: 'integer',
      minimum: 1,
      maximum: 100_000,
      description:
        'the tokens that the model makes in a second when it is fast (its 95th percentile); learned where it is not set',
    },
    overhead: {
      type: 'integer',
      minimum: 0,
      maximum: MOST_TOKENS,
      description: 'the input tokens that the upstream adds to each request by itself; learned where it is not set',
    },
    thinking: {
      type: 'string',
      enum: ['adaptive', 'budget'],
      description:
        'adaptive (by effort, unless it is said) or budget (in tokens): how a messages model is told to reason',
    },
  },
} as const

/** Schema of one entry of `keyTypes`. */
export const KEY_TYPE = {
  type: 'object',
  description: 'a key type: upstream, formats, default and models',
  additionalProperties: false,
  required: ['upstream', 'formats', 'default', 'models'],
  properties: {
    upstream: { type: 'string', description: 'the name of an entry of `upstreams`' },
    formats: FORMAT_LIST,
    default: { ...MODEL_ID, description: 'the id of the default model, one of `models`' },
    fillDefault: {
      type: 'boolean',
      default: false,
      description: 'true to serve requests without a model with the default',
    },
    concurrency: {
      type: 'integer',
      minimum: 1,
      default: 50,
      description: 'the most requests of one key that may run at a time',
    },
    concurrencyWait: { ...PAUSE, default: '2s' },
    abandoned: {
      type: 'integer',
      minimum: 1,
      maximum: 1000,
      default: 8,
      description: 'the most replies of one key that are read on at a time for clients that have left',
    },
    onDisabled: {
      type: 'string',
      enum: ['end', 'finish'],
      default: 'end',
      description: 'end or finish: what happens to the running streams of a key that is disabled, expired or rotated',
    },
    holdAhead: {
      type: 'integer',
      minimum: 1,
      maximum: MOST_TOKENS,
      default: 4096,
      description: 'a number of output tokens, which are held for at a time while a stream runs',
    },
    clampOutput: {
      type: 'boolean',
      default: false,
      description:
        'true or false: whether to lower the output limit of a request to what the balance pays for, instead of refusing it',
    },
    policy: POLICY,
    models: { type: 'array', minItems: 1, items: MODEL, description: 'a list of models' },
  },
} as const
