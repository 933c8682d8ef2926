/** Converts the `upstreams:` section: addresses, accounts, quotas and costs. */
import { hasPolicy } from '../formats/members.ts'
import type { Price } from '../money/price.ts'
import type { UpstreamAccount, Config, Upstream } from './config.ts'
import type { Path } from './locate.ts'
import { costFromFile } from './prices.ts'
import type { RawConfig } from './schema.ts'
import { formatsNamed, type SectionReader } from './section-reader.ts'
import { isDecodable } from './store-address.ts'
import { asksTheShell } from './syntax.ts'
import { quotasFromFile } from './quotas.ts'
import { duration } from './units.ts'

type RawUpstream = RawConfig['upstreams'][string]

/** Selects the simulated provider, as a URL and as its key. */
const SIMULATED = 'simulated'

/** What an entry of `upstreams` is read with. */
export interface UpstreamReading {
  readonly reader: SectionReader
  readonly prices: ReadonlyMap<string, Price>
  /** Whether to refuse the simulated provider. */
  readonly production: boolean
}

/** Converts one entry of `upstreams`. */
export function upstreamFromFile(raw: RawUpstream, name: string, reading: UpstreamReading): Upstream {
  const { reader, prices } = reading
  const path = ['upstreams', name]
  const url = urlFromFile(raw.url, raw, path, reading)
  checkNames(raw, path, reader)
  checkPasses(raw, path, reader)
  const speaks = formatsNamed(raw.speaks)
  const ends =
    raw.ends && Object.fromEntries(Object.entries(raw.ends).map(([word, meaning]) => [word.toLowerCase(), meaning]))
  if (raw.compaction === 'native' && !speaks.some(({ compaction }) => compaction))
    reader.add([...path, 'compaction'], '`compaction: native` needs an upstream that speaks responses', 'omit it')
  return {
    name,
    simulated: raw.url === SIMULATED,
    speaks,
    compaction: raw.compaction,
    said: { ...raw.usage, ends },
    defaultOutput: raw.defaultOutput,
    accounts: raw.accounts.map((account, index) => {
      const at = [...path, 'accounts', index]
      const own = account.url === undefined ? url : urlFromFile(account.url, raw, at, reading)
      const isSimulated = (account.url ?? raw.url) === SIMULATED
      // A missing key and an invalid URL are reported elsewhere.
      if (account.key && (own !== undefined || isSimulated))
        checkSimulated(reader, isSimulated, account.key, {
          url: [...(account.url === undefined ? path : at), 'url'],
          key: [...at, 'key'],
        })
      const accountName = `${name}/${account.name ?? index + 1}`
      return { ...accountFromFile(account, at, reader), name: accountName, url: own }
    }),
    onDisconnect: raw.onDisconnect,
    cost: costFromFile(raw.cost ?? {}, [...path, 'cost'], prices, reader),
    dollar: raw.dollar === undefined ? undefined : reader.decimal([...path, 'dollar']),
    passes: new Set(raw.passes),
    failures: raw.failures.map(({ status, code, message, about }) => ({ status, code, message, about })),
    health: {
      failures: raw.health.failures,
      rate: raw.health.rate,
      least: raw.health.least,
      windowMs: duration(raw.health.window),
      cooldownMs: duration(raw.health.cooldown),
      cooldownMaxMs: duration(raw.health.cooldownMax),
    },
    http2: raw.http2 === 'auto',
    timeouts: {
      connectMs: duration(raw.timeouts.connect),
      keepAliveMs: duration(raw.timeouts.keepAlive),
      connectionAgeMs: duration(raw.timeouts.connectionAge),
      pingMs: duration(raw.timeouts.ping),
      firstByteMs: duration(raw.timeouts.firstByte),
      idleMs: duration(raw.timeouts.idle),
      totalMs: duration(raw.timeouts.total),
      finishMs: duration(raw.timeouts.finish),
      usageMs: duration(raw.timeouts.usage),
    },
  }
}

/** Reports accounts with the same name. Without one, an account is named by its place in the list. */
function checkNames(raw: RawUpstream, path: Path, reader: SectionReader): void {
  const names = raw.accounts.map(({ name }, index) => name ?? String(index + 1))
  names.forEach((name, index) => {
    if (names.indexOf(name) < index)
      reader.add([...path, 'accounts', index], `two accounts have the name "${name}"`, 'give each a `name` of its own')
  })
}

