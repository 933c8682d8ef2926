/**
 * Loads gateway.yaml: parses the YAML, checks the shape, then resolves references. A later step reports nothing about a
 * value that an earlier step has already reported, so no problem is reported twice.
 */
import { isUtf8 } from 'node:buffer'
import { hash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { adviceOn } from './advice.ts'
import type { ChainEntry, Config } from './config.ts'
import type { Problem, Source } from './locate.ts'
import { Resolver } from './resolve.ts'
import { SCHEMA, type RawConfig } from './schema.ts'
import { compile, shapeProblems } from './shape.ts'
import { readYaml, type Env } from './yaml.ts'

/** A file without errors. */
export interface ValidConfig {
  readonly config: Config
  readonly problems: readonly []
  /** Defaults that may cost money. The configuration can still be put in force. */
  readonly warnings: readonly Problem[]
  readonly text: string
}

/**
 * The result of loading: a configuration, or the problems that prevent one. `text` is the content of the file, for
 * quoting it.
 */
export type Loaded =
  ValidConfig | { readonly config: undefined; readonly problems: readonly Problem[]; readonly text: string }

/**
 * Checks a `chain:` list against the built-in plugins and those in `folders` (absolute paths). Faults in plugins are
 * returned as problems too; it never throws.
 */
export type CheckChain = (
  source: Source,
  chain: RawConfig['chain'],
  folders: readonly string[],
) => Promise<{ readonly entries: readonly ChainEntry[]; readonly problems: readonly Problem[] }>

/** Returns a stage as it is written, with its options. */
export function entryOf(item: RawConfig['chain'][number]): ChainEntry {
  const [plugin = '', options] = typeof item === 'string' ? [item] : (Object.entries(item)[0] ?? [])
  return { plugin, options: structuredClone(options ?? {}) as Record<string, unknown> }
}

const valid = compile(SCHEMA)

/**
 * Loads and checks a configuration file. An unreadable file is reported as a problem.
 * @param text the content to use instead of reading the file
 */
export async function loadConfig(file: string, env: Env, checkChain: CheckChain, text?: string): Promise<Loaded> {
  const path = resolve(file)
  let read: string
  try {
    read = text ?? readText(path)
  } catch (cause) {
    const { code = '', message } = cause as NodeJS.ErrnoException
    const [reason, hint] = UNREADABLE[code] ?? [message]
    return failed([{ file, line: 1, col: 1, width: 1, path: '', message: reason, hint }], '')
  }
  return loadText(read, { shown: file, path, env, checkChain })
}

/** What prevents a file from being read, by the code of the error, and what to do. */
const UNREADABLE: Readonly<Record<string, readonly [reason: string, hint?: string]>> = {
  ENOENT: ['this file does not exist', 'name the configuration with -c FILE, or run the command in its folder'],
  EISDIR: ['this is a folder, not a file', 'name the configuration with -c FILE'],
  EACCES: ['this file may not be read by this user'],
}

function readText(path: string): string {
  const bytes = readFileSync(path)
  if (!isUtf8(bytes) || bytes.includes(0)) throw new Error('this file is not UTF-8 text')
  return bytes.toString('utf8')
}

/** What a file is loaded with. */
interface Loading {
  /** The path as problems show it. */
  readonly shown: string
  readonly path: string
  readonly env: Env
  readonly checkChain: CheckChain
}

async function loadText(text: string, loading: Loading): Promise<Loaded> {
  const { shown, path, env } = loading
  const { source, problems, lost, files } = readYaml(shown, dirname(path), text, env)
  if (lost) return failed(problems, text)
  let raw: RawConfig
  try {
    raw = source.doc.toJS() as RawConfig
  } catch {
    // Nested aliases can expand to more values than fit in memory. The library refuses them.
    return failed(
      [
        ...problems,
        source.at([0, 0], 'the aliases of this file expand to too many values', 'write the values instead of aliases'),
      ],
      text,
    )
  }
  const shape = valid(raw) ? [] : shapeProblems(source, valid.errors ?? [])
  let loaded: Loaded
  try {
    loaded = await resolveReferences(source, raw, loading, { shape, secretFiles: [...files] })
  } catch (cause) {
    // Resolving expects the right shape, so an exception after a shape problem is only a consequence.
    if (shape.length + problems.length === 0) throw cause
    loaded = failed(shape, text)
  }
  return problems.length === 0 ? loaded : failed([...problems, ...outside(problems, loaded.problems)], text)
}

/** The problems at values that have no problem yet. */
function outside(reported: readonly Problem[], problems: readonly Problem[]): Problem[] {
  return problems.filter(
    ({ line, col }) =>
      !reported.some(other => other.line === line && col >= other.col && col <= other.col + other.width),
  )
}

/** The second half of loading: references and rules that span settings. */
async function resolveReferences(
  source: Source,
  raw: RawConfig,
  { path, env, checkChain }: Loading,
  { shape, secretFiles }: { readonly shape: readonly Problem[]; readonly secretFiles: readonly string[] },
): Promise<Loaded> {
  const resolver = new Resolver(source, path, env)
  const config = resolver.resolve(raw)
  const chain = await checkChain(source, raw.chain, config.plugins)
  const referred = [...resolver.problems, ...absentFolders(source, config.plugins), ...chain.problems]
  const all = [
    ...shape,
    ...referred.filter(({ line, col }) => !shape.some(other => other.line === line && other.col === col)),
  ]
  if (all.length > 0) return failed(all, source.text)
  const whole = { ...config, text: source.text, digest: fileDigest(source.text), chain: chain.entries, secretFiles }
  return {
    config: deepFreeze(whole),
    problems: [],
    warnings: [...resolver.warnings, ...adviceOn(whole, source)],
    text: source.text,
  }
}

/** Reports configured plugin folders that do not exist. The default folder may be absent. */
function absentFolders(source: Source, folders: readonly string[]): Problem[] {
  return folders.flatMap((folder, at) => {
    const path = ['plugins', at]
    return source.doc.hasIn(path) && !existsSync(folder) ? [source.problem(path, 'this folder does not exist')] : []
  })
}

/** Returns 12 digits by which a file is recognised. */
function fileDigest(text: string): string {
  return hash('sha256', text).slice(0, 12)
}

function failed(problems: readonly Problem[], text: string): Loaded {
  const sorted = [...problems].sort((a, b) => a.line - b.line || a.col - b.col)
  return { config: undefined, problems: sorted, text }
}

/** Freezes plain data recursively. Maps and URLs are read-only by their types. */
function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value) || ArrayBuffer.isView(value)) return value
  if (value instanceof Map) for (const item of value.values()) deepFreeze(item)
  else for (const item of Object.values(value)) deepFreeze(item)
  return Object.freeze(value)
}
