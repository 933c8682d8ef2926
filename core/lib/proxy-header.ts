/**
 * The header of the PROXY protocol, with which a load balancer tells whose connection it passes on. Source: HAProxy's
 * doc/proxy-protocol.txt, versions 1 (a line of text) and 2 (binary).
 */
import { isIP } from 'node:net'

/** A header at the beginning of a connection. */
export interface ProxyHeader {
  /** The client's address; undefined if the connection is the proxy's own, such as a health check. */
  readonly source: string | undefined
  /** Length of the header. What follows it are the client's bytes. */
  readonly bytes: number
}

/** Maximum bytes of a line of version 1, with its line break. */
const LINE_BYTES_MAX = 107
const LINE_BEGINNING = Buffer.from('PROXY ')
/** Maximum bytes of a header of version 2. Addresses take up to 216; load balancers add details of their own. */
const BINARY_BYTES_MAX = 4096
const SIGNATURE = Buffer.from('0d0a0d0a000d0a515549540a', 'hex')
const FIXED_BYTES = SIGNATURE.length + 4

/** Values of the 13th byte: version 2, and whether the connection is the proxy's own. */
const LOCAL = 0x20
const PROXIED = 0x21
/** Values of the upper half of the 14th byte, and bytes of both addresses and both ports. */
const IPV4 = 1
const IPV6 = 2
const ADDRESS_BYTES: Readonly<Record<number, number>> = { [IPV4]: 12, [IPV6]: 36 }

/**
 * Reads the header at the beginning of a connection.
 * @param received everything that has been received
 * @returns `more` if the header is not complete; `none` if the connection does not begin with a valid header
 */
export function proxyHeaderIn(received: Buffer): ProxyHeader | 'more' | 'none' {
  if (beginsWith(received, SIGNATURE)) return received.length < FIXED_BYTES ? 'more' : binary(received)
  return beginsWith(received, LINE_BEGINNING) ? line(received) : 'none'
}

/** Whether the bytes begin with a sign, as far as they have been received. */
function beginsWith(received: Buffer, sign: Buffer): boolean {
  const length = Math.min(received.length, sign.length)
  return received.compare(sign, 0, length, 0, length) === 0
}

function line(received: Buffer): ProxyHeader | 'more' | 'none' {
  const end = received.subarray(0, LINE_BYTES_MAX).indexOf('\r\n')
  if (end === -1) return received.length < LINE_BYTES_MAX ? 'more' : 'none'
  const bytes = end + 2
  const [, family, source = '', destination = '', ...ports] = received.toString('latin1', 0, end).split(' ')
  if (family === 'UNKNOWN') return { source: undefined, bytes }
  const version = family === 'TCP4' ? 4 : 6
  const isValid =
    (family === 'TCP4' || family === 'TCP6') &&
    isIP(source) === version &&
    isIP(destination) === version &&
    ports.length === 2 &&
    ports.every(port => /^\d{1,5}$/.test(port) && Number(port) <= 65_535)
  return isValid && !source.includes('%') ? { source, bytes } : 'none'
}

function binary(received: Buffer): ProxyHeader | 'more' | 'none' {
  const command = received[SIGNATURE.length]
  const family = (received[SIGNATURE.length + 1] ?? 0) >> 4
  const bytes = FIXED_BYTES + received.readUInt16BE(FIXED_BYTES - 2)
  if (bytes > BINARY_BYTES_MAX || (command !== LOCAL && command !== PROXIED)) return 'none'
  if (received.length < bytes) return 'more'
  const addressBytes = ADDRESS_BYTES[family]
  // Other families, such as UNIX sockets, have no address that tells clients apart.
  if (command === LOCAL || addressBytes === undefined) return { source: undefined, bytes }
  if (bytes < FIXED_BYTES + addressBytes) return 'none'
  const at = received.subarray(FIXED_BYTES)
  if (family === IPV4) return { source: at.subarray(0, 4).join('.'), bytes }
  const groups = Array.from({ length: 8 }, (_, index) => at.readUInt16BE(index * 2).toString(16))
  return { source: new URL(`http://[${groups.join(':')}]`).hostname.slice(1, -1), bytes }
}
