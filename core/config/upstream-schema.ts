/** JSON Schema of upstreams and their accounts. */

import { FAILURE_ABOUTS } from '../formats/classify.ts'
import { END_MEANINGS } from '../formats/terms.ts'
import { BOOLEAN, FORMAT_LIST, section, setting, whole } from './section-schema.ts'
import { DURATION, TOKENS_MAX } from './units.ts'

/** The members of a quota. */
const QUOTA_SHAPE = {
  additionalProperties: false,
  required: ['per'],
  properties: {
    credits: { type: 'number', exclusiveMinimum: 0, description: 'Credits that customers are charged.' },
    cost: {
      type: 'number',
      exclusiveMinimum: 0,
      description:
        'Credits that the upstream charges you, as it reports with `dollar`, or at the prices of its `cost`; in place of `credits`.',
    },
    per: {
      type: 'string',
      pattern: '^(?:day|week|month|[1-9]\\d{0,4}[mhd])$',
      expected: 'day, week, month, or a duration such as 5h for a rolling window',
      description: '`day`, `week` or `month` of a calendar, or a duration such as `5h` for a rolling window.',
    },
    anchor: {
      type: 'string',
      pattern: '^(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|[1-9]|1\\d|2[0-8]) )?(?:[01]\\d|2[0-3]):[0-5]\\d$',
      expected: "a time such as '00:00', 'Mon 00:00' for a week or '15 08:00' for a month",
      description: "When a window of the calendar begins: `'00:00'`, `'Mon 00:00'`, `'1 00:00'`.",
    },
    zone: {
      type: 'string',
      minLength: 1,
      description: 'Time zone of the calendar, such as `Europe/Berlin`; UTC by default.',
    },
    fairShare: setting(BOOLEAN, false, 'Whether each key has an equal share, so that one key cannot use up the quota.'),
  },
} as const

const QUOTA = { type: 'object', description: 'A quota.', ...QUOTA_SHAPE } as const

const ACCOUNT = {
  type: 'object',
  description: 'An account at the provider.',
  additionalProperties: false,
  required: ['key'],
  properties: {
    name: {
      type: 'string',
      pattern: '^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$',
      expected: 'a name of letters, digits, - and _',
      description:
        'Name of the account in the log, the history and the commands; its place in the list by default. Its quota belongs to this name.',
    },
    key: {
      type: 'string',
      pattern: '^[!-~]+$',
      expected: 'a credential without spaces or line breaks',
      description: 'Credential of the account, best written as `!env NAME` or `!file PATH`.',
    },
    header: {
      type: 'string',
      enum: ['authorization', 'x-api-key'],
      default: 'authorization',
      description: 'Header that carries the key; `authorization` sends it as a bearer token.',
    },
    url: {
      type: 'string',
      minLength: 1,
      description: "Base address of this account, if it differs from the upstream's.",
    },
    proxy: {
      type: 'string',
      minLength: 1,
      description:
        "Proxy by which the gateway connects to the provider for this account, such as `http://host:3128` or `socks5://host:1080`; it resolves the provider's name.",
    },
    weight: setting(
      whole(1, 1000),
      1,
      'Weight of this account among the others: the part of the conversations that it gets.',
    ),
    models: {
      type: 'array',
      minItems: 1,
      uniqueItems: true,
      items: { type: 'string', minLength: 1 },
      expected: 'a list of model names, such as [large-5, small-4.5]',
      description: 'Models that this account can serve, by the names that are sent; all by default.',
    },
    quota: {
      type: ['object', 'array'],
      minItems: 1,
      maxItems: 10,
      items: QUOTA,
      ...QUOTA_SHAPE,
      expected: 'a quota such as { credits: 500, per: week }, or a list of them',
      description:
        'Maximum spending of this account, in `credits` or in `cost`, shared by all keys that use it; several for several windows. When it is reached, the next account serves.',
    },
  },
} as const

