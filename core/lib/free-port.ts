/** Finds out whether the gateway can listen before its start brings the tables of the records up to date. */
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'

interface Address {
  readonly host: string
  readonly port: number
}

/**
 * Listens at the address of the file for a moment. Closes the store if that fails.
 * @param address port 0 stands for any free port
 * @returns the port
 * @throws Error for the operator
 */
export async function freePortWith(store: { close(): Promise<unknown> }, address: Address): Promise<number> {
  const server = createServer().listen(address)
  try {
    await once(server, 'listening')
  } catch (cause) {
    await store.close()
    throw refusalOf(cause as Error, address, 'listen.port')
  }
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
