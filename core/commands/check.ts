/** `tollgate check`, `tollgate plan` and `tollgate plugins`: what a configuration says, before it is in force. */
import { findPlugins } from '../chain/plugins.ts'
import { covers, endpointsOf } from '../chain/routes.ts'
import { render } from '../config/locate.ts'
import { configured, type Shell, loadOrExit } from './shell.ts'

/** Prints every problem of a file at once; exit status 78 when it has any. */
export async function check(shell: Shell, file: string): Promise<void> {
  const { config, warnings, text } = await loadOrExit(shell, file)
  const { keyTypes, upstreams, chain } = config
  if (warnings.length > 0) shell.complain(`${render(warnings, text)}\n\n${warnings.length === 1 ? 'a warning' : `${warnings.length} warnings`}`)
  shell.print(`${file} is sound: ${keyTypes.size} key types, ${upstreams.size} upstreams, ${chain.length} stages`)
}

/** Prints each endpoint with the stages that its requests go down. */
export async function plan(shell: Shell, file: string): Promise<void> {
  const config = await configured(shell, file)
  const { plugins } = await findPlugins(config.plugins)
  const stages = config.chain.map(({ plugin }) => plugin).map(name => ({ name, on: plugins.get(name)?.on ?? 'all' }))
  for (const endpoint of [...endpointsOf(stages.map(({ on }) => on))].sort()) {
    const travelled = stages.filter(({ on }) => covers(on, endpoint)).map(({ name }) => name)
    shell.print(`${endpoint}\n  ${travelled.join(' > ')}`)
  }
}

/** Prints every plugin there is, with its facts. */
export async function listPlugins(shell: Shell, file: string): Promise<void> {
  const config = await configured(shell, file)
  const { plugins } = await findPlugins(config.plugins)
  for (const { name, summary, needs, gives } of plugins.values()) {
    shell.print(`${name}\n  ${summary}`)
    if (needs.length > 0) shell.print(`  needs ${needs.join(', ')}`)
    if (gives.length > 0) shell.print(`  gives ${gives.join(', ')}`)
  }
}
