/** The scopes that are explored. docs/reliability.md has the table. */
import { FAULTS, type Fault, Scope } from './state.ts'

const some = (grows: boolean, ...faults: Fault[]): Scope =>
  new Scope(`${grows ? 'a request' : 'a plain request'}, with these faults: ${faults.join(', ')}`, [7], faults, {
    grows,
  })

/** The scopes of `npm test`. They combine faults that have shown defects together. */
export const SMALL: readonly Scope[] = [
  some(false, 'pause', 'the store falls back'),
  some(false, 'the records fall back', 'the archiver dies', 'the store restarts'),
  some(false, 'is late', 'repeat', 'the store is emptied'),
  some(true, 'kill', 'the store falls back'),
]

/** The scopes of `npm run test:all`. */
export const SHORT: readonly Scope[] = [
  new Scope('one request with any one fault', [7], FAULTS, { most: 1 }),
  new Scope('a request of one of two keys on one balance, with any one fault', [7], FAULTS, {
    most: 1,
    isShared: true,
  }),
  new Scope('a request that a plan pays for, with any one fault', [7], FAULTS, { most: 1, hasPlan: true }),
]

/** The scopes of `npm run explore`. */
export const LONG: readonly Scope[] = [
  new Scope('one request with any two faults', [7], FAULTS, { most: 2 }),
  new Scope('two requests with any one fault', [7, 9], FAULTS, { most: 1 }),
  new Scope('a request that a plan pays for, with any two faults', [7], FAULTS, { most: 2, hasPlan: true }),
  new Scope('one request with any three faults', [7], FAULTS, { most: 3 }),
  new Scope('a request of one of two keys on one balance, with any two faults', [7], FAULTS, {
    most: 2,
    isShared: true,
  }),
]
