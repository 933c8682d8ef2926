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
    'Limits of this key alone, as in `keyTypes.….limits` of the file. The narrower ones count. Null for none.',
} as const

/** Limits as they are sent: amounts may be numbers. */
export interface GivenLimits extends Omit<LimitTerms, 'creditsPerDay' | 'credits' | 'priceFactor'> {
  readonly creditsPerDay?: string | number
  readonly credits?: string | number
  readonly priceFactor?: string | number
}

/**
 * Returns limits as they are stored: JSON, or null for none. Undefined if none were sent.
 * @throws GatewayError invalid_body
 */
export function limitsText(given: GivenLimits | null | undefined, config: Config): string | null | undefined {
  if (given === undefined || given === null) return given
  checkModels(given.models, config, 'limits.models')
  const amount = (name: 'creditsPerDay' | 'credits'): Partial<LimitTerms> => {
    const sent = given[name]
    if (sent === undefined) return {}
    const nano = parseDecimal(String(sent))
    if (nano === undefined || nano === 0n || nano > MAX_AMOUNT)
      throw invalidBody(
        `"limits.${name}" must be an amount of credits above zero, such as "25" or "0.5".`,
        `limits.${name}`,
      )
    return { [name]: String(sent) }
  }
  const { priceFactor, ...limits } = given
  const factor = priceFactor === undefined ? undefined : String(priceFactor)
  if (factor !== undefined && factorFrom(factor) === undefined)
    throw invalidBody(`"limits.priceFactor" must be ${PRICE_FACTOR.expected}.`, 'limits.priceFactor')
  const terms = {
    ...limits,
    ...amount('creditsPerDay'),
    ...amount('credits'),
    ...(factor !== undefined && { priceFactor: factor }),
  }
  return Object.keys(terms).length === 0 ? null : JSON.stringify(terms)
}
