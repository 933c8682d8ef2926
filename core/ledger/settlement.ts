/** Settlements: how an exchange ends, as it is sent to the store and as it waits on disk. */
import type { Environment } from '../lib/environment.ts'
import { assertMoney } from '../money/assertions.ts'
import { MAX_AMOUNT } from '../money/credits.ts'
import { isId, timeOfId } from '../lib/ids.ts'
import { bucketAt } from './script/buckets.ts'
import { type ResendPart, type HoldEnd, type HoldName, NO_CLAIMS } from './hold.ts'
import { notesText } from '../records/notes.ts'

/** A settlement as it is sent to the store. */
export interface Settlement extends HoldName {
  /** The version of this form. */
  readonly v: 1
  readonly bucket: string
  /** In nano-credits. */
  readonly charge: string
  /** The tokens that windows and rates count, and what the hold has taken of them, if it has. */
  readonly tokens?: number | undefined
  readonly claims?: string | undefined
  readonly kind: HoldEnd['kind']
  /** The notes as `notesText` writes them. */
  readonly notes: string
  /** The part among resends. On disk it is called `attempt`, as in version 1 of this form. */
  readonly attempt?: ResendPart | undefined
  /** When it was first sent, in milliseconds since the epoch. */
  readonly at: number
}

/** Returns the settlement for an end. */
export function settlementOf(
  {
    account,
    key,
    id,
    bucket,
    claims = NO_CLAIMS,
  }: HoldName & { readonly bucket?: string | undefined; readonly claims?: string | undefined },
  { charge, tokens = 0, kind, notes, resend }: HoldEnd,
  at: number,
): Settlement {
  assertMoney(charge >= 0n && charge <= MAX_AMOUNT, 'a charge is an amount', () => ({ account, id, charge }))
  assertMoney(kind === 'settle' || charge === 0n, 'a voided hold charges nothing', () => ({ account, id, charge }))
  return {
    v: 1,
    account,
    ...(key !== undefined && key !== account && { key }),
    id,
    bucket: bucket ?? bucketAt(timeOfId(id)),
    charge: String(charge),
    ...(claims !== NO_CLAIMS && { tokens, claims }),
    kind,
    notes: notesText(notes),
    ...(resend && { attempt: resend }),
    at,
  }
}

/** Reads a line of an outbox. Undefined for anything else. */
export function settlementFrom(line: string): Settlement | undefined {
  try {
    const read = JSON.parse(line) as Settlement
    return read.v === 1 && isId(read.id) && typeof read.account === 'string' ? read : undefined
  } catch {
    return undefined
  }
}

/**
 * Prints settlements that nothing has taken on standard error, so that an operator can charge them later.
 * @returns their number
 */
export function printUntaken(
  settlements: readonly Settlement[],
  { complain, now }: Pick<Environment, 'complain' | 'now'>,
): number {
  for (const settlement of settlements)
    complain(JSON.stringify({ level: 'error', time: now(), settlement, msg: 'a settlement is lost' }))
  return settlements.length
}
