import {
  type Conditions,
  definePlugin,
  dropExtra,
  dropTools,
  type Exchange,
  type Extra,
  type Extras,
  extrasOf,
  GatewayError,
  type KeyType,
  type ModelEntry,
  modelsNamed,
  NANO,
  NO_EXTRAS,
  POLICIES,
  type Policy,
  predictedTokens,
  type Price,
  type ProviderTool,
  withAdvisors,
  withModels,
  type With,
} from '../core/plugin.ts'

type Known = Exchange & With<'key' | 'body' | 'model'>

/** What is known of a request while its extras are gone through. */
interface Findings {
  conditions: Conditions
  readonly tools: ProviderTool[]
  readonly models: Map<string, ModelEntry>
  readonly advisors: ModelEntry[]
  readonly media: Set<'audioOutput' | 'imageOutput'>
  /** Provider tools that are to be dropped from the list of tools. */
  readonly droppedTools: Extra[]
  readonly dropped: string[]
}

/**
 * Lets no member of a request pass that costs money and has no price, or that changes where the request goes. What a key type's
 * `policy` in gateway.yaml says of a member holds; without it a member is allowed where the model's price covers it.
 */
export default definePlugin({
  name: 'request-policy',
  summary: 'Refuses, drops or allows members that cost money, keep state, or change the model or the address.',
  on: ['inference', 'counting'],
  needs: ['key', 'body', 'model'],
  gives: ['extras'],
  setup(_options, { config }) {
    /** What was dropped from a request, for the header of its reply. */
    const dropped = new WeakMap<Exchange, readonly string[]>()
    return {
      request(x) {
        const found = extrasOf(x.body)
        if (found.length === 0) return PLAIN
        const type = config.keyTypes.get(x.key.type) as KeyType
        const findings: Findings = { conditions: {}, tools: [], models: new Map(), advisors: [], media: new Set(), droppedTools: [], dropped: [] }
        for (const extra of found) decide(extra, x, type, findings)
        leaveOut(x, findings)
        if (findings.dropped.length > 0) dropped.set(x, findings.dropped)
        return { extras: extrasFrom(findings, x) }
      },
      response(x, head) {
        const names = dropped.get(x)
        if (!names) return
        const others = head.reply['x-tollgate-dropped']
        head.reply['x-tollgate-dropped'] = [...names, ...(others === undefined ? [] : [others])].join(', ')
      },
    }
  },
})

const PLAIN = { extras: NO_EXTRAS }

/** What becomes of one extra. @throws GatewayError member_refused */
function decide(extra: Extra, x: Known, type: KeyType, findings: Findings): void {
  const { policy, tool } = extra
  const row: Policy = POLICIES[policy]
  const said = type.policy[policy]
  const covered = isCovered(extra, x.model.entry.price, type, x)
  const action = (said === 'allow' || said === undefined) && covered ? 'allow' : said === undefined || said === 'allow' ? otherwise(extra, row) : said
  if (action === 'allow') return allow(extra, x, type, findings)
  if (action === 'refuse') throw refusal(extra, row)
  if (tool && tool.index !== undefined) findings.droppedTools.push(extra)
  else {
    const name = dropExtra(x.body, extra, x.format)
    if (name === undefined) throw refusal(extra, row)
    findings.dropped.push(name)
  }
}

/** What becomes of an extra that has no price, where nothing is said of it. */
function otherwise({ tool }: Extra, row: Policy): 'refuse' | 'drop' {
  if (row.needs?.kind === 'model') return 'refuse'
  // A tool of a list leaves others beside it; a member is what the request is about.
  if (tool && tool.index === undefined) return 'refuse'
  return row.otherwise === 'drop' ? 'drop' : 'refuse'
}

