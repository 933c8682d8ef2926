/** Ports that nothing listens on. */
import net from 'node:net'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'

/**
 * The ports of which one is chosen. Systems give those from 32,768 on to connections, which could take one before it is used.
 * A node of a cluster also listens 10,000 above its port.
 */
const [FROM, TO] = [15_000, 22_500]

/** Returns a free port of the loopback interface. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(FROM, TO)
    const server = net.createServer().listen(port, '127.0.0.1')
    if (!(await once(server, 'listening').catch(() => undefined))) continue
    await new Promise(resolve => server.close(resolve))
    return port
  }
}
