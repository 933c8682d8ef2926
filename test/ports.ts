/** Ports that nothing listens on. */
import net from 'node:net'
import type { AddressInfo } from 'node:net'
import { once } from 'node:events'

/** Returns a free port of the loopback interface. */
export async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  await new Promise(resolve => server.close(resolve))
  return port
}
