/** The scopes that are explored. docs/reliability.md has the table. */
import { FAULTS, type Fault, Scope } from './state.ts'

/** A request that does not grow. */
const plain = (...faults: Fault[]): Scope =>
  new Scope(`a plain request, with these faults: ${faults.join(', ')}`, [7], faults, { grows: false })

/** The scopes of `npm test`. The last two combine faults that have shown defects together. */
export const SHORT: readonly Scope[] = [
  new Scope('one request with any one fault', [7], FAULTS, { most: 1 }),
  plain('pause', 'the store falls back'),
  plain('the records fall back', 'the archiver dies', 'the store restarts'),
]

/** The scopes of `npm run explore`. */
export const LONG: readonly Scope[] = [
  plain('is late', 'the store falls back'),
  plain('is not answered', 'hours pass'),
  new Scope('two requests with any one fault', [7, 9], FAULTS, { most: 1 }),
  new Scope('one request with any two faults', [7], FAULTS, { most: 2 }),
]
