/** What is legal in gateway.yaml and probably wrong. `tollgate check` says so, with what to write instead. */
import { formatCredits } from '../money/credits.ts'
import type { Rates } from '../money/price.ts'
import type { Config } from './config.ts'
import { EnvScalar, type Path, type Problem, type Source } from './locate.ts'

/** One advice: at a setting's value, or at its key. */
type Advice = readonly [path: Path, message: string, hint: string, at?: 'key']

type Rule = (config: Config, source: Source) => readonly Advice[]

const RULES: readonly Rule[] = [belowCost, cooldowns, clearKeys, admins]

/** Returns what is probably wrong in a valid configuration. */
export function adviceOn(config: Config, source: Source): readonly Problem[] {
  return RULES.flatMap(rule => rule(config, source)).map(advice => source.problem(...advice))
}

/** The rates that customers notice. The others follow from these unless the file says more. */
const COMPARED = ['input', 'cacheRead', 'output'] as const satisfies readonly (keyof Rates)[]

/** Models that are sold for less than an upstream takes for them. */
function belowCost({ keyTypes }: Config): readonly Advice[] {
  const found = new Map<string, Advice>()
  for (const model of [...keyTypes.values()].flatMap(type => [...type.models.values()]))
    for (const { name, cost } of model.upstreams) {
      const sent = cost.has(model.sends) ? model.sends : '*'
      const paid = cost.get(sent)
      const rate = COMPARED.find(each => paid && model.price[each] < paid[each])
      if (!paid || rate === undefined) continue
      const [one, other] = [model.price[rate], paid[rate]].map(each => formatCredits(each)) as [string, string]
      found.set(`${name} ${sent} ${model.priceName}`, [
        ['upstreams', name, 'cost', sent],
        `price "${model.priceName}" sells "${model.id}" below this cost: ${rate} at ${one} where ${other} are paid for a million`,
        'raise the price, or correct the cost',
        'key',
      ])
    }
  return [...found.values()]
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
