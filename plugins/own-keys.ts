import { formatCredits, GatewayError, type Key, PerMinute, Reply } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import {
  type BuiltInExchange,
  type BuiltInHost,
  credits,
  defineBuiltIn,
  duration,
  invalidBody,
  isoTime,
  PRIVATE,
  sentence,
  setting,
  smallJson,
  whole,
} from 'tollgate/plugin/operator'

/** Most bytes of a request. */
const BODY_BYTES = 4096
const PATH = '/api/v1/keys'
/** Most keys of a list. An operator may have made more. */
const LISTED_MAX = 1000
const DAY_MS = 86_400_000

/** What a customer may choose of a key. */
const MEMBERS = {
  name: operator.GIVEN_NAME,
  cap: { ...operator.GIVEN_AMOUNT, type: ['string', 'number', 'null'] },
} as const
const object = (required: readonly string[], properties: object) => ({
  type: 'object',
  additionalProperties: false,
  required,
  properties,
})
const CHECKS = {
  POST: operator.checkerOf(
    object([], { ...MEMBERS, type: { type: 'string', maxLength: 64 }, expires_in: operator.GIVEN_DURATION }),
  ),
  PATCH: operator.checkerOf({ ...object([], { ...MEMBERS, disabled: { type: 'boolean' } }), minProperties: 1 }),
} as const

/** What a customer sends. */
interface Wish {
  readonly name?: string
  readonly cap?: string | number | null
  readonly type?: string
  readonly expires_in?: string
  readonly disabled?: boolean
}

/**
 * Lets a customer whose key may manage others create keys for its balance, of the types that `keyTypes.….manages` lists, and
 * name, cap, disable and delete those.
 */
export default defineBuiltIn({
  name: 'own-keys',
  summary:
    'Answers GET, POST, PATCH and DELETE /api/v1/keys: a managing key creates keys for its balance, and changes them.',
  on: [`GET ${PATH}`, `POST ${PATH}`, `GET ${PATH}/*`, `PATCH ${PATH}/*`, `DELETE ${PATH}/*`],
  needs: ['key', 'secret'],
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      perBalance: setting(
        whole(1, 1000),
        20,
        'Maximum keys of a balance, including yours, and those that were deleted within a day; beyond it, a customer can create none.',
      ),
      perMinute: setting(whole(1), 20, 'Maximum changes per balance and minute.'),
    },
  },
  setup(options, host) {
    const desk = new Desk(options.perBalance, host)
    const changed = new PerMinute(host.now)
    return {
      async request(x) {
        const id = x.path.slice(PATH.length + 1)
        if (x.method === 'GET') {
          const manager = await desk.managerOf(x.key)
          return id === '' ? desk.list(manager) : desk.show(manager, id)
        }
        const message = 'The keys of this balance change too often. Try again in a minute.'
        changed.limit(x.key.account, options.perMinute, message)
        const wish = x.method === 'DELETE' ? {} : await wishOf(x, x.method === 'POST' ? 'POST' : 'PATCH')
        // A body may take long, so the key is looked up after it.
        const { expiresAt } = await host.keys.usable(x.secret)
        // The store is the first to know when the key was first used.
        const manager = { ...(await desk.managerOf(x.key)), expiresAt }
        try {
          if (x.method === 'DELETE') return await desk.remove(x, manager, id)
          return x.method === 'POST' ? await desk.create(x, manager, wish) : await desk.change(x, manager, { id, wish })
        } catch (thrown) {
          const isRefused = thrown instanceof RangeError || thrown instanceof operator.Impossible
          throw isRefused ? new GatewayError('request_conflict', { message: sentence(thrown.message) }) : thrown
        }
      },
    }
  },
})

/** Does what managing keys ask for. */
class Desk {
  readonly #perBalance: number
  readonly #host: BuiltInHost

  /** @param perBalance most keys of a balance */
  constructor(perBalance: number, host: BuiltInHost) {
    this.#perBalance = perBalance
    this.#host = host
  }

