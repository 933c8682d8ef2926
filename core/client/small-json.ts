/** The JSON of a small body, such as that of an operator or of a form. */
import { invalidBody } from '../errors.ts'

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],]/g

/** Parses a body. Two readers could understand a name that appears twice differently. @throws GatewayError invalid_body */
export function smallJson(body: Buffer): unknown {
  const text = body.toString('utf8')
  let parsed: unknown
  try {
    parsed = JSON.parse(text)
  } catch {
    throw invalidBody('The request body is not valid JSON.')
  }
  const name = repeatedName(text)
  if (name !== undefined) throw invalidBody(`"${name}" appears twice.`, name)
  return parsed
}

/** Returns a name that an object of a valid JSON text has twice. */
function repeatedName(text: string): string | undefined {
  /** The names of the objects that are open; undefined for a list. */
  const open: (Set<string> | undefined)[] = []
  let isName = false
  for (const [token] of text.matchAll(TOKEN)) {
    const names = open.at(-1)
    if (token === '{') open.push(new Set())
    else if (token === '[') open.push(undefined)
    else if (token === '}' || token === ']') open.pop()
    else if (token !== ',' && isName && names) {
      const name = JSON.parse(token) as string
      if (names.has(name)) return name
      names.add(name)
    }
    isName = token === '{' || token === ','
  }
  return undefined
}
