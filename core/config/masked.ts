/** The text of a configuration file without any credential, for operators to read. */
import { isScalar, Lexer, parseDocument, visit } from 'yaml'
import type { Config } from './config.ts'
import { redact } from './redact.ts'
import { credentialsOf } from './secrets.ts'

/** Settings whose values are credentials, wherever they stand. */
const SECRET_NAMES = /(?:key|keys|token|secret|password|authorization)$/i

const STARS = '********'

/** User and password in a URL, and the values of its query. */
const IN_URL = [/(:\/{1,2})([^/\s"']*)(?=@)/g, /([?&]\w+=)([^\s&"']+)/g] as const

/**
 * Returns the text of a file with stars instead of credentials: the values of settings that are named like one, users and
 * passwords in URLs, every credential of the configuration wherever it stands, and what looks like one in comments. The
 * names of variables and files stay.
 */
export function maskedText(config: Config): string {
  const edits = [...secretScalars(config.text), ...comments(config.text)].sort((a, b) => b.from - a.from)
  let text = config.text
  for (const { from, to, by } of edits) text = text.slice(0, from) + by + text.slice(to)
  for (const pattern of IN_URL) text = text.replace(pattern, `$1${STARS}`)
  for (const credential of credentialsOf(config)) if (credential.length >= 4) text = text.replaceAll(credential, STARS)
  return text
}

interface Edit {
  readonly from: number
  readonly to: number
  readonly by: string
}

function secretScalars(text: string): Edit[] {
  const edits: Edit[] = []
  visit(parseDocument(text, { logLevel: 'silent' }), {
    Pair(_, pair) {
      const { key, value } = pair
      if (!isScalar(key) || !SECRET_NAMES.test(String(key.value)) || !isScalar(value) || !value.range) return
      const [from, to] = value.range
      const written = text.slice(from, to)
      const [, variable] = /^(\w+)(?:\s|$)/.exec(written) ?? []
      if (value.tag === '!env' && variable !== undefined) {
        if (written !== variable) edits.push({ from, to, by: `${variable} ${STARS}` })
      } else if (value.tag !== '!file' && written !== '' && written !== 'simulated') edits.push({ from, to, by: STARS })
    },
  })
  return edits
}

function comments(text: string): Edit[] {
  const edits: Edit[] = []
  let at = 0
  for (const token of new Lexer().lex(text)) {
    const from = text.indexOf(token, at)
    // Tokens that only mark a place are not in the text.
    if (from !== at) continue
    at += token.length
    if (token.startsWith('#')) edits.push({ from, to: at, by: redact(token) })
  }
  return edits
}
