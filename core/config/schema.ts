/** JSON Schema of gateway.yaml. This is the only place for defaults. The reference in docs/ is generated from it. */
import type { FromSchema } from 'json-schema-to-ts'
import { PRICE_ENTRY } from './price-schema.ts'
import { AGE, DURATION, PAUSE, SIZE, SIZE_OR_AUTO } from './units.ts'
import { section } from './section-schema.ts'
import { UPSTREAM } from './upstream-schema.ts'
import { KEY_TYPE } from './key-type-schema.ts'

/** Schema of a mapping whose names are safe in log lines, store keys and headers. */
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

/** The parsed content of gateway.yaml, with defaults filled in. */
export type RawConfig = FromSchema<typeof SCHEMA>
