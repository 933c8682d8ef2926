/** The secrets of keys. Only their digests are stored. */
import { hash, randomBytes } from 'node:crypto'

/** Returns the digest by which a secret is found: its SHA-256, in base64url. */
export function digestOf(secret: string): string {
  return hash('sha256', secret, 'base64url')
}

/** Creates a secret of 48 letters and digits (about 285 bits), with its digest and the label that its owner sees. */
export function newSecret(): { secret: string; digest: string; label: string } {
  const letters = randomBytes(96).toString('base64').replace(/[+/=]/g, '').slice(0, 48)
  const secret = `sk-${letters}`
  return { secret, digest: digestOf(secret), label: `sk-...${letters.slice(-4)}` }
}
