/**
 * The top level of the JSON Schema of gateway.yaml, with its defaults. The reference in docs/ is generated from the
 * schemas.
 */
import type { FromSchema } from 'json-schema-to-ts'
import { PLAIN_TEXT } from '../lib/printable.ts'
import { PRICE_ENTRY } from './price-schema.ts'
import { AGE, DURATION, PAUSE, SIZE, SIZE_OR_AUTO } from './units.ts'
import { BOOLEAN, RANGE, section, setting, whole } from './section-schema.ts'
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
      port: setting(whole(0, 65535), 8080, 'Port to listen on; 0 takes a free one.'),
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
    workers: setting(whole(1, 256), 1, 'Number of processes that share the port.'),
    production: setting(
      BOOLEAN,
      false,
      'Whether to refuse the simulated provider, the embedded store, and stores that may lose data.',
    ),
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
      replicas: setting(
        whole(0, 16),
        0,
        'Number of replicas that each Redis must have online. In production mode, fewer are refused.',
      ),
      records: {
        type: 'string',
        minLength: 1,
        default: 'auto',
        expected: 'a postgres:// URL, or auto',
        description:
          'Where keys, grants and ended exchanges are recorded: `postgres://`, like `postgres://host:5432/database`; `auto` is a SQLite file in `store.data`.',
      },
      recordsConnections: setting(whole(2, 100), 4, 'Connections of each process to PostgreSQL.'),
      recordsTimeout: setting(DURATION, '10s', 'Time limit of one query of PostgreSQL.'),
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
      commandTimeout: setting(DURATION, '400ms', 'Time limit of one store command; then the request is refused.'),
    }),
    ledger: section('Leases of holds, and retention times.', {
      lease: setting(
        DURATION,
        '60s',
        'How long a hold lives without renewal. Renewals come every third of it; an expired hold is charged for what was delivered before the last one.',
      ),
      reapEvery: setting(DURATION, '10s', 'Interval of the search for expired holds.'),
      archiveEvery: setting(
        DURATION,
        '100ms',
        'How long after its end an exchange is recorded, with those that end meanwhile. Of several processes, one records; it learns within a second what has ended in the others.',
      ),
      backlog: setting(
        SIZE,
        '256MiB',
        'Memory of the store for ended exchanges that cannot be recorded; beyond it, new requests are refused.',
      ),
      unrecorded: setting(
        DURATION,
        '1h',
        'How long an ended exchange may wait to be recorded; beyond it, new requests are refused. What waits is lost if the store and the gateway die together.',
      ),
      history: setting(
        AGE,
        '400d',
        'How long history entries are kept. Older ones are deleted; the sums of their accounts remain.',
      ),
      dayHistory: setting(
        AGE,
        '800d',
        'How long the sums of each day are kept by key, for reports of usage; at least 32 days. Those of all keys together remain.',
      ),
      failureHistory: setting(AGE, '30d', 'How long the causes of failed requests are kept.'),
      retries: setting(
        DURATION,
        '15m',
        'How long a reply is kept for a resend, and how long an undelivered request counts for one.',
      ),
      keptReplies: setting(
        SIZE,
        '64MiB',
        'Memory for all replies that are kept for resends; the same again while they arrive.',
      ),
      waivers: setting(
        whole(0, 10_000),
        20,
        'Maximum charges per key and hour that are waived for undelivered requests.',
      ),
      freeEntries: setting(
        whole(0, 10_000),
        10,
        'Maximum history entries per key and minute for requests that cost nothing, and failures per key, error code and minute whose causes are kept; more of them are only counted.',
      ),
      stored: setting(AGE, '30d', 'How long the gateway remembers which key created a stored reply or item.'),
      auditEvery: setting(DURATION, '1h', "Interval of the check of every account's sums."),
      keyCache: setting(
        DURATION,
        '10s',
        "How long a key's record is used for requests that hold nothing, such as a list of models. A hold always checks the record itself.",
      ),
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
      connections: setting(
        whole(1),
        10000,
        'Maximum open client connections; fewer if the heap has no room for 32 KiB each in a quarter of its size, or if the process may not have 64 open files and two for each (`ulimit -n`).',
      ),
      url: setting(SIZE, '8KiB', 'Maximum size of a request URL.'),
      headers: setting(SIZE, '16KiB', 'Maximum size of the request headers, plus what the URL leaves of `limits.url`.'),
      headersTime: setting(DURATION, '10s', 'Time limit for the request headers.'),
      body: setting(SIZE, '32MiB', 'Maximum size of a request body.'),
      values: setting(
        whole(1000, 10_000_000),
        250_000,
        'Maximum JSON values in a request: every list element and every object member is one.',
      ),
      depth: setting(whole(8, 1000), 64, 'Maximum nesting of the JSON in a request.'),
      memory: setting(
        SIZE_OR_AUTO,
        'auto',
        "Memory for requests and replies in flight, of all workers together; `auto` is half of the heap limit or of the container's memory. Beyond it, status 503.",
      ),
      bodyIdle: setting(DURATION, '15s', 'Time limit for a pause inside a request body.'),
      bodyTime: setting(DURATION, '120s', 'Time limit for a whole request body.'),
      reply: setting(SIZE, '64MiB', 'Maximum size of a JSON reply, or of one event of a stream.'),
      writeIdle: setting(DURATION, '60s', 'Time limit for a client that does not read its stream.'),
      keepalive: setting(DURATION, '15s', 'Interval after which a silent stream gets a comment.'),
      idleConnection: setting(DURATION, '65s', 'How long an idle client connection is kept.'),
      idlePerAddress: setting(
        whole(1),
        2000,
        'Maximum idle connections per client address, including those without a request; beyond it, the one idle longest is closed.',
      ),
      anonymous: setting(
        whole(1),
        600,
        'Maximum requests without a valid key per client address and minute, except `/health` and `/health/ready`; beyond it, status 429. The requests of a trusted proxy itself do not count.',
      ),
      trustedProxies: {
        type: 'array',
        default: [],
        items: RANGE,
        description:
          "Addresses and subnets of your own proxies, such as `[10.0.0.0/8]`; only what they say about a client's address is trusted.",
      },
      proxyProtocol: setting(
        BOOLEAN,
        false,
        'Whether each connection from `trustedProxies` begins with a header of the PROXY protocol, version 1 or 2. One without it is closed.',
      ),
      unreadBody: setting(SIZE, '32MiB', 'Maximum bytes of a body that are discarded after an early response.'),
      unreadTime: setting(DURATION, '2s', 'Time limit for discarding a body.'),
      unreadBodies: setting(
        whole(0),
        100,
        'Maximum bodies that are discarded at a time; beyond it, the connection closes with the response.',
      ),
      stage: setting(
        DURATION,
        '30s',
        "Time limit of one stage's `request`, `attempt`, `response`, `progress`, `decide`, `settle` or `close` hook, and of its setup.",
      ),
      drainDelay: setting(PAUSE, '0s', 'Time between the signal to stop and the first refused connection.'),
      drain: setting(
        DURATION,
        '30s',
        'Time limit for running streams to end after a signal; then they are ended with an error.',
      ),
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
