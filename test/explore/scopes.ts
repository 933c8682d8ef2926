/** The scopes that are explored. docs/reliability.md has the table. */
import { FAULTS, type Fault, Scope } from './state.ts'

/** Faults that have met in ways that nobody expected. */
const MET: readonly (readonly Fault[])[] = [
  ['pause', 'the store falls back'],
  ['is late', 'the store falls back'],
  ['the records fall back', 'the archiver dies', 'the store restarts'],
]

/** The scopes of `npm test`: some thousand states. */
export const SHORT: readonly Scope[] = [
  new Scope('one request with any one fault', [7], FAULTS, { most: 1 }),
  ...MET.map(
    faults =>
      new Scope(`one request that does not grow, with these faults: ${faults.join(', ')}`, [7], faults, {
        grows: false,
      }),
  ),
]

/** The scopes of `npm run explore`. */
export const LONG: readonly Scope[] = [
  new Scope('one request with any two faults', [7], FAULTS, { most: 2 }),
  new Scope('two requests with any one fault', [7, 9], FAULTS, { most: 1 }),
]