/** Schema of one entry of `upstreams`. */
export const UPSTREAM = {
  type: 'object',
  description: 'A provider.',
  additionalProperties: false,
  required: ['url', 'speaks', 'accounts'],
  properties: {
    url: {
      type: 'string',
      minLength: 1,
      description: 'Base address without `/v1`; `simulated` is the built-in simulated provider.',
    },
    speaks: {
      ...FORMAT_LIST,
      description:
        "Formats that the upstream supports, preferred ones first. The client's own format is used if it is listed.",
    },
    accounts: {
      type: 'array',
      minItems: 1,
      maxItems: 1000,
      items: ACCOUNT,
      expected: 'a list of accounts, such as [{ key: !env FAMA_KEY }]',
      description: 'The accounts to use. A conversation stays with one of them while it can serve.',
    },
    cost: {
      type: 'object',
      description:
        "What this upstream charges you: names of prices by the upstream's name of a model, `*` for all others.",
      additionalProperties: { type: 'string', description: 'Name of a price, an entry of `prices`.' },
    },
    dollar: {
      type: 'number',
      exclusiveMinimum: 0,
      description: 'Credits per dollar. If set, a cost that the upstream reports takes precedence over `cost`.',
    },
    allowPrivate: setting(BOOLEAN, false, 'Whether link-local addresses, and plain http to other hosts, are allowed.'),
    http2: {
      type: 'string',
      enum: ['auto', 'off'],
      default: 'off',
      description:
        '`auto` uses HTTP/2 if the provider offers it by ALPN: many requests share a connection, and if it breaks, all of them fail.',
    },
    compaction: {
      type: 'string',
      enum: ['native', 'gateway'],
      default: 'gateway',
      description:
        'Who makes the compaction that a responses client asks for. `native`: the gateway forwards the request to the provider, which must speak responses and make compactions. `gateway`: the gateway asks the model for a summary.',
    },
    usage: section('How its reports of usage are meant, if they do not say it.', {
      cached: {
        type: 'string',
        enum: ['inside', 'beside'],
        description: 'Whether cached tokens are in the number of the input, or beside it.',
      },
      reasoning: {
        type: 'string',
        enum: ['inside', 'beside', 'rest'],
        description: 'Whether reasoning is in the number of the output, beside it, or only in the total.',
      },
    }),
    ends: {
      type: 'object',
      description: 'Words of this provider for why a reply ended, and what each means: see [Ends](providers.md#ends).',
      propertyNames: {
        pattern: '^[A-Za-z0-9_.-]{1,64}$',
        expected: 'a word that replies end with, such as out_of_memory',
      },
      additionalProperties: { type: 'string', enum: END_MEANINGS, description: 'What the word means.' },
    },
    onDisconnect: {
      type: 'string',
      enum: ['cancel', 'finish'],
      description:
        'What happens to a stream whose client leaves before the last content: `cancel` closes it, `finish` reads it for its usage. By default it depends on format and model.',
    },
    defaultOutput: setting(
      whole(1, TOKENS_MAX),
      32_000,
      'Output limit to send if the format requires one and neither the request nor `maxOutput` has one.',
    ),
    passes: {
      type: 'array',
      maxItems: 100,
      uniqueItems: true,
      default: [],
      items: { type: 'string', pattern: '^[A-Za-z0-9_.-]{1,64}$', expected: 'the name of a member' },
      expected: 'a list of names, such as [priority]',
      description:
        'Members of requests, and query parameters, that this provider gets although they are [not listed](providers.md#members-that-pass). Nothing is charged for them.',
    },
    failures: {
      type: 'array',
      maxItems: 100,
      default: [],
      expected: "a list of failures, such as [{ status: 400, message: 'balance', about: account }]",
      description: 'Failures of this provider that the gateway does not know, and what each is about.',
      items: {
        type: 'object',
        description: 'A failure. It needs `about` and at least one other member; all that are set must match.',
        additionalProperties: false,
        required: ['about'],
        minProperties: 2,
        expected: 'a failure with `about`, and `status`, `code` or `message`',
        properties: {
          status: { type: 'integer', minimum: 300, maximum: 599, description: 'Status of the answer.' },
          code: {
            type: 'string',
            minLength: 1,
            expected: 'a type or a code, such as E7',
            description: '`type` or `code` of the failure, whole.',
          },
          message: {
            type: 'string',
            minLength: 2,
            expected: 'a part of a message of at least two characters',
            description:
              'Part of the first 2000 characters of the message, in any case. Text in quotation marks is ignored.',
          },
          about: {
            type: 'string',
            enum: FAILURE_ABOUTS,
            description: 'What the failure is about: `request`, `account`, `model`, `provider` or `none`.',
          },
        },
      },
    },
    health: section(
      'When an account that fails is not asked for a time. A 429 that says how long takes it out at once.',
      {
        failures: setting(whole(1), 5, 'Failures in a row that take an account out.'),
        rate: {
          type: 'number',
          exclusiveMinimum: 0,
          maximum: 1,
          default: 0.5,
          expected: 'a share above 0 and at most 1, such as 0.5',
          description: 'Fraction of failures that takes an account out, above 0 and at most 1.',
        },
        least: setting(whole(1), 20, 'Requests within `window` from which `rate` counts.'),
        window: setting(DURATION, '60s', 'Time in which failures are counted.'),
        cooldown: setting(
          DURATION,
          '10s',
          'How long an account is out. The time doubles if the request that tries it then fails.',
        ),
        cooldownMax: setting(DURATION, '10m', 'Maximum of that time.'),
      },
    ),
    timeouts: section('Time limits of this upstream.', {
      connect: setting(DURATION, '5s', 'Time limit for connecting.'),
      keepAlive: setting(DURATION, '4s', "How long an idle connection is kept. Set it below the upstream's own limit."),
      connectionAge: setting(
        DURATION,
        '5m',
        'Age from which a connection takes no new request, so that a changed address is followed.',
      ),
      ping: setting(
        DURATION,
        '15s',
        'Interval of the checks of an HTTP/2 connection. It is closed if two are not answered.',
      ),
      firstByte: setting(DURATION, '600s', 'Time limit for the first byte of an answer.'),
      idle: setting(DURATION, '600s', 'Time limit for silence inside an answer.'),
      total: setting(DURATION, '3600s', 'Time limit for a whole exchange.'),
      finish: setting(DURATION, '60s', 'How long a stream is read after its client left, before the last content.'),
      usage: setting(DURATION, '15s', 'How long a stream is read after its last content, to learn its usage.'),
    }),
  },
} as const
