/** Errors that an SDK throws. */
import type { Test } from 'tap'

/** Asserts that a call throws an error of the class with the members. */
export async function rejects(
  t: Test,
  call: Promise<unknown>,
  type: new (...args: never[]) => Error,
  members: object = {},
): Promise<void> {
  try {
    await call
    t.fail('did not throw')
  } catch (error) {
    t.ok(error instanceof type, `throws ${type.name}: ${String(error)}`)
    t.match(error, members)
  }
}
