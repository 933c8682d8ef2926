import { type CallOptions, type TestGateway, until } from './gateway.ts'

/** Clients that leave a stream. */

/** Returns a promise, and the function that fulfils it. */
export function gate(): { opens: Promise<void>; open: () => void } {
  let open = (): void => {}
  return { opens: new Promise(resolve => (open = resolve)), open: () => open() }
}

/** Reads a stream until it contains a text, leaves, and waits until the gateway has noticed it. */
export async function leavesAfter(g: TestGateway, seen: string, path: string, options: CallOptions): Promise<void> {
  const leave = new AbortController()
  const response = await g.open(path, { ...options, signal: leave.signal })
  const reader = (response.body as ReadableStream<Uint8Array>).getReader()
  for (let text = ''; !text.includes(seen);) {
    const { value, done } = await reader.read()
    if (done) throw new Error(`the stream ended without ${seen}: ${text}`)
    text += Buffer.from(value).toString()
  }
  const open = g.gateway.connections
  leave.abort()
  await until(() => g.gateway.connections < open)
}

/** Waits until the gateway reads on for a client that left, or has finished. */
export async function readsOn(g: TestGateway, key: string): Promise<void> {
  const account = await g.id(key)
  const { scripts } = g.gateway.ledger
  await until(async () => g.gateway.running === 0 || (await scripts.redis.zcard(scripts.keys.of(account).slots)) > 0)
}
