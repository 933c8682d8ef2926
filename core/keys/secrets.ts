/** The secrets of keys. Only their digests are stored. */
import { hash, hkdfSync, randomBytes } from 'node:crypto'
import { prefixOf } from '../lib/prefixes.ts'

/** Returns the digest by which a secret is found: its SHA-256, in base64url. */
export function secretDigest(secret: string): string {
  return hash('sha256', secret, 'base64url')
}

/** Whether a text is the id of a key or of a balance. Anything else may be a secret. */
export function isPublicId(text: string): boolean {
  return /^(?:key|bal)_/.test(text)
}

/**
 * Returns the digests by which a secret may be found: its own, and that of a key that was imported with the hash of another
 * gateway.
 * @param suffix what that gateway has appended to secrets
 */
export function digestsOf(secret: string, suffix: string | undefined): readonly string[] {
  return [secretDigest(secret), ...(suffix === undefined ? [] : [secretDigest(secret + suffix)])]
}

/** Returns what stands for a secret where its owner sees it: its prefix and its end. */
export function hintOf(secret: string, prefixes: readonly string[]): string {
  return `${prefixOf(secret, prefixes) ?? ''}...${secret.slice(-4)}`
}

/** A new secret, with its digest and the hint that stands for it. */
export interface Secret {
  readonly secret: string
  readonly digest: string
  readonly hint: string
}

/**
 * Creates a secret of 48 letters and digits (about 285 bits) after a prefix.
 * @param bytes returns as many unpredictable bytes as it is asked for; random ones by default
 */
export function newSecret(prefix = 'sk-', bytes: (count: number) => Buffer = randomBytes): Secret {
  const letters = bytes(96).toString('base64').replace(/[+/=]/g, '').slice(0, 48)
  const secret = prefix + letters
  return { secret, digest: secretDigest(secret), hint: `${prefix}...${letters.slice(-4)}` }
}

/**
 * Returns a source of bytes that depend on a secret and a seed alone, so that secrets can be made again by those who know
 * both.
 */
export function seededBytes(secret: string, seed: string): (count: number) => Buffer {
  let made = 0
  return count => Buffer.from(hkdfSync('sha256', secret, seed, `tollgate ${made++}`, count))
}
