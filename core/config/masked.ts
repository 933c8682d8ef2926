/** The text of a configuration file without any credential, for operators to read. */
import { isNode, isScalar, Lexer, parseDocument, type Scalar, visit } from 'yaml'
import type { Config } from './config.ts'
import { CREDENTIALS, redact } from './redact.ts'
import { credentialsOf } from './secrets.ts'

/** Settings whose values are credentials, wherever they stand, with everything below them. */
const SECRET_NAMES =
  /(?:keys?|tokens?|secrets?|passwords?|passwd|pass|pwd|auth|authorization|bearer|credentials?|cookies?|dsn)$|^(?:webhook|private|client_?secret|secret)/i

const STARS = '********'

/** User and password in a URL, and the values of its query. */
const IN_URL = [/(:\/{1,2})([^/\s"']*)(?=@)/g, /([?&][\w.-]+=)([^\s&"']+)/g, /(\bpassword=)([^\s&"']+)/gi] as const

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
  // Whatever else looks random may be a credential of a plugin.
  text = text.replace(CREDENTIALS.randomWord, STARS)
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
  const document = parseDocument(text, { logLevel: 'silent' })
  const hide = (node: unknown): void => {
    if (!isNode(node)) return
    visit(node, {
      Scalar: (_, scalar) => {
        const edit = edited(text, scalar)
        if (edit) edits.push(edit)
      },
    })
  }
  visit(document, {
    Pair(_, { key, value }) {
      if (!isScalar(key) || !SECRET_NAMES.test(String(key.value))) return undefined
      // A window of a plan counts tokens.
      if (key.value === 'tokens' && isScalar(value) && typeof value.value === 'number') return undefined
      hide(value)
      return visit.SKIP
    },
  })
  return edits
}

/** Hides a scalar. The name of a variable and the path of a file stay. */
function edited(text: string, { range, tag }: Scalar): Edit | undefined {
  if (!range) return undefined
  const [from, to] = range
  const written = text.slice(from, to)
  const [, variable] = /^(\w+)(?:\s|$)/.exec(written) ?? []
  if (tag === '!env' && variable !== undefined)
    return written === variable || written.endsWith(' simulated') ? undefined : { from, to, by: `${variable} ${STARS}` }
  // `bytesPerToken: 3` is no credential.
  if (/^\d{1,6}(?:\.\d+)?$/.test(written)) return undefined
  return tag === '!file' || written === '' || written === 'simulated' ? undefined : { from, to, by: STARS }
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
