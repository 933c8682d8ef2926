/** What is known of an exchange's model, whichever name the client used for it. */

import type { ModelEntry } from '../config/config.ts'
import type { With } from './exchange.ts'

/** The model's id, whichever name it was asked for by. */
export function modelOf({ model }: Pick<With<'model'>, 'model'>): string {
  return model.entry.aliasOf ?? model.entry.id
}

/** What becomes of the model's reasoning: as the file says, or else as the format in which the upstream is spoken to has it. */
export function reasoningOf({
  model,
  route,
}: Pick<With<'model' | 'route'>, 'model' | 'route'>): NonNullable<ModelEntry['reasoning']> {
  return model.entry.reasoning ?? (route.format.reportsInputFirst ? 'shown' : 'hidden')
}
