/** What the secrets of customers' keys begin with: `sk-`, and what the file lists in `keys.prefixes`. */

/** What imported secrets look like. */
export interface SecretForms {
  /** What they may begin with beside `sk-`. */
  readonly prefixes: readonly string[]
  /** What was appended to secrets before they were hashed. */
  readonly importSuffix: string | undefined
}

/** The beginning of every secret that is made here. */
export const OWN_PREFIX = 'sk-'
/** The fewest characters after the prefix of an imported secret. */
export const SECRET_MIN = 20

/** Beginnings of ids, tokens and codes of Tollgate's own, which no secret of a key may be taken for. */
const RESERVED = ['key_', 'bal_', 'code_', 'tok_', 'tgs-', 'tga-', 'TG-', 'sha256']

/** Returns the beginning of ids, tokens or hashes of Tollgate's own that a prefix conflicts with. Undefined if it conflicts with none. */
export function reservedBy(prefix: string): string | undefined {
  return RESERVED.find(own => own.startsWith(prefix) || prefix.startsWith(own))
}

/** Returns everything that secrets may begin with. */
export function prefixesOf(prefixes: readonly string[]): readonly string[] {
  return [OWN_PREFIX, ...prefixes]
}

/** Whether a text begins like the secret of a key. */
export function beginsAsSecret(text: string, prefixes: readonly string[]): boolean {
  return prefixesOf(prefixes).some(prefix => text.startsWith(prefix))
}

/** Returns the prefix of a secret that can be imported. Undefined if the text is not such a secret. */
export function prefixOf(text: string, prefixes: readonly string[]): string | undefined {
  return prefixesOf(prefixes).find(
    prefix => text.startsWith(prefix) && text.length >= prefix.length + SECRET_MIN && /^[\w-]{1,200}$/.test(text),
  )
}

/** Returns a pattern that finds such secrets in a text, with the prefix as its first group; undefined without prefixes. */
export function secretsIn(prefixes: readonly string[]): RegExp | undefined {
  return prefixes.length === 0 ? undefined : new RegExp(`(${prefixes.join('|')})[\\w-]{${SECRET_MIN},}`, 'g')
}
