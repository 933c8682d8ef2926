/** Checks what the setup of a plugin returns. */
import { didYouMean, nearest } from '../lib/suggest.ts'
import { BUILT_IN_HOOKS, type BuiltInStage } from './built-in-stage.ts'
import type { Fact } from '../exchange/exchange.ts'
import { HOOKS, type Plugin } from './stage.ts'

/** Returns what a setup has returned. A plugin may be plain JavaScript. @throws TypeError if it is no stage */
export function checkedStage(stage: unknown, { builtIn }: Pick<Plugin, 'builtIn'>): BuiltInStage<Fact, Fact> {
  if (typeof stage !== 'object' || stage === null) throw new TypeError('its setup did not return a stage')
  const hooks: readonly string[] = builtIn ? BUILT_IN_HOOKS : HOOKS
  const unknown = Object.keys(stage).find(hook => !hooks.includes(hook))
  if (unknown !== undefined) {
    const hint = didYouMean(nearest(unknown, hooks))
    throw new TypeError(`there is no hook "${unknown}"${hint === undefined ? '' : `; ${hint}`}`)
  }
  const wrong = Object.entries(stage).find(([hook, value]) => hook !== 'events' && typeof value !== 'function')
  if (wrong) throw new TypeError(`its "${wrong[0]}" is not a function`)
  return stage
}
