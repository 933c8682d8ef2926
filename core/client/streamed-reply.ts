/** A reply that a stage sends in parts, such as a long list or a stream of events. */
import { Reply } from '../errors.ts'
import type { Outlet } from './outlet.ts'

/** The parts of a reply. The gateway takes the next one when the client has room for it. */
export type Parts = AsyncIterable<string | Buffer>

/** A reply in parts. If the client leaves or the gateway stops, no further part is taken. */
export class StreamedReply extends Reply {
  readonly parts: Parts

  /** @throws TypeError if HTTP cannot carry the status or a header */
  constructor(parts: Parts, headers: Record<string, string>, status = 200) {
    super(status, '', headers)
    this.parts = parts
  }
}

/** The exchange whose reply is sent. */
interface Recipient {
  /** The client has left, or the gateway ends the exchange. */
  readonly over: boolean
  readonly gone: boolean
  readonly outlet: Outlet
  begin(status: number, headers: Readonly<Record<string, string>>): void
  /** @returns a function that cancels the call */
  whenOver(callback: () => void): () => void
}

/**
 * Sends a reply in parts. If it cannot be completed, the connection is closed, since only that shows the client that the
 * reply is incomplete.
 * @throws what the parts throw
 */
export async function sendParts(x: Recipient, { status, headers, parts }: StreamedReply): Promise<void> {
  x.begin(status, headers)
  x.outlet.sendHead()
  let complete = false
  try {
    complete = await sendAll(x, parts[Symbol.asyncIterator]())
  } finally {
    if (!complete) x.outlet.destroy()
  }
  await x.outlet.end()
}

/** @returns whether all parts were sent */
async function sendAll(x: Recipient, parts: AsyncIterator<string | Buffer>): Promise<boolean> {
  let step = Promise.withResolvers<IteratorResult<string | Buffer> | undefined>()
  const unwatch = x.whenOver(() => step.resolve(undefined))
  try {
    for (;;) {
      step = Promise.withResolvers()
      parts.next().then(step.resolve, step.reject)
      const next = await step.promise
      if (!next || x.over || x.gone) return false
      if (next.done) return true
      if (next.value.length === 0 || x.outlet.write(Buffer.from(next.value))) continue
      step = Promise.withResolvers()
      x.outlet.whenReady(() => step.resolve(undefined))
      await step.promise
    }
  } finally {
    unwatch()
    // If the client has left, a part may still be under way. Nobody waits for it.
    void Promise.resolve(parts.return?.()).catch(() => {})
  }
}
