/** Makes and redeems codes. A code adds credits to a key, or gives it a plan, or becomes a new key, once. */
import { hash, randomBytes } from 'node:crypto'
import { turn } from '../lib/turns.ts'
import { type Code, CodeRefused, useCode } from '../records/codes.ts'
import type { Also, Transaction } from '../records/database.ts'
import type { KeyRecord } from '../records/key-records.ts'
import type { PlanTerms } from '../plans/terms.ts'
import type { Key, Keys } from './keys.ts'
import { secretDigest, newSecret, type Secret, seededBytes } from './secrets.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { orUnavailable, unavailable } from '../records/unavailable.ts'

/** The properties of new codes. */
export interface NewCodes extends Pick<Code, 'kind' | 'type' | 'batch' | 'amount' | 'lifetimeMs' | 'expiresAt'> {}

/** A new code. Only this has its text. */
export interface CreatedCode {
  readonly code: Code
  readonly text: string
}

/** What a code gave. `repeated`: an earlier request with the same idempotency key has redeemed it. */
export type Redeemed = { readonly amount: bigint; readonly repeated: boolean } & (
  | { readonly kind: 'credits' | 'plan'; readonly key: string; readonly account: string }
  | { readonly kind: 'key'; readonly key: KeyRecord; readonly secret: string }
)

/** The key types in force, with their plans. */
type KeyTypes = ReadonlyMap<string, { readonly plan: PlanTerms | undefined }>

/** Codes that are made before other work gets its turn. */
const MADE_AT_ONCE = 50

/** The letters and digits of codes. People confuse none of them. */
const LETTERS = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'
/** Five groups of five: 125 bits. */
const GROUPS = 5
const GROUP = 5

/** Makes and redeems the codes of a ledger. */
export class CodeBook {
  readonly #ledger: Ledger
  readonly #keys: Pick<Keys, 'changes' | 'plans'>
  readonly #now: () => number

  constructor(ledger: Ledger, keys: Pick<Keys, 'changes' | 'plans'>, now: () => number) {
    this.#ledger = ledger
    this.#keys = keys
    this.#now = now
  }

