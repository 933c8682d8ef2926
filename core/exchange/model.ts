/** What the chain knows about the model of an exchange, whichever name the client used. */

import type { ModelEntry } from '../config/config.ts'
import type { Format } from '../formats/index.ts'
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
  return reasoningIn(model.entry, route.format)
}

/** What a model does with its reasoning if its upstream is asked in a format. By default, it is the preferred one. */
export function reasoningIn(
  { reasoning, upstreams }: Pick<ModelEntry, 'reasoning' | 'upstreams'>,
  format: Pick<Format, 'reportsInputFirst'> | undefined = upstreams[0]?.speaks[0],
): NonNullable<ModelEntry['reasoning']> {
  return reasoning ?? (format?.reportsInputFirst ? 'shown' : 'hidden')
}
