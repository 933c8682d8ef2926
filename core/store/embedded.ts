/** The embedded store: a Redis in JavaScript inside the gateway's process. Its data is lost when the process ends. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'

const portFile = (data: string): string => join(data, 'embedded.port')

/** Starts the store on a free loopback port and writes the port to a file for commands. */
export async function startEmbedded(data: string): Promise<{ port: number; close(): Promise<void> }> {
  const running = await joinEmbedded(data)
  if (running !== undefined && (await answers(running)))
    throw new Error(
      `another gateway with an embedded store uses ${data}; set another store.data, or install redis-server`,
    )
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

function answers(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1')
    const done = (result: boolean): void => {
      socket.destroy()
      resolve(result)
    }
    socket.setTimeout(1000, () => done(false))
    socket.once('connect', () => done(true))
    socket.once('error', () => done(false))
  })
}

/** Returns the port of a running gateway's embedded store. Undefined if there is none. */
export async function joinEmbedded(data: string): Promise<number | undefined> {
  try {
    return Number(readFileSync(portFile(data), 'utf8'))
  } catch {
    return undefined
  }
}
