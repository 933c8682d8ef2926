/** Hides credentials in what is shown of a configuration file: quoted lines, messages and hints. */

/**
 * Where credentials are found, also when they are in the wrong place. The first group is shown, the second one is
 * replaced by stars.
 */
export const CREDENTIALS = {
  /**
   * What follows a name such as `key`, `token` or `password`, up to the end of the line; but not `!env NAME`, not the tag
   * `!file`, and not a number of `tokens`.
   */
  afterName:
    /((?<![A-Za-z-])(?:api[-_]?key|ke?ye?|tok(?!ens(?:PerMinute)?["']?\s*:\s*\d[\d_.]*(?![\w-]))\w*|secret|password|authorization|bearer|accounts|importSuffix)["']?\s*[:=]\s*\[?(?:!env\s+\w{1,40}\s+|!file\s+)?)(?![\s[{}\],]|!env\s|simulated\b)(.*\S)/gi,
  /** The value of `header:` if it is not the name of a header for credentials. */
  headerValue: /(header:\s*)(?!x-api-key\b|authorization\b)([^\s,}]+)/g,
  /** User and password in a URL, or in what was meant as one. */
  userInUrl: /(:\/{1,2})([^/\s].*)(?=@)/g,
  /** A password without a user, or the value of a query parameter. */
  passwordOrQuery: /(:\/\/:|[?#]\w+=)([^\s@]+)/g,
  /** A word that looks random: letters and digits, or both cases, without a meaning. `cacheWrite5m` looks like it. */
  randomWord:
    /()\b(?!cacheWrite)((?=[A-Za-z]*\d)(?=\d*[A-Za-z])(?:[A-Za-z0-9]{12,}|(?=[A-Z0-9]*[a-z])(?=[a-z0-9]*[A-Z])[A-Za-z0-9]{8,}))/g,
} as const

/** Replaces every credential in a text by stars. */
export function redact(text: string): string {
  return Object.values(CREDENTIALS).reduce((shown, credential) => shown.replace(credential, stars), text)
}

/**
 * Replaces every credential in the message of a problem by stars. At the place of a credential, everything that the
 * message quotes counts as one, except the name of the setting.
 * @param path dotted path of the setting
 */
export function redactMessage(message: string, path: string): string {
  if (!/(?:key|token|secret|password|authorization)$/i.test(path)) return redact(message)
  const quoted = (all: string, quote: string, text: string): string =>
    path.endsWith(text) ? all : stars(all, quote, text)
  return redact(message.replace(/(")(.*)(?=")/g, quoted))
}

function stars(_all: string, before: string, secret: string): string {
  return before + '*'.repeat(secret.length)
}
