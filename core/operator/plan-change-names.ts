/** The changes of plans by hand, without what they do: the command line names them before it knows its command. */

/** The members that each change requires. */
export const REQUIRED_MEMBERS = {
  set: [],
  extend: [],
  end: ['reason'],
  reset: ['window', 'reason'],
  add: ['window', 'amount', 'reason'],
} as const

/** The name of a change. */
export type PlanChangeName = keyof typeof REQUIRED_MEMBERS

/** The changes. */
export const PLAN_CHANGES = Object.keys(REQUIRED_MEMBERS) as PlanChangeName[]
