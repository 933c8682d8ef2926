/** What is legal in gateway.yaml and probably wrong. `tollgate check` says so, with what to write instead. */
import { formatCredits } from '../money/credits.ts'
import type { Price, Rates } from '../money/price.ts'
import { timesOf } from '../plans/times.ts'
import type { Config, Quota } from './config.ts'
import { EnvScalar, type Path, type Problem, type Source } from './locate.ts'

/** One advice: at a setting's value, or at its key. */
type Advice = readonly [path: Path, message: string, hint: string, at?: 'key']

type Rule = (config: Config, source: Source) => readonly Advice[]

const RULES: readonly Rule[] = [
  belowCost,
  unusedPrices,
  unpricedWrites,
  cooldowns,
  longTimes,
  quotasInVain,
  clearKeys,
  admins,
  plansTwice,
]

/** Returns what is probably wrong in a valid configuration. */
export function adviceOn(config: Config, source: Source): readonly Problem[] {
  return RULES.flatMap(rule => rule(config, source)).map(advice => source.problem(...advice))
}

/** The rates that customers notice. The others follow from these unless the file says more. */
const COMPARED = ['input', 'cacheRead', 'output'] as const satisfies readonly (keyof Rates)[]

/** Models that are sold for less than an upstream takes for them. */
function belowCost({ keyTypes }: Config): readonly Advice[] {
  const found = new Map<string, Advice>()
  const told = [...keyTypes.values()].filter(({ onLoss }) => onLoss === 'warn')
  for (const model of told.flatMap(type => [...type.models.values()]))
    for (const { name, cost } of model.upstreams) {
      const sent = cost.has(model.sends) ? model.sends : '*'
      const paid = cost.get(sent)
      const rate = COMPARED.find(each => paid && model.price[each] < paid[each])
      if (!paid || rate === undefined) continue
      const [one, other] = [model.price[rate], paid[rate]].map(each => formatCredits(each)) as [string, string]
      found.set(`${name} ${sent} ${model.priceName}`, [
        ['upstreams', name, 'cost', sent],
        `price "${model.priceName}" sells "${model.id}" below this cost: ${rate} at ${one} where ${other} are paid for a million`,
        'raise the price, correct the cost, or set onLoss: ignore of the key type',
        'key',
      ])
    }
  return [...found.values()]
}

/** Windows that give their amount more often than a plan has periods, by the day of its purchase. */
function plansTwice({ keyTypes }: Config): readonly Advice[] {
  const all = [...keyTypes.values()].flatMap(({ name, plan }) =>
    plan ? timesOf(plan).map(times => ({ name, ...times })) : [],
  )
  const tooOften = all.filter(({ most, expected }) => most > expected)
  return tooOften.map(({ name, window, place, expected, least, most }) => {
    const { unit, amount, per, timing } = window
    const between = (text: (times: number) => string): string =>
      least === most ? text(most) : `${text(least)} to ${text(most)}`
    const times = between(String)
    const amounts = between(count => {
      const sum = amount * BigInt(count)
      return unit === 'credits' ? formatCredits(sum) : String(sum)
    })
    const validity = /^\d/.test(per) ? per : `${expected} ${per}${expected > 1 ? 's' : ''}`
    const anchor = timing.kind === 'calendar' ? '`anchor: purchase` here, and ' : ''
    return [
      ['keyTypes', name, 'plan', 'windows', place],
      `this window begins ${times} times before the plan ends${least === most ? '' : ', by the day of purchase'}, so that a customer may use ${amounts} ${unit}`,
      `write ${anchor}\`until: ${validity}\``,
    ]
  })
}

/** Prices that no model of a key type has, and no cost of an upstream. */
function unusedPrices({ keyTypes }: Config, source: Source): readonly Advice[] {
  const sold = [...keyTypes.values()].flatMap(type => [...type.models.values()].map(({ priceName }) => priceName))
  const text = source.doc.toJS() as { prices?: object; upstreams?: object }
  const paid = Object.values(text.upstreams ?? {}).flatMap(({ cost = {} }: { cost?: object }) => Object.values(cost))
  const used = new Set<unknown>([...sold, ...paid])
  return Object.keys(text.prices ?? {})
    .filter(name => !used.has(name))
    .map(name => [['prices', name], 'nothing has this price', 'name it where it is sold, or remove it', 'key'])
}

/** Prices without rates of their own for tokens that are written to a cache, of models whose upstream bills such writes. */
function unpricedWrites({ keyTypes }: Config, source: Source): readonly Advice[] {
  const { prices = {} } = source.doc.toJS() as { prices?: Record<string, object> }
  const models = [...keyTypes.values()].flatMap(type => [...type.models.values()])
  const sold = models.filter(({ upstreams }) =>
    upstreams.some(({ speaks }) => speaks.some(format => format.name === 'messages')),
  )
  return Object.entries(prices).flatMap(([name, price]): Advice[] => {
    const model = sold.find(
      each =>
        each.priceName === name &&
        each.price.input > 0n &&
        each.upstreams.some(({ cost }) => isDearer(cost.get(each.sends) ?? cost.get('*'), each.price)),
    )
    if (!model || ('cacheWrite5m' in price && 'cacheWrite1h' in price)) return []
    return [
      [
        ['prices', name],
        `what "${model.id}" writes to a cache is sold for less than providers bill`,
        'set cacheWrite5m and cacheWrite1h; providers of the messages format bill 1.25 and 2 times the input',
      ],
    ]
  })
}

