/** Finds out whether a port is free. */
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'

interface Address {
  readonly host: string
  readonly port: number
}

/**
 * Listens at an address for a moment.
 * @param address port 0 stands for any free port
 * @param setting the setting that names the port
 * @returns the port
 * @throws Error for the operator if it is in use
 */
export async function freePort(address: Address, setting: string): Promise<number> {
  const server = createServer().listen(address)
  await once(server, 'listening').catch((cause: unknown) => {
    throw refusalOf(cause as Error, address, setting)
  })
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

/** Returns why an address cannot be used, in words for the operator. */
export function refusalOf(cause: NodeJS.ErrnoException, { host, port }: Address, setting: string): Error {
  if (cause.code !== 'EADDRINUSE') return cause
  return new Error(`${host}:${port} is in use; set another ${setting}`, { cause })
}
