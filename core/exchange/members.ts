/** The members of an exchange as plugins see them: facts are added, and unknown members throw. */
import { Body } from '../formats/body.ts'
import { reportingMisspelt } from '../lib/misspelt.ts'
import { BODY_MEMBERS, EXCHANGE_MEMBERS, type Fact, FACTS } from './exchange.ts'

/** Facts of plugins of authors. A plugin may look whether another one has given one. */
const authorsFacts = new Set<string>()

/** Notes the facts of a plugin, so that one that is not given yet is undefined, and not a misspelt name. */
export function noteFacts({ needs, gives }: Readonly<Record<'needs' | 'gives', readonly Fact[]>>): void {
  for (const fact of [...needs, ...gives]) authorsFacts.add(fact)
}

/** Whether a fact is one of the built-in stages. */
function isBuiltIn(fact: string): boolean {
  return (FACTS as readonly string[]).includes(fact)
}

/** The end of the prototype chain of exchanges: unknown members throw. */
export const REPORTING_EXCHANGE = reportingMisspelt(
  'x',
  [...EXCHANGE_MEMBERS, ...FACTS],
  name => authorsFacts.has(name) || isBuiltIn(name),
)

Object.setPrototypeOf(Body.prototype, reportingMisspelt('x.body', BODY_MEMBERS))

/** Forgets facts, so that they can be given again. */
export function forget(x: object, facts: readonly string[]): void {
  for (const fact of facts) {
    if (isBuiltIn(fact)) (x as Record<string, unknown>)[fact] = undefined
    else Reflect.deleteProperty(x, fact)
  }
}

/**
 * Adds the facts that a request hook has returned.
 * @throws TypeError if they are not exactly those in `gives`, or one has the name of another member
 */
export function learn(x: object, given: unknown, { gives }: { readonly gives: readonly Fact[] }): void {
  if (given === undefined && gives.length === 0) return
  const facts = (given ?? {}) as Readonly<Record<string, unknown>>
  for (const fact of Object.keys(facts))
    if (!(gives as readonly string[]).includes(fact))
      throw new TypeError(`"${fact}" is not in its \`gives\`; to answer, return a Reply`)
  for (const fact of gives) {
    const value = facts[fact]
    if (value === undefined) throw new TypeError(`its request hook did not return "${fact}"`)
    // The facts of the built-in stages are fields of the exchange.
    if (isBuiltIn(fact)) (x as Record<string, unknown>)[fact] = value
    else if (fact in x) throw new TypeError(`"${fact}" cannot be a fact: an exchange has a member of this name`)
    else Object.defineProperty(x, fact, { value, enumerable: true, configurable: true, writable: true })
  }
}
