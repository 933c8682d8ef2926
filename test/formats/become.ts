/** Translates a request as the gateway does, without a gateway. */
import { GatewayError } from '../../core/errors.ts'
import { FORMATS, Translation, type FormatName } from '../../core/formats/index.ts'
import type { ModelTraits } from '../../core/formats/translate/neutral.ts'
import { bodyOf } from 'tollgate/testing'

/** What becomes of a request: the upstream's body and the dropped members, or the refusal. */
export interface Fate {
  readonly sent?: string
  readonly dropped?: string
  readonly refused?: string
  readonly code?: string
}

/** Translates the text of a request. @param traits those of the model, beside the output limit that it gets */
export function become(
  from: FormatName,
  to: FormatName,
  text: string,
  headers: Record<string, string>,
  traits: Partial<ModelTraits> = {},
): Fate {
  try {
    const translation = new Translation({
      client: FORMATS[from],
      upstream: FORMATS[to],
      body: bodyOf(Buffer.from(text)),
      headers,
      asked: 'm',
      traits: { output: 32_000, thinking: 'adaptive', ...traits },
      requestId: 'r',
      startedAt: 0,
    })
    const dropped = String(translation.dropped)
    return { sent: translation.bytes.toString(), ...(dropped !== '' && { dropped }) }
  } catch (thrown) {
    if (!(thrown instanceof GatewayError)) throw thrown
    return { refused: `${thrown.details.param}: ${thrown.message}`, code: thrown.code }
  }
}
