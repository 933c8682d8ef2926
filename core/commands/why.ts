/** `tollgate why REQUEST`: what happened to one request, and why. */
import type { Config } from '../config/config.ts'
import type { Environment } from '../lib/environment.ts'
import { isId } from '../lib/ids.ts'
import { printable } from '../lib/printable.ts'
import { NO_STORY, requestStory } from '../operator/story.ts'
import { UsageError } from './program.ts'
import { onRecords } from './on-ledger.ts'

/** Prints the story of a request. */
export async function explainRequest(
  environment: Environment,
  config: Config,
  id: string,
  { json }: { readonly json?: boolean },
): Promise<void> {
  if (!isId(id)) throw new UsageError(`"${id}" is not the id of a request; replies have it in the header x-request-id`)
  const story = await onRecords(environment, config, records => requestStory(records, config, id))
  if (!story) throw new UsageError(NO_STORY)
  if (json) environment.print(JSON.stringify(story))
  else for (const line of story.sentences) environment.print(printable(line))
}