  /**
   * Creates codes: all of them or, if the records fail, none.
   * @param also writes more in the same transaction
   * @param texts makes the text of each code; a random one by default
   * @throws GatewayError unavailable; what `also` throws
   */
  async create(
    wish: NewCodes,
    count: number,
    also?: (sql: Transaction, codes: readonly Code[]) => Promise<void>,
    texts = newCodeText,
  ): Promise<CreatedCode[]> {
    const createdAt = this.#now()
    const created: CreatedCode[] = []
    while (created.length < count) {
      const text = texts()
      const state = { cancelledAt: undefined, usedAt: undefined, key: undefined, request: '' }
      const id = `code_${randomBytes(9).toString('hex')}`
      created.push({ code: { ...wish, ...state, id, createdAt, hint: `TG-...${text.slice(-4)}` }, text })
      if (created.length % MADE_AT_ONCE === 0) await turn()
    }
    const rows = created.map(({ code, text }) => ({ ...code, digest: digestOfCode(text) }))
    await orUnavailable(this.#ledger.records.codes.add(rows, also && (sql => also(sql, rows))))
    return created
  }

  /**
   * Redeems a code.
   * @param key the key that gets the credits, if there is one
   * @param types the key types in force
   * @param request an idempotency key. A request that repeats it gets the same answer, with the secret of a new key
   * @throws CodeRefused; GatewayError unavailable; RangeError if the key cannot get the credits
   */
  async redeem(
    text: string,
    { key, types, request }: { key?: Key | undefined; types: KeyTypes; request?: string | undefined },
  ): Promise<Redeemed> {
    const digest = digestOfCode(text)
    const code = await orUnavailable(this.#ledger.records.codes.find(digest))
    if (!code) throw new CodeRefused('unknown')
    const asked = request === undefined ? '' : hash('sha256', request, 'base64url')
    if (code.kind === 'key') return this.#redeemForKey(code, text, { digest, asked, request, types })
    if (!key) throw new CodeRefused('other type', code)
    const given = { kind: code.kind, key: key.id, account: key.account, amount: code.amount }
    if (code.usedAt !== undefined && code.key === key.id && asked !== '' && code.request === asked)
      return { ...given, repeated: true }
    const use = { key: key.id, type: key.type, request: asked, now: this.#now() }
    const also: Also = async sql => {
      await useCode(sql, digest, use)
    }
    const added = await this.#given(code, key, types.get(code.type)?.plan, also)
    if (added) return { ...given, repeated: false }
    // The same request, or another one for the same key, came at the same time.
    const used = (await orUnavailable(this.#ledger.records.codes.find(digest))) ?? code
    if (asked === '' || used.request !== asked) throw new CodeRefused('used', used)
    return { ...given, repeated: true }
  }

  /** Gives the balance of a key what a code is for. @returns whether this call did it */
  #given(code: Code, key: Key, terms: PlanTerms | undefined, also: Also): Promise<boolean> {
    const id = `code:${code.id}`
    if (code.kind === 'credits') {
      const grant = { id, amount: code.amount, notes: { reason: 'code', code: code.id } }
      return this.#ledger.accounts.grant(key.account, grant, also)
    }
    if (!terms) throw new CodeRefused('no plan', code)
    const wish = { account: key.account, id, note: `redeem code ${code.id}`, also }
    return this.#keys.plans.buy(wish, terms, code.type)
  }

  async #redeemForKey(
    code: Code,
    text: string,
    { digest, asked, request, types }: { digest: string; asked: string; request: string | undefined; types: KeyTypes },
  ): Promise<Redeemed> {
    const { type, amount, lifetimeMs, batch } = code
    const now = this.#now()
    const secret = newSecret('sk-', request === undefined ? randomBytes : seededBytes(plain(text), request))
    const repeated = async (used: Code): Promise<Redeemed> => {
      // A key with this secret was made by this request, or by one with the same idempotency key.
      const key = await orUnavailable(this.#ledger.records.keys.find([secret.digest]))
      if (!key || key.status === 'deleted') throw new CodeRefused('used', used)
      return { kind: 'key', key, secret: secret.secret, amount, repeated: true }
    }
    if (code.usedAt !== undefined) return repeated(code)
    if (!types.has(type)) throw new CodeRefused('other type', code)
    const expiresAt = lifetimeMs === undefined ? undefined : now + lifetimeMs
    const once: () => Secret = () => secret
    try {
      const [created] = await this.#keys.changes.createMany({ type, name: '', batch, credits: amount, expiresAt }, 1, {
        secrets: once,
        also: async (sql, [key]) => {
          await useCode(sql, digest, { key: key?.id ?? '', type, request: asked, now })
        },
      })
      if (created?.reached === 'unknown') throw unavailable(new Error('the new key may not be recorded'))
      return { kind: 'key', key: created?.key as KeyRecord, secret: secret.secret, amount, repeated: false }
    } catch (thrown) {
      // The same request may have come twice at once. Then the key of the other one is there already.
      // Without an idempotency key, only this call has the secret: if the key exists, this call has made it.
      const used = await orUnavailable(this.#ledger.records.codes.find(digest))
      if (used?.usedAt !== undefined) return repeated(used)
      throw thrown
    }
  }
}

/** Makes a code, such as `TG-7K3QF-...`. @param bytes returns unpredictable bytes; random ones by default */
export function newCodeText(bytes: (count: number) => Buffer = randomBytes): string {
  const letters = [...bytes(GROUPS * GROUP)].map(byte => LETTERS[byte % LETTERS.length])
  const groups = Array.from({ length: GROUPS }, (_, at) => letters.slice(at * GROUP, (at + 1) * GROUP).join(''))
  return `TG-${groups.join('-')}`
}

/** Returns the letters and digits of a code that a person may have typed. */
function plain(text: string): string {
  return text
    .toUpperCase()
    .replaceAll(/[^0-9A-Z]/g, '')
    .replaceAll('O', '0')
    .replaceAll(/[IL]/g, '1')
}

function digestOfCode(text: string): string {
  return secretDigest(`code ${plain(text)}`)
}
