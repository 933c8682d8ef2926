/** The tokens of operators, as they are made and shown. */
import { createHash } from 'node:crypto'
import { newSecret, type Secret } from '../keys/secrets.ts'
import { isoTime } from '../lib/iso-time.ts'
import type { Token, TokenScope } from '../records/tokens.ts'

/** The prefix of a token's secret. */
export const TOKEN_PREFIX = 'tga-'

/**
 * Makes a token.
 * @param now milliseconds since the epoch
 * @param made its secret; a random one by default
 */
export function newToken(
  name: string,
  scope: TokenScope,
  now: number,
  made: Secret = newSecret(TOKEN_PREFIX),
): { token: Token; secret: string; digest: string } {
  const { secret, digest, hint } = made
  const id = `tok_${createHash('sha256').update(digest).digest('hex').slice(0, 18)}`
  return { token: { id, name, scope, hint, createdAt: now, usedAt: undefined, revokedAt: undefined }, secret, digest }
}

/** Returns a token as operators see it. Times are ISO 8601. */
export function tokenView({ id, name, scope, hint, createdAt, usedAt, revokedAt }: Token) {
  return {
    id,
    name,
    scope,
    hint,
    created_at: isoTime(createdAt),
    used_at: isoTime(usedAt),
    revoked_at: isoTime(revokedAt),
  }
}
