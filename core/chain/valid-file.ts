/** Reads the configuration file of a running gateway. */
import { statSync } from 'node:fs'
import { loadConfig, type Loaded, type ValidConfig } from '../config/load.ts'
import { positionOf, reportOf } from '../config/locate.ts'
import type { Environment } from '../lib/environment.ts'
import { checkChain } from './check-chain.ts'

/** Loads the file. Logs the problems and returns undefined if it cannot be put in force. */
export async function readValidFile(
  environment: Environment,
  file: string,
  text?: string,
): Promise<ValidConfig | undefined> {
  const { env, log } = environment
  // A pipe can be read only once; a second read would wait forever.
  if (text === undefined && statSync(file, { throwIfNoEntry: false })?.isFile() === false) {
    log.error('the configuration file cannot be read twice; the old configuration stays in force')
    return undefined
  }
  let loaded: Loaded
  try {
    loaded = await loadConfig(file, env, checkChain, text)
  } catch (cause) {
    log.error({ err: cause }, 'cannot check the configuration; the old one stays in force')
    return undefined
  }
  if (loaded.config) return loaded
  environment.complain(reportOf(loaded))
  log.error({ problems: loaded.problems.map(positionOf) }, 'the configuration is invalid; the old one stays in force')
  return undefined
}