/** Whether an extra may be allowed: it has a price, or needs none. */
function isCovered({ policy, asks, param, tool }: Extra, price: Price, type: KeyType, { body }: Known): boolean {
  const { needs, otherwise: standard }: Policy = POLICIES[policy]
  switch (needs?.kind) {
    case 'condition':
      return asks.every(name => (name === 'auto' ? price.factors[needs.name] !== undefined : price.factors[needs.name]?.has(name)))
    case 'call':
      return price.calls[needs.name] !== undefined
    case 'rates':
      if (policy === 'sound') return price.audioInput !== undefined
      return asks.length > 0 && asks.every(name => (name === 'audio' ? price.audioOutput : name === 'image' ? price.imageOutput : undefined) !== undefined)
    case 'model': {
      const names = tool ? (tool.model === undefined ? undefined : [tool.model]) : type.policy[policy] === 'allow' ? modelsNamed(body.get(param)) : undefined
      return names?.every(name => entryOf(type, name) !== undefined) === true
    }
    default:
      return type.policy[policy] === 'allow' || standard === 'allow'
  }
}

/** A model of the key's type, by its own name or by the upstream's. */
function entryOf(type: KeyType, name: string): ModelEntry | undefined {
  return type.models.get(name) ?? [...type.models.values()].find(({ sends }) => sends === name)
}

/** Notes what an extra that is let through may cost. */
function allow({ policy, param, asks, tool }: Extra, { body, model }: Known, type: KeyType, findings: Findings): void {
  const { needs }: Policy = POLICIES[policy]
  const sent = (name: string): string => entryOf(type, name)?.sends ?? name
  if (needs?.kind === 'condition') {
    const [asked = ''] = asks
    const { factors } = model.entry.price
    const name = asked === 'auto' ? dearestOf(factors[needs.name]) : asked
    // What is cheaper than the standard may turn out to be the standard.
    if ((factors[needs.name]?.get(name) ?? 0n) > NANO) findings.conditions = { ...findings.conditions, [needs.name]: name }
  } else if (policy === 'modalities') {
    for (const name of asks) findings.media.add(name === 'image' ? 'imageOutput' : 'audioOutput')
  } else if (needs?.kind === 'model') {
    const names = tool ? [tool.model ?? ''] : (modelsNamed(body.get(param)) ?? [])
    for (const name of names) {
      const entry = entryOf(type, name)
      if (!entry) continue
      findings.models.set(entry.sends, entry)
      if (tool) findings.advisors.push(entry)
    }
    if (names.every(name => sent(name) === name)) return
    const member = tool ? 'tools' : param
    body.set(member, tool ? withAdvisors(body.get(member), sent) : withModels(body.get(member), sent))
  } else if (tool) findings.tools.push(tool)
}

/** The dearest factor's name among those of a condition that may come to anything. */
function dearestOf(factors: ReadonlyMap<string, bigint> = new Map()): string {
  const [dearest] = [...factors].sort(([, a], [, b]) => (a > b ? -1 : 1))
  return dearest?.[0] ?? ''
}

/** Drops tools that have no price from the list that they stand in. @throws GatewayError member_refused where they are all there is */
function leaveOut(x: Known, { droppedTools, dropped }: Findings): void {
  const [first] = droppedTools
  if (!first) return
  const tools = droppedTools.flatMap(({ tool }) => tool ?? [])
  if (!dropTools(x.body, tools)) throw refusal(first, POLICIES[first.policy])
  for (const { type } of tools) dropped.push(`tools.${type.replaceAll(/[^\w-]/g, '_').slice(0, 64)}`)
}

function extrasFrom({ conditions, tools, models, advisors, media }: Findings, { body }: Known): Extras {
  const least = tools.some(({ param }) => param === 'web_search_options')
  return {
    conditions: Object.keys(conditions).length > 0 ? conditions : undefined,
    tools,
    leastCalls: least ? { webSearch: 1 } : undefined,
    models,
    advisors,
    media: [...media],
    predicted: predictedTokens(body),
  }
}

function refusal({ param, tool }: Extra, row: Policy): GatewayError {
  const shown = tool && tool.param !== tool.type ? `${param} (${tool.type.slice(0, 64)})` : param
  return new GatewayError('member_refused', { param, message: `"${shown}" is refused. ${row.refusal}` })
}
