/** `tollgate keys …`: creates and manages customers' keys in the store that the running gateway uses. */
import type { Config } from '../config/config.ts'
import { suggest } from '../config/locate.ts'
import { duration } from '../config/units.ts'
import type { Key, Keys } from '../ledger/keys.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { formatCredits, MAX_AMOUNT, parseDecimal } from '../money/credits.ts'
import { isoTime, standing } from '../metering/account-views.ts'
import { inOneLine } from './printable.ts'
import { onLedger, quoted, StoreFailure, UsageError } from './shared.ts'
import type { Environment } from '../lib/environment.ts'

interface Output {
  readonly json?: boolean
}

/** Options of `tollgate keys create`. */
export interface CreateOptions extends Output {
  readonly type: string
  readonly credits: string
  readonly name?: string
  readonly expires?: string
}

/** Creates a key and prints its secret, which is shown only once. */
export async function createKey(environment: Environment, config: Config, options: CreateOptions): Promise<void> {
  const { type } = options
  if (!config.keyTypes.has(type)) {
    const hint = suggest(type, config.keyTypes.keys())
    throw new UsageError(`there is no key type "${type}"${hint === undefined ? '' : `; ${hint}`}`)
  }
  const wish = {
    type,
    name: options.name ?? '',
    credits: amount(options.credits),
    expiresAt: expiry(options.expires, environment.now()),
  }
  const { key, secret, doubt } = await onLedger(environment, config, (_ledger, keys) => keys.create(wish))
  if (options.json) {
    environment.print(
      JSON.stringify({
        id: key.id,
        key: secret,
        type,
        credits: Number(formatCredits(wish.credits)),
        name: key.name,
        expires_at: isoTime(key.expiresAt),
      }),
    )
  } else {
    environment.print(
      `${secret}\n\nThe key is shown only this once. Its id is ${key.id}; it is a ${type} key with ${formatCredits(wish.credits)} credits.`,
    )
  }
  if (doubt) throw doubt
}

/** Prints all keys. */
export async function listKeys(environment: Environment, config: Config, options: Output): Promise<void> {
  await onLedger(environment, config, async (ledger, keys) => {
    const all = await Array.fromAsync(keys.all())
    for (const key of all.sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1))) {
      const shown = await describe(ledger, key, config, environment.now())
      if (options.json) environment.print(JSON.stringify(shown))
      else
        environment.print(
          [
            shown.id,
            shown.label,
            shown.type.padEnd(8),
            shown.status.padEnd(9),
            `${shown.balance} credits`,
            inOneLine(shown.name),
          ].join('  '),
        )
    }
  })
}

/** Prints one key with its balance. */
export async function showKey(environment: Environment, config: Config, id: string, options: Output): Promise<void> {
  const shown = await onLedger(environment, config, async (ledger, keys) =>
    describe(ledger, await find(keys, id), config, environment.now()),
  )
  if (options.json) environment.print(JSON.stringify(shown))
  else
    for (const [name, value] of Object.entries(shown))
      environment.print(`${name.padEnd(11)} ${inOneLine(value ?? '-')}`)
}

/** Options of `tollgate keys topup`. */
export interface TopUpOptions extends Output {
  readonly idempotencyKey?: string
}

/** Adds to a key's allocation and prints the new balance. */
export async function topUp(
  environment: Environment,
  config: Config,
  id: string,
  credits: string,
  options: TopUpOptions,
): Promise<void> {
  const { idempotencyKey = environment.newId() } = options
  // The key may be pasted into a shell, so characters with a special meaning there are refused.
  if (!/^(?!sk-)[A-Za-z0-9][\w.:/@+=-]{0,99}$/.test(idempotencyKey)) {
    throw new UsageError(
      'an idempotency key has 1 to 100 letters, digits and . _ : / @ + = -, begins with a letter or a digit, and is not an API key',
    )
  }
  const sum = amount(credits)
  let repeatCommand = ''
  try {
    const [added, shown] = await onLedger(environment, config, async (ledger, keys) => {
      const key = await find(keys, id)
      repeatCommand = `npx tollgate -c ${quoted(config.file)} keys topup ${key.id} ${credits} --idempotency-key ${idempotencyKey}`
      environment.onSignal('SIGINT', () => {
        environment.complain(unknownOutcome('the command was interrupted', repeatCommand))
        void environment.exit(130)
      })
      const now = await ledger.grant(key.id, `topup:${idempotencyKey}`, sum, { reason: 'topup' })
      return [now, await describe(ledger, key, config, environment.now())] as const
    })
    const repeated = added ? '' : ' This idempotency key was already used, so nothing was added.'
    environment.print(
      options.json ? JSON.stringify({ ...shown, added }) : `${shown.id} now has ${shown.balance} credits.${repeated}`,
    )
  } catch (thrown) {
    if (repeatCommand === '' || !(thrown instanceof StoreFailure)) throw thrown
    throw new Error(unknownOutcome(thrown.message, repeatCommand), { cause: thrown })
  }
}

