/** Changes of plans by hand: what the API and the commands take for each, and do. */
import type { Config } from '../config/config.ts'
import { PLAN } from '../config/plan-schema.ts'
import { invalidBody } from '../errors.ts'
import type { Plans, PlanWish } from '../keys/plans.ts'
import { suggestion } from '../lib/suggest.ts'
import { type PlanTerms, problemsOf, WINDOWS_MAX, type WindowTerms } from '../plans/terms.ts'
import { GIVEN_NAME, GIVEN_REASON } from './given.ts'
import { type PlanChangeName, REQUIRED_MEMBERS } from './plan-change-names.ts'

/** A plan as it is sent: amounts may be numbers. */
interface GivenPlan extends Omit<PlanTerms, 'windows' | 'cachedInput'> {
  readonly windows: readonly (Omit<WindowTerms, 'credits'> & { readonly credits?: string | number })[]
  readonly cachedInput?: string | number
}

/** Members of a change, as they are sent. */
export interface GivenChange {
  readonly type?: string
  readonly plan?: GivenPlan
  /** From 1 on. */
  readonly window?: number
  readonly amount?: string | number
  readonly reason?: string
}

const WINDOW = {
  type: 'integer',
  minimum: 1,
  maximum: WINDOWS_MAX,
  expected: 'the number of a window of the plan, from 1',
  description: 'The number of the window in the plan, from 1.',
} as const

/** What each change takes: its members as JSON Schemas. */
export const CHANGE_MEMBERS = {
  set: {
    summary: 'Give a balance a plan, in the place of the one that it has: that of a key type, or one of its own.',
    properties: {
      type: {
        type: 'string',
        maxLength: 64,
        expected: 'the name of a key type',
        description: 'A key type with a plan.',
      },
      plan: { ...PLAN, description: 'Terms of its own, as in `keyTypes.….plan` of the file.' },
      reason: GIVEN_NAME,
    },
    required: REQUIRED_MEMBERS.set,
  },
  extend: {
    summary: 'Extend a plan by one period. One that has ended begins again now.',
    properties: { reason: GIVEN_NAME },
    required: REQUIRED_MEMBERS.extend,
  },
  end: { summary: 'End a plan now.', properties: { reason: GIVEN_REASON }, required: REQUIRED_MEMBERS.end },
  reset: {
    summary: 'Let a window of a plan begin anew now, with nothing used.',
    properties: { window: WINDOW, reason: GIVEN_REASON },
    required: REQUIRED_MEMBERS.reset,
  },
  add: {
    summary: 'Add to what may be used in a window of a plan, until it begins anew.',
    properties: {
      window: WINDOW,
      amount: {
        type: ['string', 'number'],
        pattern: String.raw`^\d{1,12}(?:\.\d{1,9})?$`,
        exclusiveMinimum: 0,
        expected: 'an amount above zero, in what the window counts',
        description: 'Credits, requests or tokens: what the window counts.',
      },
      reason: GIVEN_REASON,
    },
    required: REQUIRED_MEMBERS.add,
  },
} as const

/**
 * Makes a change.
 * @returns whether this call changed anything
 * @throws GatewayError invalid_body, unavailable; RangeError if the plan does not allow it, or its id was used for credits
 */
export async function changePlan(
  { plans, config }: { readonly plans: Plans; readonly config: Config },
  change: PlanChangeName,
  wish: Omit<PlanWish, 'note'>,
  given: GivenChange,
): Promise<boolean> {
  const { window = 1, reason = '' } = given
  const noted = { ...wish, ...(reason !== '' && { note: reason }) }
  const place = window - 1
  switch (change) {
    case 'set': {
      const { terms, type } = termsGiven(given, config)
      return plans.set(noted, terms, type)
    }
    case 'extend':
      return plans.extend(noted, type => config.keyTypes.get(type)?.plan)
    case 'end':
      return plans.end(noted)
    case 'reset':
      return plans.reset(noted, place)
    case 'add':
      return plans.add(noted, place, String(given.amount))
  }
}

function termsGiven(
  { type, plan }: GivenChange,
  config: Config,
): { readonly terms: PlanTerms; readonly type?: string } {
  if ((type === undefined) === (plan === undefined)) throw invalidBody('Send either "type" or "plan".', 'type')
  if (plan !== undefined) return { terms: checkedTerms(plan, config) }
  const known = config.keyTypes.get(type ?? '')
  if (!known) throw invalidBody(`There is no key type "${type}".`, 'type')
  if (!known.plan) throw invalidBody(`The key type "${type}" has no plan.`, 'type')
  return { terms: known.plan, ...(type !== undefined && { type }) }
}

/** Returns terms as they are stored. @throws GatewayError invalid_body */
function checkedTerms({ cachedInput, ...plan }: GivenPlan, config: Config): PlanTerms {
  const terms = {
    ...plan,
    windows: plan.windows.map(({ credits, ...window }) => ({
      ...window,
      ...(credits !== undefined && { credits: String(credits) }),
    })),
    ...(cachedInput !== undefined && { cachedInput: String(cachedInput) }),
  }
  const [problem] = problemsOf(terms)
  if (problem) {
    const member = ['plan', ...problem.path].join('.')
    throw invalidBody(
      `"${member}": ${problem.message}${problem.hint === undefined ? '' : `; ${problem.hint}`}.`,
      member,
    )
  }
  for (const [place, { models }] of terms.windows.entries()) checkModels(models, config, `plan.windows.${place}.models`)
  return terms
}

/** Checks names of models and groups. @throws GatewayError invalid_body for one that the file does not have */
export function checkModels(names: readonly string[] | undefined, config: Config, member: string): void {
  const known = new Set([
    ...config.groups.keys(),
    ...[...config.keyTypes.values()].flatMap(({ models }) => [...models.keys()]),
  ])
  for (const name of names ?? [])
    if (!known.has(name))
      throw invalidBody(`There is no model and no group "${name}"${suggestion(name, known)}.`, member)
}