  /** Returns the record of the calling key. @throws GatewayError forbidden unless it may manage others */
  async managerOf({ id }: Key): Promise<operator.RecordedKey> {
    const manager = await operator.orUnavailable(this.#host.ledger.records.keys.get(id))
    if (manager?.manage !== true) throw new GatewayError('forbidden', { message: 'This key may not manage others.' })
    return manager
  }

  async list(manager: operator.RecordedKey): Promise<Reply> {
    const { ledger, now } = this.#host
    const search = { account: manager.account, now: now(), count: LISTED_MAX }
    const found = await operator.orUnavailable(ledger.records.keys.list(search))
    const data = await Promise.all(
      found.map(async key => ({ ...(await this.#viewOf(key)), created_by_this_key: key.batch === manager.id })),
    )
    return Reply.json({ object: 'list', data, types: this.#typesOf(manager) }, PRIVATE)
  }

  async show(manager: operator.RecordedKey, id: string): Promise<Reply> {
    return Reply.json(await this.#viewOf(await this.#ownKeyOf(manager, id)), PRIVATE)
  }

  async create(x: BuiltInExchange, manager: operator.RecordedKey, wish: Wish): Promise<Reply> {
    const { keys, ledger, now } = this.#host
    const types = this.#typesOf(manager)
    const { name = '', type = types.includes(manager.type) ? manager.type : types[0] } = wish
    if (type === undefined) throw new GatewayError('forbidden', { message: 'Your reseller allows no new keys yet.' })
    if (!types.includes(type)) throw invalidBody(`"type" must be one of ${types.join(', ')}.`, 'type')
    const wanted = wish.expires_in === undefined ? undefined : now() + duration(wish.expires_in)
    const { expiresAt: endsAt, lifetimeMs } = manager
    // It expires with the key that creates it at the latest, as if that were used from now on.
    const last = endsAt ?? (lifetimeMs === undefined ? undefined : now() + lifetimeMs)
    const ends = [wanted, last].filter(at => at !== undefined)
    const expiresAt = ends.length === 0 ? undefined : Math.min(...ends)
    const cap = capOf(wish)
    const note = this.#noting(x, manager, 'key.create', { type, name, ...capText(cap) })
    const made = {
      type,
      name,
      batch: manager.id,
      credits: 0n,
      expiresAt,
      cap: cap ?? undefined,
      account: manager.account,
    }
    const [created] = await keys.changes.createMany(made, 1, {
      also: async (sql, all) => {
        if ((await operator.countOn(sql, manager.account, now() - DAY_MS)) > this.#perBalance)
          throw new operator.Impossible(
            `a balance has at most ${this.#perBalance} keys; those that were created and deleted within a day count as well`,
          )
        await note(sql, all)
      },
    })
    if (!created || created.reached === 'unknown')
      throw new GatewayError('unavailable', { message: 'The key may or may not have been created. Look at the list.' })
    const key = await operator.orUnavailable(ledger.records.keys.get(created.key.id))
    return Reply.json({ ...(key && (await this.#viewOf(key))), key: created.secret }, PRIVATE, 201)
  }

  async change(
    x: BuiltInExchange,
    manager: operator.RecordedKey,
    { id, wish }: { readonly id: string; readonly wish: Wish },
  ): Promise<Reply> {
    const { keys, ledger } = this.#host
    const key = await this.#ownKeyOf(manager, id)
    const { name, disabled } = wish
    if (disabled === false && !(await this.#isDisabledBy(manager, id)))
      throw new operator.Impossible('your reseller has disabled this key')
    const cap = capOf(wish)
    const note = (action: string) =>
      this.#noting(x, manager, action, { ...(name !== undefined && { name }), ...capText(cap) })
    if (name !== undefined || cap !== undefined) await keys.changes.edit(id, { name, cap }, { also: note('key.edit') })
    if (disabled === true && key.status === 'active') {
      await keys.changes.disable(id)
      await operator.orUnavailable(ledger.records.database.transaction(sql => note('key.disable')(sql, [key])))
    }
    if (disabled === false) await keys.changes.enable(id, { also: note('key.enable') })
    return this.show(manager, id)
  }

  async remove(x: BuiltInExchange, manager: operator.RecordedKey, id: string): Promise<Reply> {
    await this.#ownKeyOf(manager, id)
    await this.#host.keys.changes.remove(id, { also: this.#noting(x, manager, 'key.delete', {}) })
    return Reply.json({ object: 'key', id, deleted: true }, PRIVATE)
  }

  /** Returns the names of the types of which a managing key may have keys made. */
  #typesOf({ type }: Pick<operator.RecordedKey, 'type'>): readonly string[] {
    return this.#host.config.keyTypes.get(type)?.manages ?? []
  }

  /** Whether the manager was the last to disable a key. */
  async #isDisabledBy(manager: operator.RecordedKey, id: string): Promise<boolean> {
    const { audit } = this.#host.ledger.records
    const [last] = await operator.orUnavailable(audit.list({ target: id, action: 'key.disable', count: 1 }))
    return last?.actor === actorOf(manager)
  }

  /** Finds a key that the manager has created. @throws GatewayError not_found */
  async #ownKeyOf(manager: operator.RecordedKey, id: string): Promise<operator.RecordedKey> {
    const key = await operator.orUnavailable(this.#host.ledger.records.keys.get(id))
    const isOwn =
      key?.account === manager.account &&
      key.status !== 'deleted' &&
      // The batch of a key never changes.
      key.batch === manager.id &&
      key.manage !== true
    if (!key || !isOwn)
      throw new GatewayError('not_found', {
        message: 'There is no such key. You can change only keys that this key has created.',
      })
    return key
  }

  /** Returns a key as the owner of its balance sees it. */
  async #viewOf(key: operator.RecordedKey) {
    const { ledger, config, now } = this.#host
    const { status, used } = await operator.keyView(ledger, key, config, now())
    return {
      object: 'key',
      id: key.id,
      name: key.name,
      hint: key.hint,
      type: key.type,
      status,
      manage: key.manage === true,
      cap: key.cap === undefined ? null : credits(key.cap),
      used: Number(used),
      created_at: isoTime(key.createdAt),
      expires_at: isoTime(key.expiresAt),
    }
  }

  /** Returns what is written in the transaction of a change. It fails if the key was moved meanwhile. */
  #noting(x: BuiltInExchange, manager: operator.RecordedKey, action: string, details: object) {
    const at = this.#host.now()
    const { records } = this.#host.ledger
    return async (sql: operator.Sql, [key]: readonly Pick<operator.RecordedKey, 'id' | 'account'>[]): Promise<void> => {
      const now = await records.keys.get(manager.id, sql)
      const isSame = now?.manage === true && now.status === 'active' && now.rotation === manager.rotation
      if (!isSame || now.account !== manager.account) throw new operator.Impossible('the managing key was changed')
      if (key?.account !== manager.account) throw new operator.Impossible('the key was moved to another balance')
      const entry = { at, actor: actorOf(manager), address: x.address, action, target: key.id }
      await operator.addAudit(sql, { ...entry, details: { ...details } })
    }
  }
}

/** Returns how the audit log names a managing key. */
function actorOf({ id }: Pick<operator.RecordedKey, 'id'>): string {
  return `key ${id}`
}

/** Reads a body. @throws GatewayError invalid_body */
async function wishOf(x: BuiltInExchange, method: keyof typeof CHECKS): Promise<Wish> {
  const body = await x.read(BODY_BYTES)
  const wish = body.length === 0 ? {} : smallJson(body)
  const fault = CHECKS[method](wish)
  if (fault) throw invalidBody(fault.message, fault.member || undefined)
  return wish as Wish
}

/** Returns a given cap in nano-credits; null for none. @throws GatewayError invalid_body */
function capOf({ cap }: Wish): bigint | null | undefined {
  if (cap === undefined || cap === null) return cap
  const nano = operator.parseDecimal(String(cap))
  if (nano === undefined || nano === 0n || nano > operator.MAX_AMOUNT)
    throw invalidBody('"cap" must be an amount of credits above zero, such as "25" or "0.5", or null.', 'cap')
  return nano
}

function capText(cap: bigint | null | undefined): object {
  return cap === undefined ? {} : { cap: cap === null ? null : formatCredits(cap) }
}
