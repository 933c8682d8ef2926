/** Connections to upstreams through the egress proxy of an account. */
import { request } from 'node:http'
import { request as secureRequest } from 'node:https'
import type { Socket } from 'node:net'
import { callbackify } from 'node:util'
import { SocksClient } from 'socks'
import { buildConnector } from 'undici'
import { deadline } from '../../lib/deadline.ts'

/** Milliseconds of silence after which the system checks whether a connection still exists, every second. */
const SILENT_MS = 10_000

/** Where a connection goes. */
interface Goal {
  readonly host: string
  readonly port: number
}

/**
 * Creates the function that connects an undici client to its upstream.
 * @param proxy `http://`, `https://` or `socks5://`, with user and password if it wants them; undefined for none. It
 * resolves the upstream's name.
 * @param connectMs time limit for the whole connection, in milliseconds
 * @param http2 whether to use HTTP/2 if the server offers it
 */
export function connectorBy(proxy: URL | undefined, connectMs: number, http2: boolean): buildConnector.connector {
  const connect = buildConnector({
    allowH2: http2,
    preferH2: http2,
    timeout: connectMs,
    keepAliveInitialDelay: SILENT_MS,
  })
  if (!proxy) return connect
  return (options, callback) => {
    const secure = options.protocol === 'https:'
    const goal = { host: hostOf(options), port: Number(options.port) || (secure ? 443 : 80) }
    const tunnel = proxy.protocol === 'socks5:' ? bySocks : byConnect
    callbackify(tunnel)(proxy, goal, connectMs, (cause, socket) => {
      if (cause) return callback(new Error(`the egress proxy failed: ${cause.message}`, { cause }), null)
      socket.setNoDelay(true)
      socket.setKeepAlive(true, SILENT_MS)
      if (secure) connect({ ...options, httpSocket: socket }, callback)
      else callback(null, socket)
    })
  }
}

async function bySocks(proxy: URL, goal: Goal, limitMs: number): Promise<Socket> {
  const { username, password } = loginOf(proxy)
  const { socket } = await SocksClient.createConnection({
    command: 'connect',
    proxy: {
      host: hostOf(proxy),
      port: Number(proxy.port) || 1080,
      type: 5,
      ...(username !== '' && { userId: username, password }),
    },
    destination: goal,
    timeout: limitMs,
  })
  return socket
}

/** Asks an HTTP proxy for a tunnel. The proxy sees the upstream's name and nothing of the requests. */
function byConnect(proxy: URL, { host, port }: Goal, limitMs: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const { username, password } = loginOf(proxy)
    const authority = `${host.includes(':') ? `[${host}]` : host}:${port}`
    const login = Buffer.from(`${username}:${password}`).toString('base64')
    const send = proxy.protocol === 'https:' ? secureRequest : request
    const asked = send({
      host: hostOf(proxy),
      port: Number(proxy.port) || (proxy.protocol === 'https:' ? 443 : 80),
      method: 'CONNECT',
      path: authority,
      headers: { host: authority, ...(username !== '' && { 'proxy-authorization': `Basic ${login}` }) },
      agent: false,
    })
    const limit = deadline(limitMs, () => asked.destroy(new Error('it did not answer in time')))
    asked.on('connect', ({ statusCode = 0 }, socket: Socket, head: Buffer) => {
      limit.clear()
      if (statusCode >= 200 && statusCode < 300) {
        if (head.length > 0) socket.unshift(head)
        return resolve(socket)
      }
      socket.destroy()
      reject(new Error(`it answered with status ${statusCode}`))
    })
    asked.on('response', ({ statusCode }) => asked.destroy(new Error(`it answered with status ${statusCode}`)))
    asked.on('error', cause => {
      limit.clear()
      reject(cause)
    })
    asked.end()
  })
}

/** Returns a host's name without the brackets of an IPv6 address. */
function hostOf({ hostname }: { readonly hostname: string }): string {
  return hostname.replace(/^\[|\]$/g, '')
}

function loginOf({ username, password }: URL): { username: string; password: string } {
  return { username: decodeURIComponent(username), password: decodeURIComponent(password) }
}