/** Whether what is written to a cache may cost more than it is sold for. @param cost undefined if it is not known */
function isDearer(cost: Price | undefined, { cacheWrite5m, cacheWrite1h }: Price): boolean {
  return !cost || cost.cacheWrite5m > cacheWrite5m || cost.cacheWrite1h > cacheWrite1h
}

/** Times that a shorter one never lets pass: the setting, what it is within, and both in milliseconds. */
function longTimes({ limits, upstreams }: Config): readonly Advice[] {
  const within: (readonly [path: Path, whole: string, ms: number, wholeMs: number])[] = [
    [['limits', 'bodyIdle'], 'limits.bodyTime', limits.bodyIdleMs, limits.bodyMs],
    ...[...upstreams.values()].flatMap(({ name, timeouts: { firstByteMs, idleMs, totalMs } }) => {
      const path = ['upstreams', name, 'timeouts']
      const whole = [...path, 'total'].join('.')
      return [
        [[...path, 'firstByte'], whole, firstByteMs, totalMs] as const,
        [[...path, 'idle'], whole, idleMs, totalMs] as const,
      ]
    }),
  ]
  return within
    .filter(([, , ms, wholeMs]) => ms > wholeMs)
    .map(([path, whole]) => [
      path,
      `this time is never over before ${whole}`,
      `set a shorter one, or a longer ${whole}`,
    ])
}

const DAY_MS = 86_400_000
/** The shortest windows of a calendar, in milliseconds. */
const CALENDAR_MS = { day: DAY_MS, week: 7 * DAY_MS, month: 28 * DAY_MS } as const

function lengthOf({ window }: Quota): number {
  return 'rollingMs' in window ? window.rollingMs : CALENDAR_MS[window.per]
}

/** Quotas that repeat another one of their account, or that are never used up because another one is before. */
function quotasInVain({ upstreams }: Config): readonly Advice[] {
  const found = new Map<string, Advice>()
  for (const { name, accounts } of upstreams.values())
    accounts.forEach(({ quotas }, at) => {
      const path = ['upstreams', name, 'accounts', at, 'quota']
      quotas.forEach((quota, index) => {
        const others = quotas.filter(other => other !== quota && other.unit === quota.unit)
        const before = others.find(other => endsBefore(other, quota, quotas.indexOf(other) < index))
        if (!before) return
        const message = `this quota is never used up before the one per ${before.name}`
        found.set([...path, index].join('.'), [[...path, index], message, 'remove it, or correct its amount'])
      })
    })
  return [...found.values()]
}

/** Whether one quota is always used up before another. @param first whether it stands before the other */
function endsBefore(one: Quota, other: Quota, first: boolean): boolean {
  const [own, others] = [lengthOf(one), lengthOf(other)]
  if (own === others) return one.amount < other.amount || (one.amount === other.amount && first)
  if (own > others) return one.amount <= other.amount
  // A window of the other may begin and end within windows of this one.
  return one.amount * BigInt(Math.ceil((others * 31) / 28 / own) + 1) <= other.amount
}

function cooldowns({ upstreams }: Config): readonly Advice[] {
  return [...upstreams.values()]
    .filter(({ health }) => health.cooldownMs > health.cooldownMaxMs)
    .map(({ name }) => [
      ['upstreams', name, 'health', 'cooldown'],
      'the first cooldown is longer than `cooldownMax`, which is used instead',
      'set a shorter cooldown, or a longer cooldownMax',
    ])
}

/** The path of an account's setting, which it may share with the others of its upstream. */
function settingOf(source: Source, upstream: string, at: number, setting: string): Path {
  const own = ['upstreams', upstream, 'accounts', at, setting]
  return source.doc.hasIn(own) ? own : ['upstreams', upstream, setting]
}

function clearKeys({ upstreams }: Config, source: Source): readonly Advice[] {
  const found = new Map<string, Advice>()
  for (const { name, accounts, simulated } of upstreams.values())
    accounts.forEach((_, at) => {
      const path = settingOf(source, name, at, 'key')
      if (simulated || source.value(path) instanceof EnvScalar) return
      found.set(path.join('.'), [path, 'this key is written into the file', 'write !env NAME or !file PATH instead'])
    })
  return [...found.values()]
}

function admins({ chain, listen }: Config): readonly Advice[] {
  return chain.flatMap(({ plugin, options }, at): readonly Advice[] => {
    const own = options['listen'] as { readonly host: string; readonly port: number } | undefined
    if (plugin !== 'admin' || !own) return []
    const path = ['chain', at, plugin, 'listen']
    const everywhere: Advice = [
      [...path, 'host'],
      'the admin page and its API are open to every network of this machine',
      'set 127.0.0.1, and reach it through a tunnel or a proxy with TLS',
    ]
    const taken: Advice = [[...path, 'port'], 'customers call this port', 'set another port than listen.port']
    return [
      ...(own.host === '0.0.0.0' || own.host === '::' ? [everywhere] : []),
      ...(own.port !== 0 && own.port === listen.port ? [taken] : []),
    ]
  })
}
