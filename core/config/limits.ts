/** Converts the `limits:` section. */
import { isRange, AddressRanges } from '../lib/addresses.ts'
import type { Limits } from './config.ts'
import type { RawConfig } from './schema.ts'
import { duration, size } from './units.ts'

/** Converts `limits`. Values of the wrong shape have already been reported. */
export function limits(raw: RawConfig['limits']): Limits {
  return {
    connections: raw.connections,
    urlBytes: size(raw.url),
    headersBytes: size(raw.headers),
    headersMs: duration(raw.headersTime),
    bodyBytes: size(raw.body),
    values: raw.values,
    depth: raw.depth,
    memoryBytes: raw.memory === 'auto' ? undefined : size(raw.memory),
    bodyIdleMs: duration(raw.bodyIdle),
    bodyMs: duration(raw.bodyTime),
    replyBytes: size(raw.reply),
    writeIdleMs: duration(raw.writeIdle),
    keepaliveMs: duration(raw.keepalive),
    idleConnectionMs: duration(raw.idleConnection),
    idlePerAddress: raw.idlePerAddress,
    anonymous: raw.anonymous,
    // Invalid ranges have already been reported.
    trustedProxies: new AddressRanges(raw.trustedProxies.filter(isRange)),
    proxyProtocol: raw.proxyProtocol,
    unreadBytes: size(raw.unreadBody),
    unreadMs: duration(raw.unreadTime),
    unreadBodies: raw.unreadBodies,
    stageMs: duration(raw.stage),
    drainDelayMs: duration(raw.drainDelay),
    drainMs: duration(raw.drain),
  }
}
