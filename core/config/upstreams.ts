/** Converts the `upstreams:` section: addresses, accounts, quotas and costs. */
import type { Price } from '../money/price.ts'
import type { Account, Upstream } from './config.ts'
import type { Path } from './locate.ts'
import { costFromFile } from './prices.ts'
import type { RawConfig } from './schema.ts'
import { formatsNamed, type SectionReader } from './section-reader.ts'
import { asksTheShell } from './syntax.ts'
import { duration } from './units.ts'

type RawUpstream = RawConfig['upstreams'][string]

/** Selects the simulated provider, as a URL and as its key. */
const SIMULATED = 'simulated'

/** Converts one entry of `upstreams`. @param production whether to refuse the simulated provider */
export function upstreamFromFile(
  raw: RawUpstream,
  name: string,
  prices: ReadonlyMap<string, Price>,
  reader: SectionReader,
  production: boolean,
): Upstream {
  const path = ['upstreams', name]
  const url = urlFromFile(raw, path, reader, production)
  return {
    name,
    url,
    speaks: formatsNamed(raw.speaks),
    defaultOutput: raw.defaultOutput,
    accounts: raw.accounts.map((account, index) => {
      const at = [...path, 'accounts', index]
      // A missing key and an invalid URL are reported elsewhere.
      if (account.key && (url !== undefined || raw.url === SIMULATED))
        checkSimulated(raw, account.key, path, at, reader)
      return accountFromFile(account, `${name}/${index + 1}`, at, reader)
    }),
    onDisconnect: raw.onDisconnect,
    cost: costFromFile(raw.cost ?? {}, [...path, 'cost'], prices, reader),
    dollar: raw.dollar === undefined ? undefined : reader.decimal([...path, 'dollar']),
    timeouts: {
      connectMs: duration(raw.timeouts.connect),
      keepAliveMs: duration(raw.timeouts.keepAlive),
      firstByteMs: duration(raw.timeouts.firstByte),
      idleMs: duration(raw.timeouts.idle),
      totalMs: duration(raw.timeouts.total),
      finishMs: duration(raw.timeouts.finish),
      usageMs: duration(raw.timeouts.usage),
    },
  }
}

/** Reports a simulated URL with a real key, and a real URL with the simulated key. */
function checkSimulated(raw: RawUpstream, key: string, path: Path, accountPath: Path, reader: SectionReader): void {
  if (asksTheShell(key) || (key === SIMULATED) === (raw.url === SIMULATED)) return
  reader.add(
    key === SIMULATED ? [...accountPath, 'key'] : [...path, 'url'],
    'a simulated URL needs a simulated key, and a real URL a real key',
    'set both the URL and the key, or neither',
  )
}

function accountFromFile(
  raw: RawUpstream['accounts'][number],
  name: string,
  path: Path,
  reader: SectionReader,
): Account {
  const quota = raw.quota && { amount: reader.amount([...path, 'quota', 'credits']), per: raw.quota.per }
  return { name, key: raw.key, header: raw.header, quota }
}

/** Returns the base address of an upstream. Undefined for the simulated provider, and for an invalid URL. */
function urlFromFile(raw: RawUpstream, path: Path, reader: SectionReader, production: boolean): URL | undefined {
  const at = [...path, 'url']
  if (raw.url === SIMULATED) {
    if (production) reader.add(at, 'production does not allow the simulated provider', 'set the upstream URL')
    return undefined
  }
  const url = URL.canParse(raw.url) ? new URL(raw.url) : undefined
  if (!url || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    const hint = /^[\w.-]+(?::\d+)?(?:\/|$)/.test(raw.url) ? 'begin it with https://' : undefined
    reader.add(at, 'expected an http:// or https:// URL, or simulated', hint)
    return undefined
  }
  const [message, hint] = urlFault(url, raw.allowPrivate) ?? []
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
