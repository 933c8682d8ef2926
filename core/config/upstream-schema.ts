/** JSON Schema of upstreams and their accounts. */

import { FORMAT_LIST, section } from './section-schema.ts'
import { DURATION, MOST_TOKENS } from './units.ts'

const ACCOUNT = {
  type: 'object',
  description: 'an account such as { key: !env FAMA_KEY }',
  additionalProperties: false,
  required: ['key'],
  properties: {
    key: {
      type: 'string',
      pattern: '^[!-~]+$',
      description: 'the credential, without spaces or line breaks; best written as !env NAME',
    },
    header: {
      type: 'string',
      enum: ['authorization', 'x-api-key'],
      default: 'authorization',
      description: 'authorization (as a bearer credential) or x-api-key: which header carries the key',
    },
    quota: {
      type: 'object',
      description: 'a quota such as { credits: 500, per: week }',
      additionalProperties: false,
      required: ['credits', 'per'],
      properties: {
        credits: {
          type: 'number',
          exclusiveMinimum: 0,
          description: 'credits at the prices of this file, a plain decimal',
        },
        per: { type: 'string', enum: ['day', 'week'], description: 'day or week; in UTC, weeks begin on Monday' },
      },
    },
  },
} as const

/** Schema of one entry of `upstreams`. */
export const UPSTREAM = {
  type: 'object',
  description: 'an upstream: url, speaks and accounts',
  additionalProperties: false,
  required: ['url', 'speaks', 'accounts'],
  properties: {
    url: {
      type: 'string',
      minLength: 1,
      description: 'the base address without /v1, or `simulated` for the built-in simulated provider',
    },
    speaks: FORMAT_LIST,
    accounts: {
      type: 'array',
      minItems: 1,
      maxItems: 1,
      items: ACCOUNT,
      description: 'a list of one account, such as [{ key: !env FAMA_KEY }]',
    },
    cost: {
      type: 'object',
      description:
        "names of entries of `prices` by the upstream's name of a model, * for all others, such as { '*': wholesale }: what this upstream charges you",
      additionalProperties: { type: 'string', description: 'the name of an entry of `prices`' },
    },
    dollar: {
      type: 'number',
      exclusiveMinimum: 0,
      description:
        'credits that one dollar is worth, a plain decimal: then a cost that the upstream itself reports counts before `cost`',
    },
    allowPrivate: {
      type: 'boolean',
      default: false,
      description: 'true to permit link-local addresses and plain http to other hosts',
    },
    onDisconnect: {
      type: 'string',
      enum: ['cancel', 'finish'],
      description:
        'cancel or finish: whether a stream is closed when its client leaves, or read on for the usage at its end',
    },
    defaultOutput: {
      type: 'integer',
      minimum: 1,
      maximum: MOST_TOKENS,
      default: 32_000,
      description:
        'a number of output tokens, asked for where the format wants one and neither the request nor the model names it',
    },
    timeouts: section('time limits of this upstream', {
      connect: { ...DURATION, default: '5s' },
      keepAlive: { ...DURATION, default: '4s' },
      firstByte: { ...DURATION, default: '600s' },
      idle: { ...DURATION, default: '120s' },
      total: { ...DURATION, default: '3600s' },
      finish: { ...DURATION, default: '60s' },
      usage: { ...DURATION, default: '15s' },
    }),
  },
} as const
