import { GatewayError, type KeyType, type ModelEntry, NANO } from 'tollgate/plugin'
import {
  KNOWN_MEMBERS,
  oneOfEach,
  type ConditionName,
  type Conditions,
  defineBuiltIn,
  dropExtra,
  dropTools,
  dropUnlisted,
  type BuiltInExchange,
  type Extra,
  type Extras,
  extrasOf,
  DroppedFields,
  mayReadAgain,
  modelsNamed,
  NO_EXTRAS,
  POLICIES,
  type Policy,
  predictedTokens,
  type Price,
  type ProviderTool,
  renameAdvisors,
  renameModels,
  type BuiltInWith,
  typeOf,
} from 'tollgate/plugin/metering'

type Known = BuiltInExchange & BuiltInWith<'key' | 'body' | 'model'>

/** What is known while a request's extras are checked. */
interface Findings {
  conditions: Conditions
  readonly tools: ProviderTool[]
  readonly rereads: boolean
  readonly models: Map<string, ModelEntry>
  /** The requested advisors, with the maximum number of calls. */
  readonly advisors: Map<ModelEntry, number>
  readonly media: Set<'audioOutput' | 'imageOutput'>
  /** Provider tools to drop from the list of tools. */
  readonly droppedTools: Extra[]
  readonly dropped: string[]
}

/**
 * Blocks request members that cost money but have no price, or that change where the request goes. The `requestPolicy`
 * of a key type decides; without an entry there, a member is allowed if the model's price covers it.
 */
export default defineBuiltIn({
  name: 'request-policy',
  summary: 'Refuses, drops or allows request members that cost money, keep state, or change the model or the address.',
  on: ['inference', 'counting'],
  needs: ['key', 'body', 'model'],
  gives: ['extras'],
  setup(_options, { config, meter }) {
    /** Members dropped from a request, for a header of its reply. */
    const dropped = new WeakMap<BuiltInExchange, readonly string[]>()
    const passes = new WeakMap<ModelEntry, ReadonlySet<string>>()

    /** Returns the members that all upstreams of a model get although they are not listed. */
    function passesOf(entry: ModelEntry): ReadonlySet<string> {
      let names = passes.get(entry)
      if (!names) {
        const [first, ...others] = entry.upstreams.map(upstream => upstream.passes)
        names = new Set([...(first ?? [])].filter(name => others.every(each => each.has(name))))
        passes.set(entry, names)
      }
      return names
    }

    return {
      request(x) {
        const found = extrasOf(x.body)
        const strange = dropUnlisted(x.body, x.format, passesOf(x.model.entry))
        if (strange.length > 0) {
          dropped.set(x, strange)
          for (const name of strange) meter.dropped.note(KNOWN_MEMBERS.has(name) ? name : 'other')
        }
        const type = typeOf(config, x.key)
        const rereads = mayReadAgain(x.body)
        const isPlain = found.length === 0 && !rereads && type.policy.store === undefined
        if (isPlain && !x.model.entry.price.factors.serviceTier) return PLAIN
        const findings: Findings = {
          conditions: {},
          tools: [],
          rereads,
          models: new Map(),
          advisors: new Map(),
          media: new Set(),
          droppedTools: [],
          dropped: [],
        }
        for (const extra of found) decide(extra, x, type, findings)
        if (findings.advisors.size > 0) renameAdvisors(x.body, name => entryOf(type, name)?.sends ?? name)
        leaveOut(x, type, findings)
        if (type.policy.store !== undefined && type.policy.store !== 'allow') keepNothing(x, findings)
        if (findings.dropped.length > 0) dropped.set(x, [...strange, ...findings.dropped])
        return { extras: extrasFrom(findings, x) }
      },
      response(x, head) {
        const names = [...x.body.losses, ...(dropped.get(x) ?? [])]
        if (names.length === 0) return
        const losses = new DroppedFields([...names, ...(x.route?.dropped?.names ?? [])])
        head.reply['x-tollgate-dropped'] = String(losses)
      },
    }
  },
})

