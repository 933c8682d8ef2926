/** The scopes that are explored. docs/reliability.md has the table. */
import { FAULTS, Scope } from './state.ts'

const one = (most: number): Scope => new Scope(`one request, ${most} faults of any kind`, [7], FAULTS, { most })

/** The scopes of `npm test`: some thousand states. */
export const SHORT: readonly Scope[] = [one(1)]

/** The scopes of `npm run explore`. */
export const LONG: readonly Scope[] = [one(3)]
