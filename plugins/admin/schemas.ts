/** The shapes of what the admin API takes and answers, as JSON Schemas. Those with a title are components of its OpenAPI. */
export { GIVEN_AMOUNT, GIVEN_DURATION, GIVEN_NAME, GIVEN_REASON } from 'tollgate/plugin/operator'
import * as operator from 'tollgate/plugin/operator'
import { PLAIN_TEXT } from 'tollgate/plugin/operator'

/** Schema of a text. */
export const TEXT = { type: 'string' } as const
/** Schema of an amount. */
export const AMOUNT = { type: 'string', description: 'Credits, as an exact decimal.' } as const
/** Schema of a time. */
export const TIME = { type: ['string', 'null'], description: 'ISO 8601.' } as const
/** Schema of a count. */
export const COUNT = { type: 'integer', minimum: 0 } as const
/** Schema of a duration. */
export const MS = { type: ['number', 'null'], description: 'Milliseconds.' } as const

/** A shape whose members are all there. */
export function shape<const P extends Readonly<Record<string, object>>>(title: string, properties: P) {
  return { title, type: 'object', additionalProperties: false, required: Object.keys(properties), properties } as const
}

/** A page of a list. */
export function listOf(items: object) {
  return shape('', {
    object: { const: 'list' },
    data: { type: 'array', items },
    has_more: { type: 'boolean' },
    next_cursor: { type: ['string', 'null'], description: 'Send it as `cursor` to get the next page.' },
  })
}

/** A time that a caller sends. */
export const GIVEN_TIME = {
  type: ['string', 'null'],
  maxLength: 40,
  expected: 'a time such as 2030-01-31 or 2030-01-31T12:00:00Z, or null',
} as const

/** A day. */
export const DAY = {
  type: 'string',
  pattern: String.raw`^\d{4}-\d{2}-\d{2}$`,
  expected: 'a day such as 2026-01-31',
  description: 'A UTC day.',
} as const

/** A key. */
export const KEY = shape('Key', {
  id: TEXT,
  type: TEXT,
  name: TEXT,
  label: { type: 'string', description: 'What the customer sees instead of the secret.' },
  hint: { type: 'string', description: 'The beginning and the end of the secret.' },
  batch: TEXT,
  status: { enum: [...operator.KEY_STATES, 'no_type'] },
  granted: { ...AMOUNT, description: 'What its balance was granted, in credits.' },
  balance: { ...AMOUNT, description: 'What it may still use of its credits.' },
  left: {
    ...AMOUNT,
    description: 'What it may use now: of its plan, or of its credits if no window of its plan is in credits.',
  },
  left_of: {
    ...AMOUNT,
    description:
      'Of how much: of the window of credits of its plan that has least, beside which it has `balance`, or of what its balance was granted.',
  },
  used_of_plan: { type: ['string', 'null'], description: 'What was used and is held of its widest window of credits.' },
  plan: { type: ['object', 'null'], description: 'The plan of its balance, as `GET /balances/{id}` shows it.' },
  held: AMOUNT,
  used: AMOUNT,
  created_at: TIME,
  expires_at: TIME,
  last_used_at: TIME,
  lifetime: { ...MS, description: 'Milliseconds for which it is valid from its first use; null for a fixed expiry.' },
  metadata: { type: 'object', additionalProperties: { type: 'string' } },
  manage: { type: 'boolean' },
  balance_id: { type: 'string', description: 'The balance that it spends from.' },
  cap: {
    type: ['string', 'null'],
    description: 'The most that it may use in its life, in credits; null for none of its own.',
  },
  limits: { type: ['object', 'null'], description: 'Limits of this key alone.' },
})
/** The columns of keys in CSV. */
export const KEY_COLUMNS = Object.keys(KEY.properties).filter(name => !['metadata', 'limits', 'plan'].includes(name))

/** A key after a change. */
export const CHANGED_KEY = shape('ChangedKey', {
  ...KEY.properties,
  in_force: {
    type: 'boolean',
    description: 'False if the store did not answer: a running gateway puts the change in force later.',
  },
})

const WINDOW = shape('PlanWindow', {
  window: { ...COUNT, description: 'The number of the window in the plan, from 1.' },
  unit: TEXT,
  per: TEXT,
  models: { type: ['array', 'null'], items: TEXT, description: 'Models and groups that it counts; null for all.' },
  limit: { type: 'string', description: 'Credits, requests or tokens.' },
  used: TEXT,
  held: TEXT,
  left: TEXT,
  since: TIME,
  resets_at: TIME,
})
const PLAN = {
  ...shape('Plan', {
    type: { type: ['string', 'null'], description: 'The key type that its terms are of; null for terms of its own.' },
    valid: { type: 'boolean' },
    bought_at: TIME,
    ends_at: TIME,
    renews_at: TIME,
    terms: { type: 'object' },
    windows: { type: 'array', items: WINDOW, description: 'None if the plan has ended.' },
  }),
  type: ['object', 'null'],
}

/** A balance. */
export const BALANCE = shape('Balance', {
  id: TEXT,
  name: TEXT,
  external_id: { type: 'string', description: 'What the shop calls it; empty if it does not.' },
  keys: { ...COUNT, description: 'Keys that spend from it and are not deleted.' },
  granted: AMOUNT,
  balance: AMOUNT,
  held: AMOUNT,
  used: AMOUNT,
  created_at: TIME,
  last_used_at: TIME,
  metadata: { type: 'object', additionalProperties: { type: 'string' } },
  plan: PLAN,
})
/** The columns of balances in CSV. */
export const BALANCE_COLUMNS = Object.keys(BALANCE.properties).filter(name => name !== 'metadata' && name !== 'plan')

