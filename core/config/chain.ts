/** The `chain:` list: that each word is a plugin, its options fit, and every fact a stage needs was given above it. */
import { covers, endpointsOf } from '../routes.ts'
import type { Plugin } from '../plugin.ts'
import type { ChainEntry } from './config.ts'
import { type Path, type Problem, type Source, suggest } from './locate.ts'
import type { RawConfig } from './schema.ts'
import { compile, shapeProblems } from './shape.ts'

interface Placed {
  readonly plugin: Plugin
  readonly path: Path
}

/** Checks the chain against the plugins there are. */
export function checkChain(source: Source, chain: RawConfig['chain'], plugins: ReadonlyMap<string, Plugin>): { entries: ChainEntry[]; problems: Problem[] } {
  const problems: Problem[] = []
  const entries: ChainEntry[] = []
  const placed: Placed[] = []
  chain.forEach((item, index) => {
    const [name = '', given] = typeof item === 'string' ? [item, {}] : (Object.entries(item)[0] ?? [])
    const path: Path = ['chain', index]
    const plugin = plugins.get(name)
    if (!plugin) {
      problems.push(source.problem(path, `there is no plugin "${name}"`, suggest(name, plugins.keys())))
      return
    }
    if (placed.some(other => other.plugin === plugin)) problems.push(source.problem(path, `"${name}" stands twice in the chain`))
    const options = structuredClone(given ?? {}) as Record<string, unknown>
    const valid = compile(plugin.options)
    if (!valid(options)) problems.push(...shapeProblems(source, valid.errors ?? [], [...path, name]))
    placed.push({ plugin, path })
    entries.push({ plugin: name, options })
  })
  problems.push(...checkFacts(source, placed, plugins))
  return { entries, problems }
}

/** At each endpoint, every needed fact must have been given by a stage above, and none twice. */
function checkFacts(source: Source, placed: readonly Placed[], plugins: ReadonlyMap<string, Plugin>): Problem[] {
  const found = new Map<string, Problem>()
  for (const endpoint of endpointsOf(placed.map(({ plugin }) => plugin.on))) {
    const stages = placed.filter(({ plugin }) => covers(plugin.on, endpoint))
    const given = new Map<string, string>()
    // What only counts a request's tokens is free.
    const free = covers('counting', endpoint)
    if (!free && stages.some(({ plugin }) => plugin.gives.includes('route')) && !stages.some(({ plugin }) => plugin.meters)) {
      const meters = [...plugins.values()].filter(plugin => plugin.meters).map(({ name }) => name)
      const hint = `put ${meters.join(' or ')} at the end of the chain`
      found.set('meter', source.problem(['chain'], 'requests would go upstream without being metered', hint, 'key'))
    }
    for (const { plugin, path } of stages) {
      for (const fact of plugin.needs) {
        if (given.has(fact)) continue
        const hint = whoGives(fact, placed, plugins)
        found.set(`${plugin.name} ${fact}`, source.problem(path, `"${plugin.name}" needs "${fact}", which no stage above it gives`, hint))
      }
      for (const fact of plugin.gives) {
        const other = given.get(fact)
        if (other !== undefined && other !== plugin.name) {
          found.set(`${plugin.name} ${fact}`, source.problem(path, `"${plugin.name}" gives "${fact}", which "${other}" gives already`))
        }
        given.set(fact, plugin.name)
      }
    }
  }
  return [...found.values()]
}

function whoGives(fact: Plugin['needs'][number], placed: readonly Placed[], plugins: ReadonlyMap<string, Plugin>): string {
  const below = placed.find(({ plugin }) => plugin.gives.includes(fact))
  if (below) return `put it below ${below.plugin.name}, which gives it`
  const absent = [...plugins.values()].find(({ gives }) => gives.includes(fact))
  return absent ? `put ${absent.name}, which gives it, above it` : 'no plugin gives it'
}
