/**
 * Checks the `chain:` list: each name is a plugin, its options are valid, and stages above it give every fact that it
 * needs.
 */
import { covers, endpointsOf } from './routes.ts'
import type { Plugin } from './stage.ts'
import type { ChainEntry } from '../config/config.ts'
import type { Path, Problem, Source } from '../config/locate.ts'
import { nearest, suggest } from '../lib/suggest.ts'
import { compile, compileForeign, shapeProblems } from '../config/shape.ts'
import { type CheckChain, entryOf } from '../config/load.ts'
import { findPlugins, type PluginFault } from './plugins.ts'

interface Placed {
  readonly plugin: Plugin
  readonly path: Path
}

/** Checks the list against the built-in plugins and those in the folders that the file names. */
export const checkChain: CheckChain = async (source, chain, folders) => {
  const { plugins, faults, foreign } = await findPlugins(folders)
  const problems: Problem[] = []
  /** Plugins that misspelled names were probably meant to be. */
  const meant = new Set<string>()
  const asked = new Set<PluginFault>()
  const entries: ChainEntry[] = []
  const placed: Placed[] = []
  chain.forEach((item, index) => {
    const entry = entryOf(item)
    const { plugin: name, options } = entry
    const path: Path = ['chain', index]
    const plugin = plugins.get(name)
    if (!plugin) {
      const fault = faults.find(({ words }) => words.includes(name))
      if (fault) asked.add(fault)
      meant.add(nearest(name, plugins.keys()) ?? '')
      problems.push(
        fault
          ? source.problem(path, fault.message)
          : source.problem(path, `there is no plugin "${name}"`, suggest(name, plugins.keys())),
      )
      return
    }
    if (placed.some(other => other.plugin === plugin))
      problems.push(source.problem(path, `"${name}" appears twice in the chain`))
    const valid = validatorOf(plugin, foreign.has(name))
    if (typeof valid === 'string') problems.push(source.problem(path, valid))
    else if (!valid(options)) problems.push(...shapeProblems(source, valid.errors ?? [], [...path, name]))
    placed.push({ plugin, path })
    entries.push(entry)
  })
  problems.push(
    ...faults
      .filter(fault => !asked.has(fault))
      .map(({ message }) => source.problem(['chain'], message, undefined, 'key')),
  )
  // Those that listen are never in the way of a customer's request.
  const ofMain = placed.filter(({ plugin }) => !plugin.listens)
  problems.push(...checkFacts(source, ofMain, plugins, meant))
  return { entries, problems }
}

/** Returns the validator of a plugin's options. If they are not a JSON Schema, returns the message that says so. */
function validatorOf({ name, options }: Plugin, isForeign: boolean): ReturnType<typeof compile> | string {
  try {
    return isForeign ? compileForeign(options) : compile(options)
  } catch (cause) {
    return `the options of plugin "${name}" are not a JSON Schema: ${(cause as Error).message}`
  }
}

/**
 * Checks each endpoint: a stage above must give every needed fact, and no two stages give the same one. A missing stage
 * is reported once, and a misspelled one not again.
 */
function checkFacts(
  source: Source,
  placed: readonly Placed[],
  plugins: ReadonlyMap<string, Plugin>,
  meant: ReadonlySet<string>,
): Problem[] {
  const found = new Map<string, Problem>()
  const report = (id: string, problem: Problem): void => {
    if (!found.has(id)) found.set(id, problem)
  }
  const meters = [...plugins.values()].filter(plugin => plugin.meters).map(({ name }) => name)
  for (const endpoint of endpointsOf(placed.map(({ plugin }) => plugin.on))) {
    const stages = placed.filter(({ plugin }) => covers(plugin.on, endpoint))
    const given = new Map<string, string>()
    // Counting the tokens of a request costs nothing.
    const free = covers('counting', endpoint)
    const metered = stages.some(({ plugin }) => plugin.meters) || meters.some(name => meant.has(name))
    if (!free && !metered && stages.some(({ plugin }) => plugin.gives.includes('route'))) {
      const hint = `put ${meters.join(' or ')} at the end of the chain`
      report('meter', source.problem(['chain'], 'no stage meters requests', hint, 'key'))
    }
    for (const { plugin, path } of stages) {
      for (const fact of plugin.needs) {
        if (given.has(fact)) continue
        const said = `"${plugin.name}" needs "${fact}", which no stage above it gives`
        const below = placed.find(other => other.plugin.gives.includes(fact))?.plugin.name
        const absent = [...plugins.values()].find(({ gives }) => gives.includes(fact))?.name
        if (below !== undefined)
          report(`${plugin.name} below ${below}`, source.problem(path, said, `put it below ${below}, which gives it`))
        else if (absent === undefined)
          report(`${plugin.name} ${fact}`, source.problem(path, said, 'no plugin gives it'))
        else if (!meant.has(absent))
          report(absent, source.problem(path, said, `put ${absent}, which gives it, above it`))
      }
      for (const fact of plugin.gives) {
        const other = given.get(fact)
        if (other !== undefined && other !== plugin.name) {
          report(
            `${plugin.name} gives ${fact}`,
            source.problem(path, `"${plugin.name}" gives "${fact}", which "${other}" already gives`),
          )
        }
        given.set(fact, plugin.name)
      }
    }
  }
  return [...found.values()]
}
