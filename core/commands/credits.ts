/** `tollgate keys topup` and `deduct`, and those of balances. */
import type { Config } from '../config/config.ts'
import type { Keys } from '../keys/keys.ts'
import type { Ledger } from '../ledger/ledger.ts'
import type { Environment } from '../lib/environment.ts'
import { duration } from '../config/units.ts'
import { formatCredits } from '../money/credits.ts'
import { type BalanceView, balanceViews } from '../operator/balance-view.ts'
import { GIVEN_DURATION } from '../operator/given.ts'
import { keyView, type KeyView } from '../operator/key-view.ts'
import { addAudit } from '../records/audit-log.ts'
import { auditEntry } from './audited.ts'
import { UsageError } from './program.ts'
import { onLedger, StoreFailure } from './on-ledger.ts'
import { checkName, idempotencyKeyOf, quoted } from './shared.ts'
import { amount, find, findBalance, found, type Output, type Subject } from './subjects.ts'

/** The groups of commands on what they are about. */
const GROUPS = { key: 'keys', balance: 'balances' } as const

/** Options of `topup` and `deduct`. */
export interface CreditsOptions extends Output {
  readonly idempotencyKey?: string
  readonly reason?: string
  readonly extendBy?: string
}

/** A change of a balance. */
export interface CreditsWish {
  readonly subject: Subject
  readonly action: 'topup' | 'deduct'
  readonly credits: string
}

/** Adds to a balance, or takes something back, and prints what is left. */
export async function changeCredits(
  environment: Environment,
  config: Config,
  { subject, action, credits }: CreditsWish,
  options: CreditsOptions,
): Promise<void> {
  const idempotencyKey = idempotencyKeyOf(options.idempotencyKey, environment, config)
  const sum = amount(credits)
  const { reason = '' } = options
  checkName('--reason', reason)
  const { extendBy } = options
  if (extendBy !== undefined && !new RegExp(GIVEN_DURATION.pattern).test(extendBy))
    throw new UsageError(`"${extendBy}" is not a duration, such as 30d`)
  if (action === 'deduct' && reason === '') throw new UsageError('--reason is missing: the statement shows it')
  let repeatCommand = ''
  try {
    const [added, shown] = await onLedger(environment, config, async (ledger, keys) => {
      const { id, account } = await found(ledger, keys, subject)
      const why = `${reason === '' ? '' : ` --reason ${quoted(reason)}`}${extendBy === undefined ? '' : ` --extend-by ${extendBy}`}`
      repeatCommand = `npx tollgate -c ${quoted(config.file)} ${GROUPS[subject.kind]} ${action} ${id} ${credits}${why} --idempotency-key ${idempotencyKey}`
      environment.onSignal('SIGINT', () => {
        environment.complain(unknownOutcome('the command was interrupted', repeatCommand))
        void environment.exit(130)
      })
      const amount = action === 'topup' ? sum : -sum
      const note = reason === '' ? {} : { note: reason }
      const extended = extendBy !== undefined && { extend_by: extendBy }
      const details = { credits: formatCredits(amount), ...(reason !== '' && { reason }), ...extended }
      const extend = extendBy === undefined ? undefined : keys.changes.extension(id, duration(extendBy))
      const audit = auditEntry(environment, `${subject.kind}.${action}`, id, details)
      const now = await ledger.accounts.grant(
        account,
        { id: `${action}:${idempotencyKey}`, amount, notes: { reason: action, ...note } },
        async sql => {
          await addAudit(sql, audit)
          await extend?.(sql)
        },
      )
      if (extend) await keys.changes.bringUp([id])
      return [now, await viewOf(ledger, keys, subject, { config, environment })] as const
    })
    const repeated = added ? '' : ' This idempotency key was already used, so nothing was changed.'
    environment.print(options.json ? JSON.stringify({ ...shown, added }) : wordsOf(shown, extendBy) + repeated)
  } catch (thrown) {
    if (repeatCommand === '' || !(thrown instanceof StoreFailure)) throw thrown
    throw new Error(unknownOutcome(thrown.message, repeatCommand), { cause: thrown })
  }
}

/** Says what a balance has, or what a key may use and until when. */
function wordsOf(view: KeyView | BalanceView, extendBy: string | undefined): string {
  const until = extendBy === undefined || !('expires_at' in view) ? '' : ` It is valid until ${view.expires_at}.`
  if (!('cap' in view) || view.cap === null) return `${view.id} now has ${view.balance} credits.${until}`
  return `${view.id} may use ${view.balance} credits now: its cap is ${view.cap}, which npx tollgate keys edit --cap changes. Its balance ${view.balance_id} was changed.${until}`
}

function unknownOutcome(why: string, repeatCommand: string): string {
  return `${why}; the change may or may not have been made. This command completes it without making it twice:\n  ${repeatCommand}`
}

async function viewOf(
  ledger: Ledger,
  keys: Keys,
  { kind, id }: Subject,
  { config, environment }: { readonly config: Config; readonly environment: Environment },
): Promise<KeyView | BalanceView> {
  if (kind === 'key') return keyView(ledger, await find(keys, id), config, environment.now())
  const [view] = await balanceViews(ledger, [await findBalance(ledger, id)])
  if (!view) throw new UsageError(`there is no balance ${id}`)
  return view
}
