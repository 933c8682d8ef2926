/**
 * The top level of the JSON Schema of gateway.yaml, with its defaults. The reference in docs/ is generated from the
 * schemas.
 */
import type { FromSchema } from 'json-schema-to-ts'
import { PLAIN_TEXT } from '../lib/printable.ts'
import { PRICE_ENTRY } from './price-schema.ts'
import { AGE, DURATION, PAUSE, SIZE, SIZE_OR_AUTO } from './units.ts'
import { RANGE, section } from './section-schema.ts'
import { UPSTREAM } from './upstream-schema.ts'
import { KEY_TYPE } from './key-type-schema.ts'
import { GROUP } from './plan-schema.ts'

/** Schema of a mapping whose names are safe in log lines, store keys and headers. */
const named = <const S>(items: S, description: string) =>
  ({
    type: 'object',
    description,
    propertyNames: {
      pattern: '^[A-Za-z][A-Za-z0-9_-]{0,63}$',
      expected: 'a name: a letter, then letters, digits, - or _',
    },
    additionalProperties: items,
  }) as const

/** JSON Schema of gateway.yaml, without the plugins' options. */
export const SCHEMA = {
  type: 'object',
  description: 'The configuration of Tollgate.',
  additionalProperties: false,
  required: ['upstreams', 'prices', 'keyTypes', 'chain'],
  properties: {
    listen: section('Where the gateway listens.', {
      host: { type: 'string', minLength: 1, default: '127.0.0.1', description: 'Address to listen on.' },
      port: {
        type: 'integer',
        minimum: 0,
        maximum: 65535,
        default: 8080,
        description: 'Port to listen on; 0 takes a free one.',
      },
    }),
    contact: {
      type: 'string',
      minLength: 1,
      maxLength: 300,
      pattern: PLAIN_TEXT,
      default: 'your reseller',
      expected: 'a name, an e-mail address or an https:// address',
      description:
        'Whom customers ask: a name, an e-mail address, or an https:// address. The page and errors name it.',
    },
    workers: {
      type: 'integer',
      minimum: 1,
      maximum: 256,
      default: 1,
      description: 'Number of processes that share the port.',
    },
    production: {
      type: 'boolean',
      default: false,
      description: 'Whether to refuse the simulated provider, the embedded store, and stores that may lose data.',
    },
    log: {
      type: 'string',
      enum: ['debug', 'info', 'warn', 'error', 'silent'],
      default: 'info',
      description: 'Lowest level that is logged; `info` includes one line per request.',
    },
    store: section('Where balances and records are stored.', {
      redis: {
        type: 'string',
        minLength: 1,
        default: 'auto',
        expected: 'a redis://, redis+cluster:// or redis+sentinel:// URL, or auto',
        description:
          'Address of the store: `redis://`, `redis+sentinel://` or `redis+cluster://`, `rediss` for TLS; `auto` starts a redis-server.',
      },
      replicas: {
        type: 'integer',
        minimum: 0,
        maximum: 16,
        default: 0,
        description: 'Number of replicas that each Redis must have online. In production mode, fewer are refused.',
      },
      records: {
        type: 'string',
        minLength: 1,
        default: 'auto',
        expected: 'a postgres:// URL, or auto',
        description:
          'Where keys, grants and ended exchanges are recorded: `postgres://`, like `postgres://host:5432/database`; `auto` is a SQLite file in `store.data`.',
      },
      recordsConnections: {
        type: 'integer',
        minimum: 2,
        maximum: 100,
        default: 4,
        description: 'Connections of each process to PostgreSQL.',
      },
      recordsTimeout: {
        ...DURATION,
        default: '10s',
        description: 'Time limit of one query of PostgreSQL.',
      },
      data: {
        type: 'string',
        minLength: 1,
        default: './data',
        description: 'Folder for the records, the managed store and the outbox, relative to this file.',
      },
      prefix: {
        type: 'string',
        pattern: '^[a-z][a-z0-9-]{0,31}$',
        default: 'tollgate',
        expected: 'up to 32 lower-case letters, digits and -, the first a letter',
        description: 'Prefix of all keys in the store. Gateways with different prefixes can share one Redis.',
      },
      commandTimeout: {
        ...DURATION,
        default: '400ms',
        description: 'Time limit of one store command; then the request is refused.',
      },
    }),
    ledger: section('Leases of holds, and retention times.', {
      lease: {
        ...DURATION,
        default: '60s',
        description:
          'How long a hold lives without renewal. Renewals come every third of it; an expired hold is charged for what was delivered before the last one.',
      },
      reapEvery: { ...DURATION, default: '10s', description: 'Interval of the search for expired holds.' },
      archiveEvery: {
        ...DURATION,
        default: '100ms',
        description:
          'How long after its end an exchange is recorded, with those that end meanwhile. Of several processes, one records; it learns within a second what has ended in the others.',
      },
      backlog: {
        ...SIZE,
        default: '256MiB',
        description:
          'Memory of the store for ended exchanges that cannot be recorded; beyond it, new requests are refused.',
      },
      unrecorded: {
        ...DURATION,
        default: '1h',
        description:
          'How long an ended exchange may wait to be recorded; beyond it, new requests are refused. What waits is lost if the store and the gateway die together.',
      },
      history: {
        ...AGE,
        default: '400d',
        description: 'How long history entries are kept. Older ones are deleted; the sums of their accounts remain.',
      },
      dayHistory: {
        ...AGE,
        default: '800d',
        description:
          'How long the sums of each day are kept by key, for reports of usage; at least 32 days. Those of all keys together remain.',
      },
      failureHistory: {
        ...AGE,
        default: '30d',
        description: 'How long the causes of failed requests are kept.',
      },
      retries: {
        ...DURATION,
        default: '15m',
        description: 'How long a reply is kept for a resend, and how long an undelivered request counts for one.',
      },
      keptReplies: {
        ...SIZE,
        default: '64MiB',
        description: 'Memory for all replies that are kept for resends; the same again while they arrive.',
      },
      waivers: {
        type: 'integer',
        minimum: 0,
        maximum: 10_000,
        default: 20,
        description: 'Maximum charges per key and hour that are waived for undelivered requests.',
      },
      freeEntries: {
        type: 'integer',
        minimum: 0,
        maximum: 10_000,
        default: 10,
        description:
          'Maximum history entries per key and minute for requests that cost nothing, and failures per key, error code and minute whose causes are kept; more of them are only counted.',
      },
      stored: {
        ...AGE,
        default: '30d',
        description: 'How long the gateway remembers which key created a stored reply or item.',
      },
      auditEvery: { ...DURATION, default: '1h', description: "Interval of the check of every account's sums." },
      keyCache: {
        ...DURATION,
        default: '10s',
        description:
          "How long a key's record is used for requests that hold nothing, such as a list of models. A hold always checks the record itself.",
      },
    }),
    keys: section("What customers' secrets look like.", {
      prefixes: {
        type: 'array',
        default: [],
        maxItems: 20,
        uniqueItems: true,
        items: {
          type: 'string',
          pattern: '^[A-Za-z][A-Za-z0-9_-]{1,15}[_-]$',
          expected: '3 to 17 letters, digits, - and _, the first a letter, the last - or _',
        },
        description:
          'What imported secrets may begin with beside `sk-`, such as `[cr_]`. At least 20 characters follow.',
      },
      importSuffix: {
        type: 'string',
        minLength: 1,
        maxLength: 500,
        expected: '!env NAME',
        description:
          'What a gateway before this one has appended to secrets before it hashed them; for keys that were imported with such hashes.',
      },
    }),
    limits: section('Limits on what clients may send and occupy.', {
      connections: {
        type: 'integer',
        minimum: 1,
        default: 10000,
        description:
          'Maximum open client connections; fewer if the heap has no room for 32 KiB each in a quarter of its size, or if the process may not have 64 open files and two for each (`ulimit -n`).',
      },
      url: { ...SIZE, default: '8KiB', description: 'Maximum size of a request URL.' },
      headers: {
        ...SIZE,
        default: '16KiB',
        description: 'Maximum size of the request headers, plus what the URL leaves of `limits.url`.',
      },
      headersTime: { ...DURATION, default: '10s', description: 'Time limit for the request headers.' },
      body: { ...SIZE, default: '32MiB', description: 'Maximum size of a request body.' },
      values: {
        type: 'integer',
        minimum: 1000,
        maximum: 10_000_000,
        default: 250_000,
        description: 'Maximum JSON values in a request: every list element and every object member is one.',
      },
      depth: {
        type: 'integer',
        minimum: 8,
        maximum: 1000,
        default: 64,
        description: 'Maximum nesting of the JSON in a request.',
      },
      memory: {
        ...SIZE_OR_AUTO,
        default: 'auto',
        description:
          "Memory for requests and replies in flight, of all workers together; `auto` is half of the heap limit or of the container's memory. Beyond it, status 503.",
      },
      bodyIdle: { ...DURATION, default: '15s', description: 'Time limit for a pause inside a request body.' },
      bodyTime: { ...DURATION, default: '120s', description: 'Time limit for a whole request body.' },
      reply: { ...SIZE, default: '64MiB', description: 'Maximum size of a JSON reply, or of one event of a stream.' },
      writeIdle: { ...DURATION, default: '60s', description: 'Time limit for a client that does not read its stream.' },
      keepalive: { ...DURATION, default: '15s', description: 'Interval after which a silent stream gets a comment.' },
      idleConnection: { ...DURATION, default: '65s', description: 'How long an idle client connection is kept.' },
      idlePerAddress: {
        type: 'integer',
        minimum: 1,
        default: 2000,
        description:
          'Maximum idle connections per client address, including those without a request; beyond it, the one idle longest is closed.',
      },
      anonymous: {
        type: 'integer',
        minimum: 1,
        default: 600,
        description:
          'Maximum requests without a valid key per client address and minute, except `/health` and `/health/ready`; beyond it, status 429. The requests of a trusted proxy itself do not count.',
      },
      trustedProxies: {
        type: 'array',
        default: [],
        items: RANGE,
        description:
          "Addresses and subnets of your own proxies, such as `[10.0.0.0/8]`; only what they say about a client's address is trusted.",
      },
      proxyProtocol: {
        type: 'boolean',
        default: false,
        description:
          'Whether each connection from `trustedProxies` begins with a header of the PROXY protocol, version 1 or 2. One without it is closed.',
      },
      unreadBody: {
        ...SIZE,
        default: '32MiB',
        description: 'Maximum bytes of a body that are discarded after an early response.',
      },
      unreadTime: { ...DURATION, default: '2s', description: 'Time limit for discarding a body.' },
      unreadBodies: {
        type: 'integer',
        minimum: 0,
        default: 100,
        description: 'Maximum bodies that are discarded at a time; beyond it, the connection closes with the response.',
      },
      stage: {
        ...DURATION,
        default: '30s',
        description:
          "Time limit of one stage's `request`, `attempt`, `response`, `progress`, `decide`, `settle` or `close` hook, and of its setup.",
      },
      drainDelay: {
        ...PAUSE,
        default: '0s',
        description: 'Time between the signal to stop and the first refused connection.',
      },
      drain: {
        ...DURATION,
        default: '30s',
        description: 'Time limit for running streams to end after a signal; then they are ended with an error.',
      },
    }),
    plugins: {
      type: 'array',
      items: { type: 'string', minLength: 1 },
      default: ['./plugins'],
      description: 'Folders with your own plugins, relative to this file.',
    },
    upstreams: named(UPSTREAM, 'Providers that the gateway buys from, by name.'),
    prices: named(PRICE_ENTRY, 'Prices, by name.'),
    groups: {
      ...named(GROUP, 'Groups of models, by name, which plans and limits may list.'),
      default: {},
    },
    keyTypes: named(KEY_TYPE, 'Key types, by name.'),
    chain: {
      type: 'array',
      minItems: 1,
      expected: 'a list of stages',
      description: 'Stages of the plugin pipeline, in the order in which a request passes them.',
      items: {
        anyOf: [
          { type: 'string', minLength: 1 },
          { type: 'object', minProperties: 1, maxProperties: 1 },
        ],
        expected: 'a stage: its name, or { name: { options } }',
        description: 'The name of a plugin, or the name with its options.',
      },
    },
  },
} as const

/** The parsed content of gateway.yaml, with defaults filled in. */
export type RawConfig = FromSchema<typeof SCHEMA>
