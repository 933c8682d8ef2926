/** Converts milliseconds since the epoch to ISO 8601. Null for undefined. */
export function isoTime(ms: number | undefined): string | null {
  return ms === undefined ? null : new Date(ms).toISOString()
}
