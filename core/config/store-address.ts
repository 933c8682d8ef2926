/** The address of a store as one line: a single Redis, a master found through sentinels, or a cluster. */

/** Host and port of one server. */
export interface Node {
  readonly host: string
  readonly port: number
}

/** A parsed store address. */
export interface Address {
  readonly kind: 'single' | 'sentinel' | 'cluster'
  /** The server, the sentinels, or some nodes of the cluster. */
  readonly nodes: readonly Node[]
  /** The name of the master at the sentinels. Otherwise empty. */
  readonly master: string
  readonly tls: boolean
  readonly username: string | undefined
  readonly password: string | undefined
  readonly db: number
}

const PATTERN = /^redis(s)?(?:\+(sentinel|cluster))?:\/\/(?:([^:@/]*)(?::([^@/]*))?@)?([^/?#]+)(?:\/([\w.-]*))?$/
const NODE = /^(\[[\da-fA-F:]+\]|[^:[\]@\s]+)(?::(\d{1,5}))?$/

/** The part after the hosts: the number of a database, the name of a master, or nothing. */
const PATHS: Readonly<Record<Address['kind'], RegExp>> = { single: /^\d{0,3}$/, sentinel: /./, cluster: /^$/ }

/**
 * Parses `redis://[user:password@]host[:port][/db]`, `redis+cluster://host:port,host:port` or
 * `redis+sentinel://host:port,host:port/master`; `rediss` for TLS.
 * @returns undefined for any other text
 */
export function parseAddress(url: string): Address | undefined {
  const [, secure, kind = 'single', username, password, hosts = '', path = ''] = PATTERN.exec(url) ?? []
  const nodes = hosts.split(',').map(host => node(host, kind === 'sentinel' ? 26_379 : 6379))
  if (hosts === '' || nodes.some(found => !found) || (kind === 'single' && nodes.length > 1)) return undefined
  if (!PATHS[kind as Address['kind']].test(path)) return undefined
  return {
    kind: kind as Address['kind'],
    nodes: nodes as Node[],
    master: kind === 'sentinel' ? path : '',
    tls: secure !== undefined,
    // `redis://:password@host` has a password but no user.
    username: username ? decoded(username) : undefined,
    password: password === undefined ? undefined : decoded(password),
    db: kind === 'single' ? Number(path) : 0,
  }
}

/** Describes an address to the operator, without its credentials. */
export function describeAddress({ kind, nodes, master }: Address): string {
  const list = nodes.map(({ host, port }) => `${host}:${port}`).join(', ')
  if (kind === 'cluster') return `redis cluster at ${list}`
  return kind === 'sentinel' ? `redis master "${master}" from the sentinels at ${list}` : `redis at ${list}`
}

/** Decodes a credential from a URL. Text that is not valid percent-encoding stays as it is. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

function node(text: string, standard: number): Node | undefined {
  const match = NODE.exec(text)
  const port = Number(match?.[2] ?? standard)
  return match && port > 0 && port < 65_536 ? { host: (match[1] ?? '').replace(/^\[|\]$/g, ''), port } : undefined
}

/** Whether the escapes in a URL's user, password and path are valid. */
export function isDecodable({ username, password, pathname }: URL): boolean {
  try {
    decodeURIComponent(`${username}${password}${pathname}`)
    return true
  } catch {
    return false
  }
}