const PLAIN = { extras: NO_EXTRAS }

/** Decides about one extra. @throws GatewayError member_refused */
function decide(extra: Extra, x: Known, type: KeyType, findings: Findings): void {
  const { policy, tool } = extra
  const said = type.policy[policy]
  const covered = isCovered(extra, x.model.entry.price, type, x)
  const may = said === undefined || said === 'allow'
  if (may && covered) return allow(extra, x, type, findings)
  const action = may ? otherwise(extra) : said
  const refused = (): GatewayError => refusal(extra, covered, x.model.entry, said)
  if (action === 'refuse') throw refused()
  if (tool && tool.index !== undefined) findings.droppedTools.push(extra)
  else {
    const name = dropExtra(x.body, extra, x.format)
    if (name === undefined) throw refused()
    findings.dropped.push(name)
  }
}

/** The default action for an extra without a price. */
function otherwise({ policy, tool }: Extra): 'refuse' | 'drop' {
  // A tool in a list has others beside it; a member is the point of its request.
  if (tool && tool.index === undefined) return 'refuse'
  return POLICIES[policy].otherwise === 'drop' ? 'drop' : 'refuse'
}

/** Returns whether an extra may be allowed: it has a price, or needs none. */
function isCovered({ policy, asks, param, tool }: Extra, price: Price, type: KeyType, { body }: Known): boolean {
  const { needs, otherwise: standard }: Policy = POLICIES[policy]
  switch (needs?.kind) {
    case 'condition':
      // If the provider may choose any tier, it may choose the dearest, so that one needs a price.
      return asks.every(name =>
        name === 'auto'
          ? factorOf(price, needs.name, dearestOf(price.factors[needs.name])) > NANO
          : price.factors[needs.name]?.has(name),
      )
    case 'call':
      return price.calls[needs.name] !== undefined && (!needs.rate || price[needs.rate] !== undefined) && !tool?.beyond
    case 'rates':
      if (policy === 'sound') return price.audioInput !== undefined
      return asks.length > 0 && asks.every(name => mediaRate(price, name) !== undefined)
    case 'model': {
      const asked = type.policy[policy] === 'allow' ? modelsNamed(body.get(param)) : undefined
      const names = tool ? [tool.model] : asked
      return names?.every(name => name !== undefined && entryOf(type, name) !== undefined) === true
    }
    default:
      return type.policy[policy] === 'allow' || standard === 'allow'
  }
}

function mediaRate({ audioOutput, imageOutput }: Price, name: string): bigint | undefined {
  const rates: Readonly<Record<string, bigint | undefined>> = { audio: audioOutput, image: imageOutput }
  return rates[name]
}

/** Finds a model of the key's type by its own name or by the upstream's. */
function entryOf(type: KeyType, name: string): ModelEntry | undefined {
  return type.models.get(name) ?? [...type.models.values()].find(({ sends }) => sends === name)
}

/** Records what an allowed extra may cost. */
function allow({ policy, param, asks, tool }: Extra, { body, model }: Known, type: KeyType, findings: Findings): void {
  const { needs }: Policy = POLICIES[policy]
  if (needs?.kind === 'condition') {
    const [asked = ''] = asks
    const { factors } = model.entry.price
    const name = asked === 'auto' ? dearestOf(factors[needs.name]) : asked
    // A tier that is cheaper than the standard may fall back to the standard.
    if (factorOf(model.entry.price, needs.name, name) > NANO)
      findings.conditions = { ...findings.conditions, [needs.name]: name }
  } else if (policy === 'modalities') {
    for (const name of asks) findings.media.add(name === 'image' ? 'imageOutput' : 'audioOutput')
  } else if (needs?.kind === 'model') {
    const names = tool ? [tool.model ?? ''] : (modelsNamed(body.get(param)) ?? [])
    for (const name of names) {
      const entry = entryOf(type, name)
      if (!entry) continue
      findings.models.set(entry.sends, entry)
      if (tool) findings.advisors.set(entry, Math.max(findings.advisors.get(entry) ?? 0, tool.most ?? Infinity))
    }
    if (!tool) renameModels(body, param, name => entryOf(type, name)?.sends ?? name)
  } else if (tool) findings.tools.push(tool)
}

