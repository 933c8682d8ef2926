/** The health of an account in words, for operators. */
import { isoTime } from '../lib/iso-time.ts'
import type { Health } from './health.ts'

/** Returns the health of an account in words. `ok` if it may be asked. @param now milliseconds since the epoch */
export function healthWords({ disabled, state }: Health, now: number): string {
  const { refused, waitUntil, coolUntil, level, models } = state
  if (disabled) return 'disabled'
  if (refused) {
    const since = `refused by the provider (${refused.status}) since ${isoTime(refused.since)}`
    return refused.until > now
      ? `${since}, not asked until ${isoTime(refused.until)}`
      : `${since}, tried by one request`
  }
  if (waitUntil > now) return `the provider asks to wait until ${isoTime(waitUntil)}`
  if (coolUntil > now) return `failing, not asked until ${isoTime(coolUntil)}`
  if (level > 0) return 'failing, tried by one request'
  const limited = Object.entries(models)
    .map(([model, { until, coolUntil }]) => [model, Math.max(until, coolUntil)] as const)
    .filter(([, until]) => until > now)
  return limited.length === 0
    ? 'ok'
    : limited.map(([model, until]) => `${model} is not asked for until ${isoTime(until)}`).join(', ')
}
