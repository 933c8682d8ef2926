/** Which account a conversation belongs to: the same one as long as it can serve, so that prompt caches are hit. */
import { createHash } from 'node:crypto'

/** Returns a short form of a conversation's name, which may be long. */
export function conversationDigest(conversation: string): string {
  return createHash('sha1').update(conversation).digest('base64')
}

/**
 * Returns how strongly a conversation belongs to an account. The account with the largest score serves it. If one
 * account goes out, only its conversations move, and they return with it (rendezvous hashing).
 * @param conversation short
 * @param weight the weight of the account among the others
 */
export function scoreOf(conversation: string, account: string, weight: number): number {
  const digest = createHash('sha1').update(`${account}\n${conversation}`).digest()
  // A number above 0 and below 1.
  const uniform = (digest.readUIntBE(0, 6) + 0.5) / 2 ** 48
  return -weight / Math.log(uniform)
}