/** Returns the name of the dearest factor of a condition. */
function dearestOf(factors: ReadonlyMap<string, bigint> = new Map()): string {
  const [dearest] = [...factors].sort(([, a], [, b]) => (a > b ? -1 : 1))
  return dearest?.[0] ?? ''
}

/** Returns the factor of a condition. Undefined if it has no price. */
function factorOf({ factors }: Price, condition: ConditionName, name: string): bigint {
  return factors[condition]?.get(name) ?? 0n
}

/** Drops tools without a price from their list. @throws GatewayError member_refused if no tool would be left */
function leaveOut(x: Known, type: KeyType, { droppedTools, dropped }: Findings): void {
  const [first] = droppedTools
  if (!first) return
  const tools = droppedTools.flatMap(({ tool }) => tool ?? [])
  if (!dropTools(x.body, tools))
    throw refusal(first, isCovered(first, x.model.entry.price, type, x), x.model.entry, type.policy[first.policy])
  for (const { type: name } of tools) dropped.push(`tools.${name}`)
}

/** Disables storing if the request does not say and its provider would store the reply. */
function keepNothing({ body, format }: Known, { dropped }: Findings): void {
  if (!format.storesByDefault || body.get('store') === false) return
  body.set('store', false)
  if (!dropped.includes('store')) dropped.push('store')
}

function extrasFrom(
  { conditions, tools, rereads, models, advisors, media }: Findings,
  { body, format, model }: Known,
): Extras {
  const asked = Object.keys(conditions).length > 0 ? conditions : undefined
  const { price } = model.entry
  // A request without a tier gets the default of the operator's account.
  const serviceTier = (body.get('service_tier') ?? null) === null ? dearestOf(price.factors.serviceTier) : ''
  const extras: Extras = {
    conditions: asked,
    held: factorOf(price, 'serviceTier', serviceTier) > NANO ? { ...asked, serviceTier } : asked,
    tools,
    rereads,
    leastCalls: undefined,
    models,
    advisors: [...advisors].map(([entry, most]) => ({ entry, most })),
    media: [...media],
    predicted: predictedTokens(body),
  }
  // If a format does not report calls, a requested tool counts as called.
  return format.reportsCalls || tools.length === 0 ? extras : { ...extras, leastCalls: oneOfEach(extras) }
}

/** @param covered whether it has a price but the operator does not offer it */
function refusal(extra: Extra, covered: boolean, { price }: ModelEntry, said: string | undefined): GatewayError {
  const { policy, param, tool } = extra
  const { remedy }: Policy = POLICIES[policy]
  let shown = `"${param}"`
  if (policy === 'sound') shown = `Sound in "${param}"`
  else if (tool && tool.param !== tool.type) shown = `"${param} (${tool.type.slice(0, 64)})"`
  const why = covered ? 'It is not offered to this key.' : reasonOf(extra, price, said)
  return new GatewayError('member_refused', { param, message: `${shown} is refused. ${why} ${remedy}` })
}

function reasonOf({ policy, tool }: Extra, price: Price, said: string | undefined): string {
  const { needs, reason }: Policy = POLICIES[policy]
  if (tool?.beyond !== undefined && needs?.kind === 'call' && price.calls[needs.name] !== undefined) return tool.beyond
  if (policy === 'models' && said === 'allow') return 'It may only list models that this key may use.'
  return policy === 'advisor' && tool?.model === undefined ? 'It names no model.' : reason
}
