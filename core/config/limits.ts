/** Converts the `limits:` section. */
import { isRange, TrustedProxies } from '../lib/addresses.ts'
import type { Limits } from './config.ts'
import type { RawConfig } from './schema.ts'
import { duration, size } from './units.ts'

/** Converts `limits`. Values of the wrong shape have already been reported. */
export function limits(raw: RawConfig['limits']): Limits {
  return {
    connections: raw.connections,
    url: size(raw.url),
    headers: size(raw.headers),
    headersTime: duration(raw.headersTime),
    body: size(raw.body),
    values: raw.values,
    depth: raw.depth,
    memory: raw.memory === 'auto' ? undefined : size(raw.memory),
    bodyIdle: duration(raw.bodyIdle),
    bodyTime: duration(raw.bodyTime),
    reply: size(raw.reply),
    writeIdle: duration(raw.writeIdle),
    keepalive: duration(raw.keepalive),
    idleConnection: duration(raw.idleConnection),
    idlePerAddress: raw.idlePerAddress,
    anonymous: raw.anonymous,
    // Invalid ranges have already been reported.
    trustedProxies: new TrustedProxies(raw.trustedProxies.filter(isRange)),
    unreadBody: size(raw.unreadBody),
    unreadTime: duration(raw.unreadTime),
    unreadBodies: raw.unreadBodies,
    stage: duration(raw.stage),
    drainDelay: duration(raw.drainDelay),
    drain: duration(raw.drain),
  }
}
