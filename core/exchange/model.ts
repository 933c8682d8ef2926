/** What the chain knows about the model of an exchange, whichever name the client used. */

import type { ModelEntry } from '../config/config.ts'
import type { BuiltInWith } from './built-in.ts'

/** The id of the model; for an alias, that of its target. */
export function modelOf({ model }: Pick<BuiltInWith<'model'>, 'model'>): string {
  return model.entry.aliasOf ?? model.entry.id
}

/** What the model does with its reasoning: as gateway.yaml says, or else as the upstream's format does. */
export function reasoningOf({
  model,
  route,
}: Pick<BuiltInWith<'model' | 'route'>, 'model' | 'route'>): NonNullable<ModelEntry['reasoning']> {
  return model.entry.reasoning ?? (route.format.reportsInputFirst ? 'shown' : 'hidden')
}
