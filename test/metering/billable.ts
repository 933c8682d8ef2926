/** Replies and terms of the messages format, from which charges are computed. */
import type { Billable, Terms } from '../../core/metering/estimate.ts'
import { NO_EXTRAS } from '../../core/metering/extras.ts'
import { UsageTally } from '../../core/formats/index.ts'
import type { RawUsage } from '../../core/formats/terms.ts'
import { bodyFrom, format, MESSAGES, modelOf } from '../plugins/facts.ts'

/** Bytes of text in the request. */
export const SAID = 600

class Tally extends UsageTally {
  failure: Billable['tally']['failure']
  usageIsFinal = false
}

const entry = { ...modelOf('famA', 'acme/famA-medium-5').entry, maxOutput: 8000, context: 200_000 }

/** The terms of a model that does not reason, without extras. */
export const TERMS = {
  reasoning: 'none',
  outputRate: 150,
  overhead: 0,
  weight: { textBytes: SAID, tokens: 0, surplus: 0, unbounded: false, providerTools: false, caches: undefined },
  bytesPerToken: 3,
  imageTokens: 7000,
  mediaTokens: 3000,
  toolTokens: 20_000,
  openToolTokens: 100_000,
  toolCalls: 10,
  extras: NO_EXTRAS,
  entryOf: () => undefined,
  prefix: () => undefined,
} as unknown as Terms

/** A reply of the messages format. @param isFinal whether its usage can no longer change */
export function replied(
  usage: RawUsage | undefined,
  isFinal: boolean,
  more: Partial<Billable> & { failure?: Billable['tally']['failure'] } = {},
): Billable {
  const { failure, ...members } = more
  const tally = new Tally(format(MESSAGES))
  if (usage) tally.addUsage(usage)
  tally.usageIsFinal = isFinal
  tally.failure = failure
  return {
    format: format(MESSAGES),
    body: bodyFrom({ model: 'm', max_tokens: 1000, stream: true, messages: [] }),
    model: { asked: 'm', entry, headers: {} },
    delivered: 0,
    complete: false,
    silentMs: 0,
    elapsedMs: 10_000,
    encryptedBytes: 0,
    tally,
    ...members,
  }
}