function unknownOutcome(why: string, repeatCommand: string): string {
  return `${why}; the top-up may or may not have been done. This command completes it without adding twice:\n  ${repeatCommand}`
}

/** Disables or enables a key. */
export async function setStatus(
  environment: Environment,
  config: Config,
  id: string,
  status: Key['status'],
  options: Output,
): Promise<void> {
  const shown = await onLedger(environment, config, async (ledger, keys) => {
    const key = await find(keys, id)
    await keys.setStatus(key.id, status)
    return describe(ledger, await find(keys, id), config, environment.now())
  })
  environment.print(options.json ? JSON.stringify(shown) : `${shown.id} is now ${shown.status}.`)
}

/** Gives a key a new secret and prints it. */
export async function rotateKey(environment: Environment, config: Config, id: string, options: Output): Promise<void> {
  const { key, secret } = await onLedger(environment, config, async (_ledger, keys) =>
    keys.rotate((await find(keys, id)).id),
  )
  if (options.json) environment.print(JSON.stringify({ id: key.id, key: secret, type: key.type }))
  else
    environment.print(
      `${secret}\n\nThe key is shown only this once. The old secret of ${key.id} no longer works; balance and history stay.`,
    )
}

async function describe(ledger: Ledger, key: Key, { keyTypes }: Config, now: number) {
  const { granted, balance, held, settled } = await ledger.balance(key.id)
  // A key whose type is no longer in the file is refused.
  const active = keyTypes.has(key.type) ? standing(key, balance, now).status : 'no_type'
  return {
    id: key.id,
    label: key.label,
    name: key.name,
    type: key.type,
    status: key.status === 'disabled' ? 'disabled' : active,
    granted: formatCredits(granted),
    balance: formatCredits(balance),
    held: formatCredits(held),
    used: formatCredits(settled),
    created_at: isoTime(key.createdAt),
    expires_at: isoTime(key.expiresAt),
  }
}

/** Finds a key by its id or secret. @throws UsageError if no key has it */
export async function find(keys: Keys, id: string): Promise<Key> {
  const key = (await keys.get(id)) ?? (id.startsWith('sk-') ? await keys.find(id) : undefined)
  if (!key) throw new UsageError(`there is no key ${id.startsWith('sk-') ? 'with this secret' : id}`)
  return key
}

function amount(text: string): bigint {
  // `parseDecimal` takes at most nine digits before the point. A longer number is an amount, but too large.
  const nano = /^\d{10,}$/.test(text) ? MAX_AMOUNT + 1n : parseDecimal(text)
  if (/^\d+\.\d{10,}$/.test(text))
    throw new UsageError(`"${text}" has too many digits; an amount has at most nine decimal places`)
  if (nano === undefined || nano === 0n)
    throw new UsageError(`"${text}" is not an amount; use a plain decimal above zero, such as 25 or 0.5`)
  if (nano > MAX_AMOUNT)
    throw new UsageError(`"${text}" exceeds the maximum of ${formatCredits(MAX_AMOUNT)} credits at a time`)
  return nano
}

/** Parses `30d`, `12h`, or a date. */
function expiry(text: string | undefined, now: number): number | undefined {
  if (text === undefined) return undefined
  if (/^\d{1,6}[smhd]$/.test(text)) return now + duration(text)
  const at = Date.parse(text)
  if (Number.isNaN(at) || at <= now)
    throw new UsageError(`"${text}" is not a time in the future; use 30d, 12h, or a date such as 2030-01-31`)
  return at
}
