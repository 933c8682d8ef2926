/** A small request that finds out whether an account works. */
import type { UpstreamAccount, Upstream } from '../../config/config.ts'
import { failureCause } from '../../formats/failures.ts'
import type { Format } from '../../formats/index.ts'
import { jsonFrom } from '../../formats/json.ts'
import { reasonOf } from '../../lib/reason.ts'
import { upwardHeaders } from './headers.ts'

/** How an account answered. */
export interface Probed {
  readonly ms: number
  /** Why it failed, in words; undefined if it works. */
  readonly failure?: string
}

/** Sends a small request in the upstream's preferred format. The provider bills it. @param model the name that is sent */
export async function probe({ speaks, timeouts }: Upstream, account: UpstreamAccount, model: string): Promise<Probed> {
  // Most processes that load this file never send one.
  const [{ Agent, fetch }, { connectorBy }] = await Promise.all([import('undici'), import('./egress.ts')])
  const [format] = speaks as readonly [Format]
  const base = (account.url?.href ?? '').replace(/\/$/, '')
  const began = performance.now()
  const answered = (failure?: string): Probed => ({
    ms: Math.round(performance.now() - began),
    ...(failure !== undefined && { failure: failure.replaceAll(account.key, '***') }),
  })
  const dispatcher = new Agent({ connect: connectorBy(account.proxy, timeouts.connectMs, false) })
  try {
    const reply = await fetch(`${base}${format.path}`, {
      method: 'POST',
      headers: upwardHeaders({}, { format, account }),
      body: JSON.stringify(format.probe(model)),
      redirect: 'manual',
      dispatcher,
      signal: AbortSignal.timeout(timeouts.firstByteMs),
    })
    const { failure } = format.read(jsonFrom(await reply.text()))
    if (reply.status === 200 && !failure) return answered()
    // A provider may repeat the credential. It is removed before the message is shortened.
    const said = failure && { ...failure, message: failure.message.replaceAll(account.key, '***') }
    return answered(failureCause(reply.status, said).message)
  } catch (cause) {
    return answered(reasonOf((cause as Error).cause ?? cause))
  } finally {
    await dispatcher.destroy()
  }
}
