import type { Test } from 'tap'

/** Asserts that a list matches these items and has no others. `t.match` alone ignores others. */
export function matchAll(t: Test, found: readonly unknown[], items: readonly unknown[], name = 'these items'): void {
  t.match({ length: found.length, items: found }, { length: items.length, items }, name)
}
