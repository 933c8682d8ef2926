/**
 * Parses the YAML of gateway.yaml: supports `!env` and `!file`, treats warnings as errors, and keeps the source text
 * for exact prices.
 */
import { readFileSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import { LineCounter, parseDocument, Scalar, type ScalarTag } from 'yaml'
import { EnvScalar, Source, type Path, type Problem } from './locate.ts'
import { aliasProblems, NOT_SET, syntaxProblems, UNREADABLE, variableProblems } from './syntax.ts'

/** Environment variables by name. */
export type Env = Readonly<Record<string, string | undefined>>

/** Maximum characters of a file. */
const FILE_CHARACTERS_MAX = 1024 * 1024

/** Converts text from the environment as YAML would convert the same plain scalar. */
function typed(text: string): string | number | boolean {
  if (text === 'true' || text === 'false') return text === 'true'
  return /^-?(?:0|[1-9]\d{0,14})(?:\.\d{1,9})?$/.test(text) ? Number(text) : text
}

/**
 * The tag `!env NAME` or `!env NAME fallback`: the variable's text, else the fallback, else an error. An empty variable
 * counts as unset.
 */
function envTag(env: Env): ScalarTag {
  return {
    tag: '!env',
    resolve(source, onError) {
      const [, name = '', fallback] = /^([A-Za-z_][A-Za-z0-9_]*)(?:\s+(.+))?$/.exec(source.trim()) ?? []
      if (name === '') {
        // The text may be a credential, so it is not shown.
        onError(source.trim() === '' ? 'the name of the variable is missing' : 'this is not the name of a variable')
        return new EnvScalar('', '', undefined)
      }
      const set = (Object.hasOwn(env, name) && env[name]) || undefined
      const text = set ?? fallback
      if (text === undefined) onError(`${NOT_SET}: ${name}`)
      return new EnvScalar(text ?? '', typed(text ?? ''), set && `${name} in the environment`)
    },
  }
}

/** Maximum bytes of a secret's file. */
const SECRET_BYTES_MAX = 64 * 1024

/**
 * The tag `!file PATH`: the content of a file without its last line break. A path is relative to the folder of the
 * configuration.
 * @param files gets the absolute paths
 */
function fileTag(folder: string, files: Set<string>): ScalarTag {
  return {
    tag: '!file',
    resolve(source, onError) {
      const name = source.trim()
      const path = resolve(folder, name)
      let text = ''
      if (name === '') onError(`${UNREADABLE}: its path is missing`)
      else {
        files.add(path)
        try {
          text = secretIn(path)
        } catch (cause) {
          onError(`${UNREADABLE}: ${(cause as Error).message}`)
        }
      }
      return new EnvScalar(text, typed(text), `in the file ${name}`)
    },
  }
}

/** Reads the file of a secret. @throws Error in words for the operator */
function secretIn(path: string): string {
  const found = statSync(path, { throwIfNoEntry: false })
  if (!found?.isFile()) throw new Error('it does not exist, or is no file')
  if (found.size > SECRET_BYTES_MAX) throw new Error(`it has more than ${SECRET_BYTES_MAX} bytes`)
  let text: string
  try {
    text = readFileSync(path, 'utf8').replace(/\r?\n$/, '')
  } catch {
    throw new Error('it may not be read by this user')
  }
  if (text === '') throw new Error('it is empty')
  return text
}

/**
 * Parses a file.
 * @param folder of the file
 * @returns its problems, `lost` if the rest cannot be checked, and the files that it reads values from
 */
export function readYaml(
  file: string,
  folder: string,
  text: string,
  env: Env,
): { source: Source; problems: Problem[]; lost: boolean; files: ReadonlySet<string> } {
  const files = new Set<string>()
  const lines = new LineCounter()
  const tooLong = text.length > FILE_CHARACTERS_MAX
  const doc = parseDocument(tooLong ? '' : text, {
    lineCounter: lines,
    customTags: [envTag(env), fileTag(folder, files)],
    prettyErrors: false,
    version: '1.2',
    stringKeys: true,
  })
  const source = new Source(file, text, doc, lines)
  if (tooLong)
    return {
      source,
      problems: [source.at([0, 0], `the file has more than ${FILE_CHARACTERS_MAX} characters`)],
      lost: true,
      files,
    }
  if (text.trim() === '') return { source, problems: [source.at([0, 0], 'the file is empty')], lost: true, files }
  const { problems, lost } = syntaxProblems(source, [...doc.errors, ...doc.warnings])
  const unknown = lost ? [] : aliasProblems(source)
  const variables = lost ? [] : variableProblems(source)
  return { source, problems: [...problems, ...unknown, ...variables], lost: lost || unknown.length > 0, files }
}

/** Returns the text of a scalar as written, or as set in the environment. */
export function scalarText(source: Source, path: Path): string {
  const node = source.value(path)
  if (node instanceof EnvScalar) return node.text
  return node instanceof Scalar ? (node.source ?? String(node.value)) : ''
}
