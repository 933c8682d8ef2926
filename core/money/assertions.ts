/**
 * Assertions about money: what must be true whatever customers, providers and machines do. A failed one is a defect of
 * Tollgate. It throws, so that tests find it. In production it is an alarm, and the work goes on: to refuse a settlement
 * would cost more than to check it later.
 */

/** What a failed assertion is about: ids and amounts, and no secret. */
export type Facts = object

/** Tells of a failed assertion. */
export type Alarm = (rule: string, facts: Facts) => void

let alarm: Alarm | undefined
let count = 0

/** Sets what happens from now on when an assertion fails, instead of an exception. */
export function alarmOnBrokenRules(to: Alarm | undefined): void {
  alarm = to
}

/** Returns how many assertions have failed in this process. */
export function brokenRules(): number {
  return count
}

/**
 * Asserts a rule about money.
 * @param rule what must be true, in words for the operator
 * @param facts returns what it is about; called only if the rule is broken
 * @throws Error if it is broken, and no alarm is set
 */
export function assertMoney(isTrue: boolean, rule: string, facts: () => Facts): void {
  if (isTrue) return
  count++
  if (!alarm) throw new Error(`a rule about money is broken: ${rule} (${factsText(facts())})`)
  alarm(rule, facts())
}

/** Returns facts as JSON, with amounts as texts. */
export function factsText(facts: Facts): string {
  return JSON.stringify(facts, (_name, value: unknown) => (typeof value === 'bigint' ? String(value) : value))
}
