import { GatewayError, inputTokens } from 'tollgate/plugin'
import {
  candidateOf,
  compactionsIn,
  defineBuiltIn,
  type BuiltInExchange,
  type BuiltInHost,
  noneLeft,
  type Stored,
  storedIds,
  type StoredReference,
  type BuiltInWith,
} from 'tollgate/plugin/metering'

type Known = BuiltInWith<'key' | 'body' | 'model' | 'route'>

/** A request without references. */
const NOTHING = { stored: { tokens: 0, likely: 0 } }
/** Maximum characters of an id that an error repeats. */
const SHOWN = 64

/**
 * Isolates customers' stored objects. All customers share the upstream accounts, and with them all earlier replies,
 * items, containers and files. A request may refer only to objects that its own key created, and goes to the account
 * that has them. What a reply stores is recorded with its size, so that later requests can be held for it.
 */
export default defineBuiltIn({
  name: 'stored-state',
  summary: 'Allows references only to stored replies, items and files that the same key created.',
  on: ['inference', 'counting'],
  needs: ['key', 'body', 'model', 'route'],
  gives: ['stored'],
  setup(_options, host) {
    const stored = (x: Known, references: readonly StoredReference[]): Promise<{ stored: Stored }> | typeof NOTHING =>
      references.length === 0 ? NOTHING : sizeOf(host, x, references)
    return {
      request(x) {
        const { references, compactions } = x.body.contents
        if (compactions.length > 0 && !x.route.translation)
          return bind(host, x, compactions).then(() => stored(x, references))
        return stored(x, references)
      },
      events: 'signals',
      event(x, { reading, json }) {
        // A translated request refers to nothing and stores nothing.
        if (x.route.translation) return
        const compactions = compactionsIn(json)
        if (compactions.length > 0) note(host, x, { reply: x.id, total: 0, likely: 0, output: 0, others: compactions })
        if (!reading.usage || !x.format.storesReply(x.body)) return
        const { reply, others } = storedIds(json, x.body.has('thread'))
        if (reply === undefined && others.length === 0) return
        const usage = x.route.format.decodeUsage(reading.usage, x.route.upstream.said)?.usage
        const output = usage?.output ?? 0
        const input = usage ? inputTokens(usage) : 0
        // The input is the sum of all passes. If it grew evenly, the last pass read twice the mean.
        const last = Math.min(input, Math.ceil((2 * input) / (x.tally?.passes ?? 1)))
        note(host, x, { reply: reply ?? x.id, total: input + output, likely: last + output, output, others })
      },
    }
  },
})

/**
 * Returns the total size of the referenced objects.
 * @throws GatewayError invalid_body for objects that the key did not create; overloaded while their account is out
 */
async function sizeOf(
  host: BuiltInHost,
  x: Known,
  references: readonly StoredReference[],
): Promise<{ stored: Stored }> {
  const sizes = await host.ledger.storedObjects.sizes(
    x.key.spender,
    references.map(({ id }) => id),
  )
  const unknown = references[sizes.indexOf(undefined)]
  if (unknown) throw refusal(unknown.param, unknown.id)
  const holders = sizes.map(size => size?.at)
  await pin(host, x, holders, references)
  // What a translated request refers to is not sent.
  if (x.route.translation) return NOTHING
  // The items of one reply together are no larger than the reply.
  const largest = new Map<string, Stored>()
  for (const size of sizes)
    if (size && size.tokens > (largest.get(size.reply)?.tokens ?? -1)) largest.set(size.reply, size)
  const sum = (name: keyof Stored): number => [...largest.values()].reduce((all, size) => all + size[name], 0)
  return { stored: { tokens: sum('tokens'), likely: sum('likely') } }
}

/** Sends the request to the account that has what it refers to. */
async function pin(
  { pool, now }: BuiltInHost,
  x: Known,
  holders: readonly (string | undefined)[],
  references: readonly StoredReference[],
): Promise<void> {
  const [first, ...others] = new Set(holders.filter(name => name !== undefined))
  if (first === undefined) return
  const other = references[holders.indexOf(others[0])]
  const leftOut = x.route.translation !== undefined
  if (others.length > 0 && other && !leftOut) throw refusal(other.param, other.id)
  const { upstreams, sends } = x.model.entry
  const found = upstreams
    .flatMap(upstream => upstream.accounts.map(account => ({ upstream, account, model: sends, lastResort: true })))
    .find(({ account }) => account.name === first)
  // The account is no longer in the file, and its objects cannot be reached.
  const [lost] = references
  if (!found && lost && !leftOut) throw refusal(lost.param, lost.id)
  if (!found || (others.length > 0 && leftOut)) return
  const waitMs = pool.health(found.account).waitMs(now(), sends)
  if (waitMs > 0 && leftOut) return
  if (waitMs > 0) throw noneLeft(pool, [{ accounts: [found.account] }], sends)
  await x.route.pin(candidateOf(found, x.format))
}

/**
 * Sends the request to the account that made its compactions, as far as that is known.
 * @throws GatewayError compaction_bound if that account does not serve the model
 */
async function bind(host: BuiltInHost, x: Known, compactions: readonly StoredReference[]): Promise<void> {
  const made = await host.ledger.storedObjects.sizes(
    x.key.spender,
    compactions.map(({ id }) => id),
  )
  const at = made.findLast(size => size !== undefined)?.at
  if (at === undefined) return
  const { upstreams } = x.model.entry
  if (!upstreams.some(({ accounts }) => accounts.some(({ name }) => name === at)))
    throw new GatewayError('compaction_bound', { param: 'input' })
  await pin(host, x, [at], compactions)
}

/** Notes what a reply has stored. */
function note(
  { ledger, log }: BuiltInHost,
  x: BuiltInExchange & Known,
  found: Omit<Parameters<BuiltInHost['ledger']['storedObjects']['note']>[1], 'at'>,
): void {
  ledger.storedObjects
    .note(x.key.spender, { ...found, at: x.route.account.name })
    .catch((cause: unknown) =>
      log.warn({ exchange: x.id, err: cause }, 'cannot record what a reply stored at its upstream'),
    )
}

function refusal(param: string, id: string): GatewayError {
  const shown = id.length > SHOWN ? `${id.slice(0, SHOWN)}...` : id
  return new GatewayError('invalid_body', {
    param,
    message: `"${param}" refers to "${shown}", which this key did not create, or which has expired. Send the content instead, or omit it.`,
  })
}
