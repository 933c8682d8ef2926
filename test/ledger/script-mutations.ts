import { readFileSync } from 'node:fs'
import { parse } from 'yaml'

/** A text of the script, which occurs in it once, and what takes its place. */
export interface ScriptMutation {
  readonly rule: string
  readonly text: string
  readonly instead: string
}

/** The rules of balances that several keys share, of quotas and of plans. */
export const RULES: Readonly<Record<'shared' | 'quotas' | 'plans', readonly ScriptMutation[]>> = parse(
  readFileSync(new URL('script-mutations.yaml', import.meta.url), 'utf8'),
)
