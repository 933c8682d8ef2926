/** Connections that a load balancer passes on, which begin with a header of the PROXY protocol. */
import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import { deadline } from '../lib/deadline.ts'
import type { ClientConnections } from './connections.ts'
import { proxyHeaderIn, type ProxyHeader } from '../lib/proxy-header.ts'

/**
 * Lets a server note its connections and read the header of the PROXY protocol before HTTP. A connection without a valid header is closed
 * without an answer.
 * @param server one that has only Node's own listener for connections
 */
export function readProxyHeaders(server: Server, connections: ClientConnections): void {
  const listeners = server.listeners('connection') as ((this: Server, socket: Socket) => void)[]
  server.removeAllListeners('connection')
  server.on('connection', (socket: Socket) => {
    const serve = (): void => listeners.forEach(listener => listener.call(server, socket))
    connections.open(socket)
    const limitMs = connections.awaitHeader(socket)
    if (limitMs === undefined) return serve()
    readHeader(socket, limitMs, header => {
      connections.identify(socket, header)
      serve()
    })
  })
}

/** Takes the header off the bytes of a socket. The bytes behind it stay to be read. */
function readHeader(socket: Socket, limitMs: number, done: (header: ProxyHeader) => void): void {
  const limit = deadline(limitMs, () => socket.destroy())
  let received = Buffer.alloc(0)
  const failed = (): void => void socket.destroy()
  const read = (): void => {
    for (let part = socket.read() as Buffer | null; part !== null; part = socket.read() as Buffer | null)
      received = Buffer.concat([received, part])
    const header = proxyHeaderIn(received)
    if (header === 'more') return
    stop()
    if (header === 'none') return failed()
    if (received.length > header.bytes) socket.unshift(received.subarray(header.bytes))
    done(header)
  }
  const stop = (): void => {
    limit.clear()
    socket.off('readable', read)
    socket.off('end', failed)
    socket.off('error', failed)
  }
  socket.on('readable', read)
  socket.on('end', failed)
  socket.on('error', failed)
  socket.on('close', limit.clear.bind(limit))
}
