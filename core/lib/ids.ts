/** Ids that begin with their time: UUIDs of version 7. */
import { randomBytes } from 'node:crypto'

/** Random hexadecimal digits for the next ids. Asking for some for each id would take longer than all the rest. */
let digits = ''
let used = 0

/** Returns a new id. It is not secret. @param nowMs milliseconds since the epoch */
export function timedId(nowMs: number): string {
  if (used + 20 > digits.length) {
    digits = randomBytes(10_000).toString('hex')
    used = 0
  }
  const time = Math.floor(nowMs).toString(16).padStart(12, '0')
  const random = digits.slice(used, (used += 20))
  const variant = '89ab'[Number.parseInt(random[19] as string, 16) & 3]
  return idFromDigits(`${time}7${random.slice(0, 3)}${variant}${random.slice(3, 18)}`)
}

/** Returns the 16 bytes of an id. */
export function bytesOfId(id: string): Uint8Array {
  return Buffer.from(id.replaceAll('-', ''), 'hex')
}

/** Returns the id with these 16 bytes. */
export function idFromBytes(bytes: Uint8Array): string {
  return idFromDigits(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex'))
}

function idFromDigits(hex: string): string {
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
}

/** Returns the time in an id, in milliseconds since the epoch. */
export function timeOfId(id: string): number {
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16)
}

/** Whether a text is a UUID. */
export function isId(text: string): boolean {
  return /^[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}$/.test(text)
}
