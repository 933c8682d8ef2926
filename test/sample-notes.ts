/** The notes of a typical exchange, for measurements. */
import type { Notes } from '../core/records/entry.ts'

/** What is known when the hold is requested. */
export const NOTES_AT_START: Notes = {
  format: 'chat-completions',
  endpoint: '/v1/chat/completions',
  model: 'acme/famC-5.5',
  type: 'famC',
  upstream: 'famC/1',
  stream: true,
  address: '203.0.113.57',
}

/** What is known when the exchange has ended. */
export const NOTES_AT_END: Notes = {
  ...NOTES_AT_START,
  status: 'ok',
  httpStatus: 200,
  usage: { input: 1812, cacheRead: 20_480, cacheWrite5m: 0, cacheWrite1h: 0, output: 412, reasoning: 128 },
  usageSource: 'upstream',
  price: 'medium',
  priceVersion: '5f0c9d2a41b7',
  cost: '1234567',
  durationMs: 8123,
  ttftMs: 412,
}
