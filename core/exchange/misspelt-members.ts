/** What an author gets who misspells a member of an exchange or of its body: an error with a suggestion. */
import { Body } from '../formats/body.ts'
import { reportingMisspelt } from '../lib/misspelt.ts'
import { BODY_MEMBERS, EXCHANGE_MEMBERS, FACTS } from './exchange.ts'

/** Facts of plugins of authors. A plugin may look whether another one has given one. */
const authorsFacts = new Set<string>()

/** Notes the facts of a plugin, so that one that is not given yet is undefined, and not a misspelt name. */
export function noteFacts({
  needs,
  gives,
}: {
  readonly needs: readonly string[]
  readonly gives: readonly string[]
}): void {
  for (const fact of [...needs, ...gives]) authorsFacts.add(fact)
}

/** The prototype of what exchanges inherit: their unknown members throw. */
export const REPORTING_EXCHANGE = reportingMisspelt(
  'x',
  [...EXCHANGE_MEMBERS, ...FACTS],
  name => authorsFacts.has(name) || (FACTS as readonly string[]).includes(name),
)

Object.setPrototypeOf(Body.prototype, reportingMisspelt('x.body', BODY_MEMBERS))
