/** The shapes of reports in the admin API: usage, what happens, histories and statements. */
import { PAID_FROM } from 'tollgate/plugin/operator'
import { ACCOUNT, AMOUNT, COUNT, DAY, MS, shape, TEXT, TIME } from './schemas.ts'

const SUMS = {
  requests: COUNT,
  billed: COUNT,
  errors: { ...COUNT, description: 'Requests that failed because of the gateway, an account or a provider.' },
  refused: { ...COUNT, description: 'Requests that were refused because of their client or their key.' },
  input: COUNT,
  cache_read: COUNT,
  cache_write: COUNT,
  output: COUNT,
  reasoning: COUNT,
  credits: AMOUNT,
  cost: { type: 'string', description: 'What the requests cost the operator, as an exact decimal.' },
  margin: { type: 'string', description: 'What customers paid for what has a known cost, less that cost.' },
  without_cost: { type: 'string', description: 'What they paid for what has none.' },
  ms_p50: MS,
  ms_p95: MS,
  first_byte_ms_p50: MS,
  first_byte_ms_p95: MS,
} as const

/** The usage of one group. */
export const USAGE = {
  ...shape('Usage', { group: TEXT, ...SUMS }),
  properties: { group: TEXT, name: { type: 'string', description: "The operator's name of a key." }, ...SUMS },
} as const

const MODEL_SUMS = { requests: COUNT, input: COUNT, output: COUNT, credits: AMOUNT } as const
/** The usage of one key on one day. */
export const KEY_DAY = shape('KeyDay', {
  day: DAY,
  ...MODEL_SUMS,
  models: { type: 'array', items: shape('ModelUsage', { model: TEXT, ...MODEL_SUMS }) },
})

const LIVE = shape('Sums', SUMS)
const OVERVIEW_MEMBERS = {
  at: TIME,
  today: LIVE,
  running: COUNT,
  waiting: COUNT,
  backlog_bytes: COUNT,
  drifted: COUNT,
  accounts: { type: 'array', items: ACCOUNT },
  has_costs: { type: 'boolean', description: 'Whether the file has the cost of any model.' },
} as const
/** What happens at the moment. */
export const OVERVIEW = {
  ...shape('Overview', OVERVIEW_MEMBERS),
  properties: { ...OVERVIEW_MEMBERS, minute: LIVE },
} as const

const DAY_MONEY = {
  day: DAY,
  requests: COUNT,
  errors: COUNT,
  credits: AMOUNT,
  cost: AMOUNT,
  margin: AMOUNT,
  without_cost: AMOUNT,
} as const
/** What an operator looks at first. */
export const TREND = shape('Trend', {
  days: {
    type: 'array',
    items: shape('DayMoney', DAY_MONEY),
    description: 'The last thirty days; those without use are absent.',
  },
  hour: {
    type: 'array',
    items: shape('Minute', { at: TIME, served: COUNT, errors: COUNT }),
    description: 'The minutes of the last hour, as far as they are recorded.',
  },
  running_out: {
    type: 'array',
    items: shape('RunningOut', {
      key: TEXT,
      name: TEXT,
      hint: TEXT,
      balance: AMOUNT,
      daily: { type: 'string', description: 'The mean of the last seven days.' },
      days: { type: 'number', description: 'Days for which the balance lasts at that use.' },
    }),
  },
  unread: {
    type: 'array',
    items: shape('Unread', { upstream: TEXT, model: TEXT, count: COUNT }),
    description: 'Replies whose usage was understood only in part, since the start of this process.',
  },
})

/** A line of a statement. */
export const LINE = shape('Line', {
  number: COUNT,
  type: { enum: ['grant', 'code', 'plan', 'deduction', 'refund', 'charge', 'correction', 'opening'] },
  begun_at: TIME,
  booked_at: TIME,
  amount: { type: 'number', description: 'Credits that it adds; negative for a charge.' },
  amount_nano: TEXT,
  plan_amount: {
    type: 'number',
    description: 'Credits that it gives back to the plan; negative for what the plan has paid.',
  },
  plan_amount_nano: TEXT,
  plan_left: {
    type: ['string', 'null'],
    description: 'What was left after it of the windows of the plan that counted it.',
  },
  balance_after: { type: 'number', description: 'What was granted less what was charged after it.' },
  balance_after_nano: TEXT,
  id: { type: ['string', 'null'], description: 'The id of the request or of the grant.' },
  key: { type: ['string', 'null'], description: 'The key of an exchange.' },
  model: { type: ['string', 'null'] },
  reason: { type: ['string', 'null'] },
  corrects: { type: ['integer', 'null'], description: 'The number of the line that it corrects.' },
})

/** An entry of the history, as its customer sees it, with what only operators see. */
export const ENTRY = {
  title: 'Entry',
  type: 'object',
  required: [
    'id',
    'key',
    'created_at',
    'type',
    'cost_nano',
    'upstream',
    'address',
    'operator_cost_nano',
    'attempts',
    'unread',
  ],
  properties: {
    id: TEXT,
    key: { type: 'string', description: 'The id of the key.' },
    key_name: { type: 'string', description: "The operator's name of the key." },
    created_at: TIME,
    type: TEXT,
    endpoint: { type: ['string', 'null'] },
    model: { type: ['string', 'null'] },
    status: { type: ['string', 'null'] },
    cost_nano: { type: 'string', description: 'What the customer pays, from credits or from a plan, in nano-credits.' },
    paid_from: { enum: PAID_FROM },
    credits_nano: { type: 'string', description: 'What of it comes from the balance. Negative for a refund.' },
    plan_nano: { type: 'string', description: 'What of it comes from windows of the plan.' },
    waived_nano: { type: 'string', description: 'What is not charged, since an earlier sending of the request was.' },
    upstream: { type: ['string', 'null'], description: 'The account of the upstream.' },
    address: { type: ['string', 'null'], description: "The client's address." },
    operator_cost_nano: {
      type: ['string', 'null'],
      description: 'What it costs the operator; null if that is unknown.',
    },
    margin_nano: { type: ['string', 'null'], description: 'What was paid less that cost; null without it.' },
    attempts: { type: 'array', items: { type: 'object' } },
    unread: {
      type: 'array',
      items: TEXT,
      description: 'Paths in the reported usage that were not understood, or that do not add up.',
    },
  },
} as const
