/** The embedded store: a Redis in JavaScript inside the gateway's process. Its data is lost when the process ends. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isTaken } from './serving.ts'

const portFile = (data: string): string => join(data, 'embedded.port')

/** Starts the store on a free loopback port and writes the port to a file for commands. */
export async function startEmbedded(data: string): Promise<{ port: number; close(): Promise<void> }> {
  const { createRedisServer } = await import('js-redis-server')
  const server = await createRedisServer()
  mkdirSync(data, { recursive: true, mode: 0o700 })
  writeFileSync(portFile(data), String(server.port), { mode: 0o600 })
  return {
    port: server.port,
    close: async () => {
      rmSync(portFile(data), { force: true })
      await server.close()
    },
  }
}

/** Returns the port of a running gateway's embedded store. Undefined if there is none. */
export function portOfEmbedded(data: string): number | undefined {
  try {
    // The file stays behind when its gateway is killed.
    if (!isTaken(data)) return undefined
    return Number(readFileSync(portFile(data), 'utf8'))
  } catch {
    return undefined
  }
}
