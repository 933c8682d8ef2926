/** Usage: tokens by class, in the one form that all wire formats are read into. */

/** Tokens by class. A class that is a part of another is left out if it is empty. */
export interface Usage {
  /** Input tokens, media included, that were neither read from nor written to a prompt cache. */
  readonly input: number
  readonly cacheRead: number
  readonly cacheWrite5m: number
  readonly cacheWrite1h: number
  /** All output tokens. Reasoning, media and rejected predictions are included. */
  readonly output: number
  /** A part of `output`. */
  readonly reasoning: number
  /** Parts of `input`. */
  readonly audioInput?: number
  readonly imageInput?: number
  /** Parts of `output`. */
  readonly audioOutput?: number
  readonly imageOutput?: number
  /** Tokens of a prediction that the model did not use; a part of `output`. */
  readonly rejected?: number
}

/** No tokens at all. */
export const NO_USAGE: Usage = { input: 0, cacheRead: 0, cacheWrite5m: 0, cacheWrite1h: 0, output: 0, reasoning: 0 }

/** Whether a usage counts media, which may have no rate. */
export function hasMedia({ audioInput, audioOutput, imageOutput }: Usage): boolean {
  return audioInput !== undefined || audioOutput !== undefined || imageOutput !== undefined
}

/** The sum of two usages. */
export function plus(one: Usage, other: Usage): Usage {
  const sum: Record<string, number> = { ...one }
  for (const [name, count] of Object.entries(other)) sum[name] = (sum[name] ?? 0) + (count as number)
  return sum as unknown as Usage
}

/** A usage in which no part is larger than the class that it is a part of. */
export function fitted(usage: Usage): Usage {
  let input = usage.input
  let output = usage.output
  const inputPart = (count = 0): number => {
    const part = Math.min(count, input)
    input -= part
    return part
  }
  const outputPart = (count = 0): number => {
    const part = Math.min(count, output)
    output -= part
    return part
  }
  const { audioInput, imageInput, audioOutput, imageOutput, rejected, ...rest } = usage
  return {
    ...rest,
    reasoning: outputPart(usage.reasoning),
    ...(audioInput && { audioInput: inputPart(audioInput) }),
    ...(imageInput && { imageInput: inputPart(imageInput) }),
    ...(audioOutput && { audioOutput: outputPart(audioOutput) }),
    ...(imageOutput && { imageOutput: outputPart(imageOutput) }),
    ...(rejected && { rejected: outputPart(rejected) }),
  }
}

/** All input tokens, cached or not. */
export function inputTokens(usage: Usage): number {
  return usage.input + usage.cacheRead + usage.cacheWrite5m + usage.cacheWrite1h
}
