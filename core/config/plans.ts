/** Reads plans, limits and groups of models of gateway.yaml. */
import { suggest } from '../lib/suggest.ts'
import { formatCredits } from '../money/credits.ts'
import { type KeyLimits, limitsFrom, type LimitTerms } from '../plans/limits.ts'
import { type PlanTerms, problemsOf, type WindowTerms } from '../plans/terms.ts'
import type { Path } from './locate.ts'
import type { RawConfig } from './schema.ts'
import type { SectionReader } from './section-reader.ts'

type RawKeyType = RawConfig['keyTypes'][string]

/** Models by the name of their group. */
export type Groups = ReadonlyMap<string, ReadonlySet<string>>

/** What the models of plans and limits may be. */
interface Known {
  readonly groups: Groups
  readonly models: ReadonlyMap<string, unknown>
}

/** Converts a plan, and reports what is wrong with it. */
export function planFromFile(
  raw: NonNullable<RawKeyType['plan']>,
  path: Path,
  reader: SectionReader,
  known: Known,
): PlanTerms {
  const windows = raw.windows.map((window, place): WindowTerms => {
    const at = [...path, 'windows', place]
    checkModels(window.models, [...at, 'models'], reader, known)
    const { credits, ...rest } = window
    return { ...rest, ...(credits !== undefined && { credits: formatCredits(reader.amount([...at, 'credits'])) }) }
  })
  const terms: PlanTerms = {
    windows,
    then: raw.then,
    ...(raw.until !== undefined && { until: raw.until }),
    ...(raw.cachedInput !== undefined && { cachedInput: formatCredits(reader.decimal([...path, 'cachedInput'])) }),
  }
  for (const { path: inPlan, message, hint } of problemsOf(terms)) reader.add([...path, ...inPlan], message, hint)
  return terms
}

/** Converts the limits of a key type, and reports what is wrong with them. */
export function limitsFromFile(raw: RawKeyType['limits'], path: Path, reader: SectionReader, known: Known): KeyLimits {
  checkModels(raw.models, [...path, 'models'], reader, known)
  const amount = (name: 'creditsPerDay' | 'credits'): string | undefined =>
    raw[name] === undefined ? undefined : formatCredits(reader.amount([...path, name]))
  const terms: LimitTerms = { ...raw, creditsPerDay: amount('creditsPerDay'), credits: amount('credits') }
  return limitsFrom(terms)
}

function checkModels(
  names: readonly string[] | undefined,
  path: Path,
  reader: SectionReader,
  { groups, models }: Known,
): void {
  for (const [index, name] of (names ?? []).entries())
    if (!groups.has(name) && !models.has(name))
      reader.add(
        [...path, index],
        `there is no group "${name}", and this key type has no such model`,
        suggest(name, [...groups.keys(), ...models.keys()]),
      )
}
