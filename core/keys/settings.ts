/** What keys need of the configuration in force. */
import type { SecretForms } from '../lib/prefixes.ts'
import type { PlanTerms } from '../plans/terms.ts'

/** What imported secrets look like, and the plans that new keys get. A reload changes both. */
export interface KeySettings extends SecretForms {
  /** Returns the plan of a key type. Undefined for none. */
  readonly planOf: (type: string) => PlanTerms | undefined
}

/** The settings without any of these. */
export const NO_SETTINGS: KeySettings = { prefixes: [], importSuffix: undefined, planOf: () => undefined }

/** Returns what keys need of a configuration. */
export function settingsOf({
  keys,
  keyTypes,
}: {
  readonly keys: SecretForms
  readonly keyTypes: ReadonlyMap<string, { readonly plan: PlanTerms | undefined }>
}): KeySettings {
  return { ...keys, planOf: type => keyTypes.get(type)?.plan }
}
