/** Removes secrets from text. A command needs this for its errors, even if it logs nothing. */

/** Tokens and sessions of operators, and redeem codes. */
const OPERATORS = /\b(tg[as]-)[A-Za-z0-9]{8,}|\b(TG-)(?:[0-9A-Z]{5}-){4}[0-9A-Z]{5}/gi

/** Removes secrets from text: what looks like a key, an operator's token or a redeem code, and the credentials it was given. */
export class Scrubber {
  #secrets: readonly string[] = []
  /** Finds other secrets of customers. */
  #pattern: RegExp | undefined

  /** Adds credentials to remove. Short words are ignored, as removing them would mutilate ordinary text. */
  watch(secrets: readonly string[]): void {
    const long = secrets.filter(secret => secret.length >= 8)
    // In a line of JSON a credential may be written with escapes, and in an address encoded.
    this.#secrets = [
      ...new Set([
        ...this.#secrets,
        ...long,
        ...long.map(secret => JSON.stringify(secret).slice(1, -1)),
        ...long.filter(secret => secret.isWellFormed()).map(encodeURIComponent),
      ]),
    ]
  }

  /** Also removes what a pattern finds, except its first group. */
  watchFor(pattern: RegExp | undefined): void {
    this.#pattern = pattern
  }

  scrub(text: string): string {
    // Most lines have no key, and this test is cheaper than a search.
    let clean = text.includes('sk-') ? text.replace(/\bsk-[A-Za-z0-9_-]{4,}|sk-[A-Za-z0-9_-]{20,}/g, 'sk-***') : text
    if (this.#pattern) clean = clean.replace(this.#pattern, '$1***')
    if (/tg[as]?-/i.test(clean)) clean = clean.replace(OPERATORS, '$1$2***')
    for (const secret of this.#secrets) if (clean.includes(secret)) clean = clean.replaceAll(secret, '***')
    return clean
  }
}
