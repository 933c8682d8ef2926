/** Reads the YAML of gateway.yaml: `!env` per scalar, warnings as errors, the source text kept for exact prices. */
import { LineCounter, parseDocument, Scalar, type ScalarTag } from 'yaml'
import { EnvScalar, Source, type Path, type Problem } from './locate.ts'
import { aliasProblems, NOT_SET, syntaxProblems, variableProblems } from './syntax.ts'

export type Env = Readonly<Record<string, string | undefined>>

const MAX_FILE = 1024 * 1024

/** Environment text as YAML's core schema would read the same plain scalar. */
function typed(text: string): string | number | boolean {
  if (text === 'true' || text === 'false') return text === 'true'
  return /^-?(?:0|[1-9]\d{0,14})(?:\.\d{1,9})?$/.test(text) ? Number(text) : text
}

/** `!env NAME` or `!env NAME fallback`: the variable's text, else the fallback, else an error. Empty counts as not set. */
function envTag(env: Env): ScalarTag {
  return {
    tag: '!env',
    resolve(source, onError) {
      const [, name = '', fallback] = /^([A-Za-z_][A-Za-z0-9_]*)(?:\s+(.+))?$/.exec(source.trim()) ?? []
      if (name === '') {
        onError('this names no variable')
        return new EnvScalar('', '', undefined)
      }
      const set = (Object.hasOwn(env, name) && env[name]) || undefined
      const text = set ?? fallback
      if (text === undefined) onError(`${NOT_SET}: ${name}`)
      return new EnvScalar(text ?? '', typed(text ?? ''), set && name)
    },
  }
}

/** A file as YAML, with its problems; `lost` when it is not fit to be looked at further. */
export function readYaml(file: string, text: string, env: Env): { source: Source; problems: Problem[]; lost: boolean } {
  const lines = new LineCounter()
  const tooLong = text.length > MAX_FILE
  const doc = parseDocument(tooLong ? '' : text, {
    lineCounter: lines,
    customTags: [envTag(env)],
    prettyErrors: false,
    version: '1.2',
    stringKeys: true,
  })
  const source = new Source(file, text, doc, lines)
  if (tooLong) return { source, problems: [source.at(0, 0, `the file is larger than ${MAX_FILE} bytes`)], lost: true }
  const { problems, lost } = syntaxProblems(source, [...doc.errors, ...doc.warnings])
  const unknown = lost ? [] : aliasProblems(source)
  const variables = lost ? [] : variableProblems(source)
  return { source, problems: [...problems, ...unknown, ...variables], lost: lost || unknown.length > 0 }
}

/** The text of a scalar exactly as written, or as the environment has it. */
export function scalarText(source: Source, path: Path): string {
  const node = source.value(path)
  if (node instanceof EnvScalar) return node.text
  return node instanceof Scalar ? (node.source ?? String(node.value)) : ''
}
