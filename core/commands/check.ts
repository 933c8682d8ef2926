/** `tollgate check`, `tollgate plan` and `tollgate plugins`: inspect a configuration before it is in force. */
import { findPlugins } from '../chain/plugins.ts'
import { covers, endpointsOf } from '../chain/routes.ts'
import { counted, render } from '../config/locate.ts'
import type { Environment } from '../lib/environment.ts'
import { checkChain } from '../chain/check-chain.ts'
import { EX_CONFIG, loadOrExit } from './shared.ts'

/** Prints all problems of a file. Exit status 78 if there are any, or warnings if those are not accepted. */
export async function check(environment: Environment, file: string, { strict = false } = {}): Promise<void> {
  const { config, warnings, text } = await loadOrExit(environment, file, checkChain)
  const { keyTypes, upstreams, chain } = config
  if (warnings.length > 0) environment.complain(`${render(warnings, text)}\n\n${counted(warnings.length, 'warning')}`)
  if (strict && warnings.length > 0) return environment.exit(EX_CONFIG)
  const parts = [
    counted(keyTypes.size, 'key type'),
    counted(upstreams.size, 'upstream'),
    counted(chain.length, 'stage'),
  ]
  environment.print(`${file} is valid: ${parts.join(', ')}`)
}

/** Prints each endpoint with the stages of its chain. */
export async function plan(environment: Environment, file: string): Promise<void> {
  const { config } = await loadOrExit(environment, file, checkChain)
  const { plugins } = await findPlugins(config.plugins)
  const stages = config.chain.map(({ plugin: name, options }) => {
    const { on = 'all', listens = false } = plugins.get(name) ?? {}
    return { name, on, listens, options }
  })
  const print = (own: readonly (typeof stages)[number][], at: string): void => {
    for (const endpoint of [...endpointsOf(own.map(({ on }) => on))].sort()) {
      const travelled = own.filter(({ on }) => covers(on, endpoint)).map(({ name }) => name)
      environment.print(`${endpoint}${at}\n  ${travelled.join(' > ')}`)
    }
  }
  print(
    stages.filter(({ listens }) => !listens),
    '',
  )
  for (const stage of stages.filter(({ listens }) => listens)) {
    const { host, port } = stage.options['listen'] as { host: string; port: number }
    print([stage], ` at ${host}:${port}`)
  }
}

/** Prints every available plugin with its facts. */
export async function listPlugins(environment: Environment, file: string): Promise<void> {
  const { config } = await loadOrExit(environment, file, checkChain)
  const { plugins } = await findPlugins(config.plugins)
  for (const { name, summary, needs, gives } of plugins.values()) {
    environment.print(`${name}\n  ${summary}`)
    if (needs.length > 0) environment.print(`  needs ${needs.join(', ')}`)
    if (gives.length > 0) environment.print(`  gives ${gives.join(', ')}`)
  }
}
