/** The addresses that requests come from. */
import { BlockList, isIP, isIPv6, SocketAddress } from 'node:net'

/** A set of addresses and subnets. */
export class AddressRanges {
  readonly #list = new BlockList()

  /** @param ranges addresses, or subnets such as 10.0.0.0/8; each must pass `isRange` */
  constructor(ranges: readonly string[]) {
    for (const range of ranges) {
      const [address = '', prefix] = range.split('/')
      const family = isIPv6(address) ? 'ipv6' : 'ipv4'
      if (prefix === undefined) this.#list.addAddress(address, family)
      else this.#list.addSubnet(address, Number(prefix), family)
    }
  }

  /** Whether an address is one of them. */
  has(address: string): boolean {
    const own = plain(address)
    return isIP(own) > 0 && this.#list.check(own, isIPv6(own) ? 'ipv6' : 'ipv4')
  }
}

/**
 * The address of the client that sent a request. Behind trusted proxies it is the last address of `x-forwarded-for`
 * that is not a trusted proxy itself. A client can invent the addresses before that one.
 * @param remote the address at the other end of the connection, or the one that a PROXY protocol header names
 */
export function clientAddress(
  trusted: AddressRanges,
  remote: string,
  forwarded: string | readonly string[] | undefined,
): string {
  let client = plain(remote)
  if (typeof forwarded !== 'string' || !trusted.has(client)) return client
  for (const hop of forwarded.split(',').reverse()) {
    const address = plain(withoutPort(hop.trim()))
    if (isIP(address) === 0) return client
    client = address
    if (!trusted.has(client)) return client
  }
  return client
}

/** Returns an address as proxies write it, without its brackets and its port. */
function withoutPort(hop: string): string {
  const [, inBrackets, ipv4] = /^"?(?:\[([^\]]*)\](?::\d+)?|(\d+(?:\.\d+){3}):\d+)"?$/.exec(hop) ?? []
  return inBrackets ?? ipv4 ?? hop
}

/** Whether a text is an address, or a subnet such as 10.0.0.0/8 or fd00::/8. A subnet of all addresses is refused. */
export function isRange(text: string): boolean {
  const [address = '', prefix, more] = text.split('/')
  const version = isIP(address)
  if (version === 0 || more !== undefined) return false
  return prefix === undefined || (/^[1-9]\d{0,2}$/.test(prefix) && Number(prefix) <= (version === 4 ? 32 : 128))
}

/** The usual form of an address. An IPv4 address in the form of IPv6, of which there are several, becomes IPv4. */
function plain(address: string): string {
  if (!address.includes(':')) return address
  if (isIPv6(address) && !address.includes('%')) address = new SocketAddress({ address, family: 'ipv6' }).address
  return address.startsWith('::ffff:') && address.includes('.') ? address.slice('::ffff:'.length) : address
}

/**
 * The group that an address counts in where addresses have limits: for IPv6 the /64 network, which one customer gets.
 */
export function groupOf(address: string): string {
  const own = plain(address)
  if (!own.includes(':')) return own
  const [head = '', tail = ''] = own.split('::')
  const before = head === '' ? [] : head.split(':')
  const after = tail === '' ? [] : tail.split(':')
  const groups = own.includes('::')
    ? [...before, ...Array.from({ length: 8 - before.length - after.length }, () => '0'), ...after]
    : before
  return `${groups.slice(0, 4).join(':')}::/64`
}
