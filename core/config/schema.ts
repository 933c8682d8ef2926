/** The shape of gateway.yaml. Defaults stand here and nowhere else; README's table of options is checked against it. */
import type { FromSchema } from 'json-schema-to-ts'
import { FORMAT_NAMES } from '../formats/terms.ts'
import { POLICY, PRICE_ENTRY } from './price-schema.ts'
import { AGE, DURATION, MOST_TOKENS, PAUSE, SIZE, SIZE_OR_AUTO } from './units.ts'

/** An object with exactly these members, all of them optional. */
const section = <const P>(description: string, properties: P) =>
  ({ type: 'object', description, additionalProperties: false, default: {}, properties }) as const

const FORMATS = {
  type: 'array',
  minItems: 1,
  uniqueItems: true,
  description: `a list of wire formats: ${FORMAT_NAMES.join(', ')}`,
  items: { type: 'string', enum: FORMAT_NAMES, description: `one of ${FORMAT_NAMES.join(', ')}` },
} as const

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

const UPSTREAM = {
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
    speaks: FORMATS,
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

const KEY_TYPE = {
  type: 'object',
  description: 'a key type: upstream, formats, default and models',
  additionalProperties: false,
  required: ['upstream', 'formats', 'default', 'models'],
  properties: {
    upstream: { type: 'string', description: 'the name of an entry of `upstreams`' },
    formats: FORMATS,
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

/** A mapping from names that are safe in log lines, store keys and headers. */
const named = <const S>(items: S, description: string) =>
  ({
    type: 'object',
    description,
    propertyNames: {
      pattern: '^[A-Za-z][A-Za-z0-9_-]{0,63}$',
      description: 'a name: a letter, then letters, digits, - or _',
    },
    additionalProperties: items,
  }) as const

export const SCHEMA = {
  type: 'object',
  description: 'a mapping with the sections of gateway.yaml',
  additionalProperties: false,
  required: ['upstreams', 'prices', 'keyTypes', 'chain'],
  properties: {
    listen: section('host and port, such as { host: 0.0.0.0, port: 8080 }', {
      host: { type: 'string', minLength: 1, default: '127.0.0.1', description: 'an address to listen on' },
      port: { type: 'integer', minimum: 0, maximum: 65535, default: 8080, description: 'a port; 0 takes a free one' },
    }),
    workers: {
      type: 'integer',
      minimum: 1,
      maximum: 256,
      default: 1,
      description: 'a number of processes, which share the port',
    },
    production: {
      type: 'boolean',
      default: false,
      description: 'true or false: whether to refuse what is only good for a first look',
    },
    log: {
      type: 'string',
      enum: ['debug', 'info', 'warn', 'error', 'silent'],
      default: 'info',
      description: 'debug, info, warn, error or silent: the least that is logged',
    },
    store: section('where balances live', {
      redis: {
        type: 'string',
        minLength: 1,
        default: 'auto',
        description: 'a redis://, redis+sentinel:// or redis+cluster:// URL, or `auto`',
      },
      replicas: {
        type: 'integer',
        minimum: 0,
        maximum: 16,
        default: 0,
        description: 'a number of replicas, which must have a grant before it is acknowledged',
      },
      data: {
        type: 'string',
        minLength: 1,
        default: './data',
        description: 'a folder for the managed store and for settlements that wait, relative to this file',
      },
      prefix: {
        type: 'string',
        pattern: '^[a-z][a-z0-9-]{0,31}$',
        default: 'tollgate',
        description: 'a prefix of lower-case letters, digits and -',
      },
      commandTimeout: { ...DURATION, default: '400ms' },
    }),
    ledger: section('how holds and history are kept', {
      lease: { ...DURATION, default: '60s' },
      reapEvery: { ...DURATION, default: '10s' },
      remember: { ...AGE, default: '48h' },
      history: { ...AGE, default: '400d' },
      retries: { ...DURATION, default: '15m' },
      keptReplies: { ...SIZE, default: '64MiB' },
      waivers: {
        type: 'integer',
        minimum: 0,
        maximum: 10_000,
        default: 20,
        description: 'the most waivers of one key in an hour',
      },
      freeEntries: {
        type: 'integer',
        minimum: 0,
        maximum: 10_000,
        default: 10,
        description:
          'the most entries that a key gets in a minute for requests that cost nothing; more of them are counted',
      },
      stored: { ...AGE, default: '30d' },
      auditEvery: { ...DURATION, default: '1h' },
      keyCache: { ...DURATION, default: '10s' },
    }),
    limits: section('limits of the HTTP side', {
      connections: {
        type: 'integer',
        minimum: 1,
        default: 10000,
        description: 'a number of client connections, which may be open at a time',
      },
      url: { ...SIZE, default: '8KiB' },
      headers: { ...SIZE, default: '16KiB' },
      headersTime: { ...DURATION, default: '10s' },
      body: { ...SIZE, default: '32MiB' },
      values: {
        type: 'integer',
        minimum: 1000,
        maximum: 10_000_000,
        default: 250_000,
        description: 'a number of JSON values, which a request may hold',
      },
      depth: {
        type: 'integer',
        minimum: 8,
        maximum: 1000,
        default: 64,
        description: 'a number of levels, to which the JSON of a request may be nested',
      },
      memory: { ...SIZE_OR_AUTO, default: 'auto' },
      bodyIdle: { ...DURATION, default: '15s' },
      bodyTime: { ...DURATION, default: '120s' },
      reply: { ...SIZE, default: '64MiB' },
      writeIdle: { ...DURATION, default: '60s' },
      keepalive: { ...DURATION, default: '15s' },
      idleConnection: { ...DURATION, default: '65s' },
      idlePerAddress: {
        type: 'integer',
        minimum: 1,
        default: 2000,
        description: 'a number of idle connections, which one address may keep open',
      },
      anonymous: {
        type: 'integer',
        minimum: 1,
        default: 600,
        description: 'a number of requests without a valid key, which one address may make in a minute',
      },
      trustedProxies: {
        type: 'array',
        default: [],
        items: { type: 'string', format: 'range', description: 'an address, or a subnet such as 10.0.0.0/8' },
        description:
          'a list of addresses and subnets of your own proxies, such as [10.0.0.0/8], whose x-forwarded-for is believed',
      },
      unreadBody: { ...SIZE, default: '32MiB' },
      unreadTime: { ...DURATION, default: '2s' },
      unreadBodies: {
        type: 'integer',
        minimum: 0,
        default: 100,
        description: 'a number of request bodies, which may be thrown away unread at a time',
      },
      stage: { ...DURATION, default: '30s' },
      drainDelay: { ...PAUSE, default: '0s' },
      drain: { ...DURATION, default: '30s' },
    }),
    plugins: {
      type: 'array',
      items: { type: 'string', minLength: 1 },
      default: ['./plugins'],
      description: 'folders with your own plugins, relative to this file',
    },
    upstreams: named(UPSTREAM, 'upstreams by name'),
    prices: named(PRICE_ENTRY, 'prices by name'),
    keyTypes: named(KEY_TYPE, 'key types by name'),
    chain: {
      type: 'array',
      minItems: 1,
      description: 'the list of stages',
      items: {
        anyOf: [
          { type: 'string', minLength: 1 },
          { type: 'object', minProperties: 1, maxProperties: 1 },
        ],
        description: 'a stage: its name, or { name: { options } }',
      },
    },
  },
} as const

/** gateway.yaml as it parses, defaults filled in. */
export type RawConfig = FromSchema<typeof SCHEMA>
