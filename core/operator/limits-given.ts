/** The limits of a single key, as the API and the commands take them. */
import type { Config } from '../config/config.ts'
import { LIMITS, PRICE_FACTOR } from '../config/plan-schema.ts'
import { invalidBody } from '../errors.ts'
import { factorFrom } from '../money/price-factor.ts'
import type { LimitTerms } from '../plans/limits.ts'
import { MAX_AMOUNT, parseDecimal } from '../money/credits.ts'
import { checkModels } from './plan-changes.ts'

/** Schema of the limits of a key. */
export const GIVEN_LIMITS = {
  type: ['object', 'null'],
  additionalProperties: false,
  properties: {
    ...LIMITS,
    priceFactor: {
      ...PRICE_FACTOR,
      description: 'What the prices of this key are multiplied by, such as `0.85`; 1 by default.',
    },
  },
  expected: 'an object such as {"requestsPerMinute": 60}, or null',
  description:
    'Limits of this key alone, as in `keyTypes.….limits` of the file. The narrower ones count. `credits` is the cap of the key. Null for none.',
} as const

/** Limits as they are sent: amounts may be numbers. */
export interface GivenLimits extends Omit<LimitTerms, 'creditsPerDay' | 'credits' | 'priceFactor'> {
  readonly creditsPerDay?: string | number
  readonly credits?: string | number
  readonly priceFactor?: string | number
}

/** The limits and the cap of a key. Null removes what the key has, and undefined leaves it. */
export interface OwnLimits {
  /** As JSON. */
  readonly limits: string | null | undefined
  /** In nano-credits. */
  readonly cap: bigint | null | undefined
}

/**
 * Returns the limits and the cap of a key as they are stored: `credits` among the limits is the cap.
 * @throws GatewayError invalid_body
 */
export function limitsGiven(
  given: GivenLimits | null | undefined,
  cap: bigint | null | undefined,
  config: Config,
): OwnLimits {
  if (given === undefined || given === null) return { limits: given, cap }
  checkModels(given.models, config, 'limits.models')
  const amount = (name: 'creditsPerDay' | 'credits'): bigint | undefined => {
    const sent = given[name]
    const nano = sent === undefined ? undefined : parseDecimal(String(sent))
    if (sent !== undefined && (nano === undefined || nano === 0n || nano > MAX_AMOUNT))
      throw invalidBody(
        `"limits.${name}" must be an amount of credits above zero, such as "25" or "0.5".`,
        `limits.${name}`,
      )
    return nano
  }
  const credits = amount('credits')
  if (credits !== undefined && cap !== undefined)
    throw invalidBody('Send either "cap" or "limits.credits": they are the same limit.', 'cap')
  const { priceFactor, credits: _credits, ...limits } = given
  const factor = priceFactor === undefined ? undefined : String(priceFactor)
  if (factor !== undefined && factorFrom(factor) === undefined)
    throw invalidBody(`"limits.priceFactor" must be ${PRICE_FACTOR.expected}.`, 'limits.priceFactor')
  const terms = {
    ...limits,
    ...(amount('creditsPerDay') !== undefined && { creditsPerDay: String(given.creditsPerDay) }),
    ...(factor !== undefined && { priceFactor: factor }),
  }
  return { limits: Object.keys(terms).length === 0 ? null : JSON.stringify(terms), cap: credits ?? cap }
}
