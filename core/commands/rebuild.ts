/** `tollgate export` and `tollgate rebuild`: export a ledger, and rebuild it in an empty store. */
import { readFileSync } from 'node:fs'
import type { Config } from '../config/config.ts'
import { exported, rebuild } from '../ledger/rebuild.ts'
import { type Line, readTrail } from '../ledger/trail.ts'
import { onLedger, UsageError } from './shared.ts'
import type { Environment } from '../lib/environment.ts'

/** Prints every key with its grants and history as JSON lines. */
export async function runExport(environment: Environment, config: Config): Promise<void> {
  await onLedger(environment, config, async ledger => {
    for await (const line of exported(ledger)) environment.print(JSON.stringify(line))
  })
}

/** Rebuilds the ledger from files in an empty store that no gateway uses. */
export async function runRebuild(
  environment: Environment,
  config: Config,
  { from, forgetUsage }: { from: readonly string[]; forgetUsage?: boolean },
): Promise<void> {
  const lines = from.flatMap(file => linesOf(environment, file))
  if (!forgetUsage && !lines.some(({ kind }) => kind === 'history')) {
    throw new UsageError(
      'none of the files has a history, so every key would get its whole allocation back; add the last export, or use --forget-usage',
    )
  }
  const { accounts, grants, entries } = await onLedger(environment, config, async (ledger, _keys, store) => {
    // Settlements of a running gateway would be counted twice, or not at all.
    if (await store.served()) throw new Error('a gateway uses this store; stop it first')
    return rebuild(ledger, lines, config.ledger.rememberMs)
  })
  environment.print(
    `Restored ${accounts} accounts, ${grants} grants and ${entries} entries. Now run: npx tollgate audit`,
  )
}

function linesOf(environment: Environment, file: string): Line[] {
  const { lines, unreadable } = readTrail(read(file))
  if (unreadable > 0) environment.complain(`${file}: ${unreadable} lines cannot be read and are not restored`)
  const last = lines.at(-1)
  if (lines.some(({ kind }) => kind === 'history') && (last?.kind !== 'end' || last.lines !== lines.length - 1)) {
    throw new UsageError(`${file} is an incomplete export; use another one, or omit it`)
  }
  return lines
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (cause) {
    throw new UsageError(`cannot read ${file}: ${(cause as Error).message}`)
  }
}
