/**
 * From the text of gateway.yaml to a Config, or to all the problems it has: first its YAML, then its shape, then what
 * its names refer to. Where one step has told of a value the later ones are silent, so no problem is a mere echo of another.
 */
import { isUtf8 } from 'node:buffer'
import { existsSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import type { ChainEntry, Config } from './config.ts'
import type { Problem, Source } from './locate.ts'
import { Resolver } from './resolve.ts'
import { SCHEMA, type RawConfig } from './schema.ts'
import { compile, shapeProblems } from './shape.ts'
import { readYaml, type Env } from './yaml.ts'

/** A sound file. */
export interface ValidConfig {
  readonly config: Config
  readonly problems: readonly []
  /** What the file leaves to defaults that cost money: it can be put in force all the same. */
  readonly warnings: readonly Problem[]
  readonly text: string
}

/** Either a configuration, or why there is none. `text` is the file's, for showing problems in it. */
export type Loaded =
  ValidConfig | { readonly config: undefined; readonly problems: readonly Problem[]; readonly text: string }

/**
 * Checks a `chain:` list against the plugins that there are, built-in or in `folders` (absolute paths). Faults of plugins are
 * problems as well; it throws nothing.
 */
export type CheckChain = (
  source: Source,
  chain: RawConfig['chain'],
  folders: readonly string[],
) => Promise<{ readonly entries: readonly ChainEntry[]; readonly problems: readonly Problem[] }>

const valid = compile(SCHEMA)

/**
 * Reads and checks a configuration file. One that cannot be read has that for its only problem.
 * @param text what it is to be taken to hold, where that is known already
 */
export async function loadConfig(file: string, env: Env, checkChain: CheckChain, text?: string): Promise<Loaded> {
  const path = resolve(file)
  let read: string
  try {
    read = text ?? textOf(path)
  } catch (cause) {
    // Its name stands before the message.
    const [reason] = (cause as Error).message.split(', open')
    const message = `the file cannot be read: ${reason}`
    return failed([{ file, line: 1, col: 1, width: 1, path: '', message }], '')
  }
  return loadText(file, path, read, env, checkChain)
}

function textOf(path: string): string {
  const bytes = readFileSync(path)
  if (!isUtf8(bytes) || bytes.includes(0)) throw new Error('it is not UTF-8 text, as which it is to be saved')
  return bytes.toString('utf8')
}

async function loadText(shown: string, path: string, text: string, env: Env, checkChain: CheckChain): Promise<Loaded> {
  const { source, problems, lost } = readYaml(shown, text, env)
  if (lost) return failed(problems, text)
  let raw: RawConfig
  try {
    raw = source.doc.toJS() as RawConfig
  } catch {
    // An alias of an alias of an alias: a few lines that would fill the memory.
    return failed(
      [...problems, source.at(0, 0, 'the aliases of this file stand for too much', 'write out what they stand for')],
      text,
    )
  }
  const shape = valid(raw) ? [] : shapeProblems(source, valid.errors ?? [])
  let loaded: Loaded
  try {
    loaded = await refer(source, path, raw, shape, env, checkChain)
  } catch (cause) {
    // What its names refer to can only be asked of a file whose shape is near enough to right.
    if (shape.length + problems.length === 0) throw cause
    loaded = failed(shape, text)
  }
  return problems.length === 0 ? loaded : failed([...problems, ...outside(problems, loaded.problems)], text)
}

/** The problems that are not of a value of which there is one already. */
function outside(told: readonly Problem[], problems: readonly Problem[]): Problem[] {
  return problems.filter(
    ({ line, col }) => !told.some(other => other.line === line && col >= other.col && col <= other.col + other.width),
  )
}

/** The second half: names and rules across settings. */
async function refer(
  source: Source,
  path: string,
  raw: RawConfig,
  shape: readonly Problem[],
  env: Env,
  checkChain: CheckChain,
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
  return {
    config: deepFreeze({ ...config, chain: chain.entries }),
    problems: [],
    warnings: resolver.warnings,
    text: source.text,
  }
}

/** Folders of plugins that the file names; the one that it need not name may be absent. */
function absentFolders(source: Source, folders: readonly string[]): Problem[] {
  return folders.flatMap((folder, at) => {
    const path = ['plugins', at]
    return source.doc.hasIn(path) && !existsSync(folder) ? [source.problem(path, 'there is no such folder')] : []
  })
}

function failed(problems: readonly Problem[], text: string): Loaded {
  const sorted = [...problems].sort((a, b) => a.line - b.line || a.col - b.col)
  return { config: undefined, problems: sorted, text }
}

/** Freezes plain data through and through; maps and URLs are shared read-only by their types. */
function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value) || ArrayBuffer.isView(value)) return value
  if (value instanceof Map) for (const item of value.values()) deepFreeze(item)
  else for (const item of Object.values(value)) deepFreeze(item)
  return Object.freeze(value)
}
