/** `tollgate schema`: the JSON Schema of gateway.yaml, or its reference as Markdown. */
import { existsSync } from 'node:fs'
import { checkChain } from '../chain/check-chain.ts'
import { findPlugins } from '../chain/plugins.ts'
import { loadConfig } from '../config/load.ts'
import { publishedSchema, reference } from '../config/reference.ts'
import type { Environment } from '../lib/environment.ts'

/** Options of `tollgate schema`. */
export interface SchemaOptions {
  readonly markdown?: boolean
}

/** Prints the schema. It has the options of the operator's own plugins if the file is valid. */
export async function printSchema(environment: Environment, file: string, { markdown }: SchemaOptions): Promise<void> {
  const { config } = await loadConfig(file, environment.env, checkChain)
  if (!config) {
    const why = existsSync(file) ? 'has problems (run `check`)' : 'does not exist'
    environment.complain(`${file} ${why}, so the schema lacks the options of your own plugins.`)
  }
  const { plugins } = await findPlugins(config?.plugins ?? [])
  environment.print(
    markdown ? reference(plugins.values()).trimEnd() : JSON.stringify(publishedSchema(plugins.values()), null, 2),
  )
}
