import { definePlugin, GatewayError, inputTokens, type Stored, storedIds, type StoredReference } from 'tollgate/plugin'

/** A request without references. */
const NOTHING = { stored: { tokens: 0 } }
/** Maximum characters of an id that an error repeats. */
const SHOWN = 64

/**
 * Isolates customers' stored objects. All customers share an upstream account, and with it all earlier replies, items,
 * containers and files. A request may refer only to objects that its own key created. What a reply stores is recorded
 * with its size, so that later requests can be held for it.
 */
export default definePlugin({
  name: 'stored-state',
  summary: 'Allows references only to stored replies, items and files that the same key created.',
  on: ['inference', 'counting'],
  needs: ['key', 'body', 'route'],
  gives: ['stored'],
  setup(_options, { ledger, log }) {
    /**
     * Returns the total size of the referenced objects.
     * @throws GatewayError invalid_body for objects that the account did not create
     */
    async function recorded(account: string, references: readonly StoredReference[]): Promise<{ stored: Stored }> {
      const sizes = await ledger.storedSizes(
        account,
        references.map(({ id }) => id),
      )
      const unknown = references[sizes.indexOf(undefined)]
      if (unknown) throw refusal(unknown.param, unknown.id)
      // The items of one reply together are no larger than the reply.
      const largest = new Map<string, number>()
      for (const size of sizes) if (size) largest.set(size.reply, Math.max(size.tokens, largest.get(size.reply) ?? 0))
      return { stored: { tokens: [...largest.values()].reduce((sum, tokens) => sum + tokens, 0) } }
    }

    return {
      request({ key, body }) {
        const { references } = body.contents
        return references.length === 0 ? NOTHING : recorded(key.id, references)
      },
      events: 'signals',
      event(x, { reading, json }) {
        // A translated request refers to nothing and stores nothing.
        if (!reading.usage || x.route.translation || !x.format.storesReply(x.body)) return
        const { reply, others } = storedIds(json)
        if (reply === undefined && others.length === 0) return
        const usage = x.route.format.decodeUsage(reading.usage)?.usage
        const output = usage?.output ?? 0
        const total = (usage ? inputTokens(usage) : 0) + output
        ledger
          .noteStored(x.key.id, { reply: reply ?? x.id, total, output, others })
          .catch((cause: unknown) =>
            log.warn({ exchange: x.id, err: cause }, 'cannot record what a reply stored at its upstream'),
          )
      },
    }
  },
})

function refusal(param: string, id: string): GatewayError {
  const shown = id.length > SHOWN ? `${id.slice(0, SHOWN)}...` : id
  return new GatewayError('invalid_body', {
    param,
    message: `"${param}" refers to "${shown}", which this key did not create, or which has expired. Send the content instead, or omit it.`,
  })
}