/** Reports members of `passes` that a policy decides about. */
function checkPasses({ passes }: RawUpstream, path: Path, reader: SectionReader): void {
  passes.forEach((member, index) => {
    if (hasPolicy(member))
      reader.add(
        [...path, 'passes', index],
        `\`passes\` cannot let "${member}" through: a policy decides about it`,
        `allow it in the \`policy\` of a key type`,
      )
  })
}

/** Reports a simulated URL with a real key, and a real URL with the simulated key. @param paths of both */
function checkSimulated(
  reader: SectionReader,
  isSimulated: boolean,
  key: string,
  paths: { readonly url: Path; readonly key: Path },
): void {
  if (asksTheShell(key) || (key === SIMULATED) === isSimulated) return
  reader.add(
    key === SIMULATED ? paths.key : paths.url,
    'a simulated URL needs a simulated key, and a real URL a real key',
    'set both the URL and the key, or neither',
  )
}

function accountFromFile(
  { proxy, key, header, weight, models, quota }: RawUpstream['accounts'][number],
  path: Path,
  reader: SectionReader,
): Omit<UpstreamAccount, 'name' | 'url'> {
  return {
    proxy: proxyFromFile(proxy, path, reader),
    key,
    header,
    weight,
    models: models && new Set(models),
    quotas: quotasFromFile(quota, [...path, 'quota'], reader),
  }
}

/** The proxies that an account can connect by. */
const PROXIES: ReadonlySet<string> = new Set(['http:', 'https:', 'socks5:'])

function proxyFromFile(text: string | undefined, path: Path, reader: SectionReader): URL | undefined {
  if (text === undefined) return undefined
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url && PROXIES.has(url.protocol) && url.hostname !== '' && isDecodable(url) && /^\/?$/.test(url.pathname))
    return url
  reader.add(
    [...path, 'proxy'],
    'expected the address of a proxy, without a path',
    'http://host:3128 or socks5://host:1080; user and password come before the host',
  )
  return undefined
}

/** Reads a base address. Undefined for the simulated provider, and for an invalid URL. */
function urlFromFile(
  text: string,
  { allowPrivate }: RawUpstream,
  path: Path,
  { reader, production }: UpstreamReading,
): URL | undefined {
  const at = [...path, 'url']
  if (text === SIMULATED) {
    if (production) reader.add(at, 'production does not allow the simulated provider', 'set the upstream URL')
    return undefined
  }
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (!url || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    const hint = /^[\w.-]+(?::\d+)?(?:\/|$)/.test(text) ? 'begin it with https://' : undefined
    reader.add(at, 'expected an http:// or https:// URL, or simulated', hint)
    return undefined
  }
  const [message, hint] = urlFault(url, allowPrivate) ?? []
  if (message !== undefined) reader.add(at, message, hint)
  return url
}

/** Returns what is wrong with an upstream's URL, and what to write instead. */
function urlFault(url: URL, allowPrivate: boolean): readonly [message: string, hint?: string] | undefined {
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    return ['expected a URL without credentials, query or fragment', 'put a credential into `accounts`, as `key`']
  }
  if (/\/v1(?:\/(?:chat\/completions|responses|messages))?\/?$/.test(url.pathname)) {
    return ['the URL must not contain /v1: the gateway appends it', 'remove everything from /v1 on']
  }
  if (allowPrivate) return undefined
  if (isLinkLocal(url.hostname)) return ['link-local addresses are not allowed', 'allowPrivate: true allows them']
  if (url.protocol === 'http:' && !isLoopback(url.hostname)) {
    const message = 'plain http to another host would expose the account key'
    return [message, 'use https, or set allowPrivate: true']
  }
  return undefined
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '[::1]' || /^127\.\d+\.\d+\.\d+$/.test(host)
}

function isLinkLocal(host: string): boolean {
  return host.startsWith('169.254.') || /^\[fe[89ab]/i.test(host) || host === 'metadata.google.internal'
}

/** Returns the names of the upstreams that use the simulated provider. */
export function simulatedNames(config: Config): string[] {
  return [...config.upstreams.values()].filter(({ simulated }) => simulated).map(({ name }) => name)
}
