/**
 * Exact money. A credit is 10^9 nano-credits; all arithmetic is in BigInt, and a request is rounded once, up, by less
 * than one nano-credit. Nothing here or downstream of it ever holds an amount in a float.
 */

/** Nano-credits in one credit. */
export const NANO = 1_000_000_000n

/** No amount is larger than this (10^15 - 1 nano): the scripts refuse more than 15 digits. */
export const MAX_AMOUNT = 999_999_999_999_999n

const DECIMAL = /^(\d{1,9})(?:\.(\d{1,9}))?$/

/**
 * Reads a plain decimal (`15`, `0.30`) as nano-units, exactly.
 * @returns undefined when the text is no plain decimal with at most nine digits on either side
 */
export function parseDecimal(text: string): bigint | undefined {
  const match = DECIMAL.exec(text)
  if (!match) return undefined
  return BigInt(match[1] ?? '0') * NANO + BigInt((match[2] ?? '').padEnd(9, '0'))
}

/** Writes nano-credits as a plain decimal of credits without trailing zeros: `1500000000n` is `1.5`. */
export function formatCredits(nano: bigint): string {
  const sign = nano < 0n ? '-' : ''
  const digits = (nano < 0n ? -nano : nano).toString().padStart(10, '0')
  const fraction = digits.slice(-9).replace(/0+$/, '')
  return `${sign}${digits.slice(0, -9)}${fraction ? `.${fraction}` : ''}`
}

/** Tokens by class, in the one normal form of all wire formats. Classes that are parts of others are left out where there are none. */
export interface Usage {
  /** Input tokens that were neither read from nor written to a prompt cache, media included. */
  readonly input: number
  readonly cacheRead: number
  readonly cacheWrite5m: number
  readonly cacheWrite1h: number
  /** All output tokens: reasoning, media and rejected predictions included. */
  readonly output: number
  /** A part of `output`. */
  readonly reasoning: number
  /** Parts of `input`. */
  readonly audioInput?: number
  readonly imageInput?: number
  /** Parts of `output`. */
  readonly audioOutput?: number
  readonly imageOutput?: number
  /** Tokens of a prediction that the model did not use: a part of `output`. */
  readonly rejected?: number
}

/** No tokens at all. */
export const NO_USAGE: Usage = { input: 0, cacheRead: 0, cacheWrite5m: 0, cacheWrite1h: 0, output: 0, reasoning: 0 }

/** Whether a usage counts media, which may have no price of their own. */
export function hasMedia({ audioInput, audioOutput, imageOutput }: Usage): boolean {
  return audioInput !== undefined || audioOutput !== undefined || imageOutput !== undefined
}

/** Two usages together. */
export function plus(one: Usage, other: Usage): Usage {
  const sum: Record<string, number> = { ...one }
  for (const [name, count] of Object.entries(other)) sum[name] = (sum[name] ?? 0) + (count as number)
  return sum as unknown as Usage
}

/** A usage whose parts are no larger than what they are parts of. */
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

/** All input tokens of a usage, cached or not. */
export function inputTokens(usage: Usage): number {
  return usage.input + usage.cacheRead + usage.cacheWrite5m + usage.cacheWrite1h
}