/** Metadata that a caller sends. */
export const GIVEN_METADATA = {
  type: 'object',
  maxProperties: 20,
  propertyNames: { maxLength: 40 },
  additionalProperties: { type: 'string', maxLength: 500, pattern: PLAIN_TEXT },
  expected: 'an object with at most 20 texts of at most 500 characters each',
} as const

/** An external id that a caller sends. */
export const GIVEN_EXTERNAL_ID = {
  type: 'string',
  maxLength: 100,
  pattern: PLAIN_TEXT,
  expected: 'a text of at most 100 characters',
} as const

/** A key with its secret, which is shown only once. */
export const NEW_KEY = shape('NewKey', {
  id: TEXT,
  key: { type: 'string', description: 'The secret. It is shown only once.' },
  type: TEXT,
  name: TEXT,
  label: TEXT,
  hint: TEXT,
  batch: TEXT,
  balance_id: { type: 'string', description: 'The balance that it spends from.' },
  credits: AMOUNT,
  expires_at: TIME,
})

/** A redeem code. */
export const CODE = shape('Code', {
  id: TEXT,
  hint: TEXT,
  kind: { enum: operator.CODE_KINDS },
  type: { type: 'string', description: 'The type of the new key, or of the keys that may redeem it; empty for any.' },
  batch: TEXT,
  credits: AMOUNT,
  key_days: { type: ['number', 'null'], description: 'Days for which a new key is valid.' },
  status: { enum: operator.CODE_STATES },
  created_at: TIME,
  expires_at: TIME,
  used_at: TIME,
  used_by: { type: ['string', 'null'], description: 'The id of the key.' },
})
/** A redeem code with its text, which is shown only once. */
export const NEW_CODE = shape('NewCode', { ...CODE.properties, code: TEXT })

/** A token of an operator. */
export const TOKEN = shape('Token', {
  id: TEXT,
  name: TEXT,
  scope: { enum: operator.SCOPES },
  hint: TEXT,
  created_at: TIME,
  used_at: TIME,
  revoked_at: TIME,
})
/** A token with its secret, which is shown only once. */
export const NEW_TOKEN = shape('NewToken', { ...TOKEN.properties, token: TEXT })

/** A session of the page. */
export const SESSION = shape('Session', {
  token: TOKEN,
  csrf: { type: 'string', description: 'Send it as `x-csrf-token` with every request that changes something.' },
  expires_at: TIME,
  prefixes: { type: 'array', items: TEXT, description: 'What the secrets of keys begin with.' },
})

const QUOTA = shape('Quota', { window: TEXT, unit: TEXT, credits: AMOUNT, used: AMOUNT, resets_at: TIME })
/** An account of an upstream. */
export const ACCOUNT = shape('Account', {
  account: TEXT,
  upstream: TEXT,
  health: { type: 'string', description: '`ok`, or what is wrong.' },
  requests: COUNT,
  failures: COUNT,
  quotas: { type: 'array', items: QUOTA },
  weight: { type: 'number' },
  simulated: { type: 'boolean' },
  last_failure: { type: ['string', 'null'] },
  last_failure_at: TIME,
})

/** A model of a key type, with the rates of its price. */
const MODEL = shape('Model', {
  id: TEXT,
  alias_of: { type: ['string', 'null'] },
  context: { type: ['integer', 'null'] },
  max_output: { type: ['integer', 'null'] },
  input: AMOUNT,
  cache_read: AMOUNT,
  output: AMOUNT,
})
/** A key type. */
export const KEY_TYPE = shape('KeyType', {
  name: TEXT,
  keys: { ...COUNT, description: 'Keys of this type that are not deleted.' },
  plan: { type: ['object', 'null'], description: 'The terms of the plan that its new keys get.' },
  default_model: TEXT,
  formats: { type: 'array', items: TEXT },
  upstreams: { type: 'array', items: TEXT },
  models: { type: 'array', items: MODEL },
})

/** How an account answered a test. */
export const PROBED = shape('Probed', {
  account: TEXT,
  model: TEXT,
  ms: { ...COUNT, description: 'Milliseconds until it answered.' },
  failure: { type: ['string', 'null'], description: 'Why it failed; null if it works.' },
  simulated: {
    type: 'boolean',
    description: 'Whether the simulated provider takes its place, so that nothing was sent.',
  },
})

/** A grant. */
export const GRANT = shape('Grant', {
  id: TEXT,
  credits: { type: 'string', description: 'Negative if it was taken back.' },
  at: TIME,
  reason: TEXT,
  note: TEXT,
})

/** An entry of the audit log. */
export const AUDIT = shape('AuditEntry', {
  no: COUNT,
  at: TIME,
  actor: TEXT,
  address: TEXT,
  action: TEXT,
  target: TEXT,
  details: { type: 'object' },
})

/** An error. */
export const ERROR = shape('Error', {
  error: {
    type: 'object',
    required: ['message', 'type', 'code'],
    properties: { message: TEXT, type: TEXT, code: TEXT, param: { type: ['string', 'null'] } },
  },
})
