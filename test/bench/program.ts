/** A program of the bench, by its first argument: a proxy, or the provider of replies that need time. */
import { Agent, createServer, request, type RequestListener } from 'node:http'
import { createProxyServer } from 'http-proxy-3'
import { EVENT, STREAM_END } from './replies.ts'

const [, , role = '', port = '', upstream = ''] = process.argv
const agent = new Agent({ keepAlive: true, maxFreeSockets: 20_000 })

/** What forwards with the least work. */
function bare(): RequestListener {
  const { hostname: host, port, pathname } = new URL(upstream)
  return (req, res) => {
    const headers = { ...req.headers, host }
    const forwarded = request({ agent, host, port, path: pathname + req.url, method: req.method, headers }, reply => {
      res.writeHead(reply.statusCode ?? 502, reply.headers)
      reply.pipe(res)
    })
    forwarded.on('error', () => res.destroy())
    res.on('close', () => res.writableFinished || forwarded.destroy())
    req.pipe(forwarded)
  }
}

function httpProxy3(): RequestListener {
  const { hostname: host, port, pathname } = new URL(upstream)
  // http-proxy-3 would parse a target that is a string for each request.
  const proxy = createProxyServer({ target: { protocol: 'http:', host, port: Number(port), pathname }, agent })
  proxy.on('error', (_error, _req, res) => void res.destroy())
  return (req, res) => proxy.web(req, res)
}

/** The first folder of the path names the reply. */
function provider(): RequestListener {
  return (req, res) => {
    req.resume().on('end', () => {
      const reply = req.url?.split('/')[1]
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.write(EVENT)
      const end = (): void => void res.end(STREAM_END)
      if (reply === 'first') return void setTimeout(end, 5)
      const pace = setInterval(() => res.write(EVENT), reply === 'held' ? 5000 : 20)
      const last = setTimeout(end, 600_000)
      res.on('close', () => {
        clearInterval(pace)
        clearTimeout(last)
      })
    })
  }
}

const roles: Readonly<Record<string, () => RequestListener>> = { bare, 'http-proxy-3': httpProxy3, provider }
const listener = roles[role]
if (!listener) throw new Error(`there is no program ${role}`)
createServer({ keepAliveTimeout: 60_000 }, listener()).listen({ port: Number(port), host: '127.0.0.1', backlog: 4096 })
