/** Settlements: how an exchange ends, as it is sent to the store and as it waits on disk. */
import { isId, movedId, timeOfId } from '../lib/ids.ts'
import type { Notes } from '../records/entry.ts'
import { bucketAt } from './buckets.ts'
import type { AttemptPart, End, HoldName } from './hold.ts'
import { notesText } from '../records/notes.ts'

/** A settlement as it is sent to the store. */
export interface Settlement extends HoldName {
  /** The version of this form. */
  readonly v: 2
  readonly bucket: string
  /** In nano-credits. */
  readonly charge: string
  readonly kind: End['kind']
  /** The notes as `notesText` writes them. */
  readonly notes: string
  readonly attempt?: AttemptPart | undefined
  /** The id of an exchange in a store of the first layout. */
  readonly old?: string | undefined
  /** When it was first sent, in milliseconds since the epoch. */
  readonly at: number
}

/** Returns the settlement for an end. */
export function settlementOf(
  { account, id, bucket }: HoldName & { readonly bucket?: string | undefined },
  { charge, kind, notes, attempt }: End,
  at: number,
): Settlement {
  return {
    v: 2,
    account,
    id,
    bucket: bucket ?? bucketAt(timeOfId(id)),
    charge: String(charge),
    kind,
    notes: notesText(notes),
    ...(attempt && { attempt }),
    at,
  }
}

/** A settlement as versions before the records wrote it. */
interface FirstSettlement {
  readonly account: string
  readonly id: string
  /** Its id, charge, kind and notes, and in the tenth place its role among the attempts at its request. */
  readonly args: readonly string[]
  readonly request?: string
  readonly at: number
}

/** Reads a line of an outbox, also of versions before the records. Undefined for anything else. */
export function settlementFrom(line: string): Settlement | undefined {
  try {
    const read = JSON.parse(line) as Settlement | FirstSettlement
    if ('v' in read) return read.v === 2 && isId(read.id) && typeof read.account === 'string' ? read : undefined
    const { account, id, args, request, at } = read
    const [, charge = '', kind = '', notes = ''] = args
    const part = args[9]
    if (typeof account !== 'string' || !/^\d{1,15}$/.test(charge) || (kind !== 'settle' && kind !== 'void'))
      return undefined
    return {
      v: 2,
      account,
      id: movedId(at, id),
      old: id,
      bucket: bucketAt(at),
      charge,
      kind,
      notes: notesText(JSON.parse(notes) as Notes),
      ...(request !== undefined && (part === 'lost' || part === 'retry') && { attempt: { request, part } }),
      at,
    }
  } catch {
    return undefined
  }
}
