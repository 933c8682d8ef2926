/**
 * One measured process: the bare proxy, Tollgate or the provider, by its first argument. It reports where it listens
 * and, on request, what it has used of the machine.
 */
import { createServer, Agent, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface Usage {
  /** Microseconds of CPU time so far, user and system. */
  readonly cpu: number
  readonly rss: number
  /** Connections open on the listening side. */
  readonly connections: number
}

/** Number of customers. Each has a key. */
const CUSTOMERS = 128

const [, , role = '', argument = ''] = process.argv
let connections = (): Promise<number> => Promise.resolve(0)

function listen(handler: RequestListener): void {
  const server = createServer({ keepAliveTimeout: 60_000 }, handler)
  connections = () => new Promise(resolve => server.getConnections((_error, count) => resolve(count)))
  server.listen({ port: 0, host: '127.0.0.1', backlog: 4096 }, () =>
    process.send?.({ port: (server.address() as AddressInfo).port }),
  )
}

// Each role loads only its own modules, as the others' would count as its memory.
async function bare(upstream: string): Promise<void> {
  const { createProxyServer } = await import('http-proxy-3')
  const agent = new Agent({ keepAlive: true, maxFreeSockets: 1024 })
  const { hostname: host, port } = new URL(upstream)
  // http-proxy-3 would parse a target that is a string for each request.
  const proxy = createProxyServer({
    target: { protocol: 'http:', host, port: Number(port) },
    toProxy: true,
    prependPath: false,
    agent,
  })
  proxy.on('error', (_error, _req, res) => void res.destroy())
  listen((req, res) => proxy.web(req, res))
}

async function tollgate(file: string): Promise<void> {
  const { loadConfig } = await import('../../core/config/load.ts')
  const { Gateway } = await import('../../core/gateway.ts')
  const { NANO } = await import('../../core/money/credits.ts')
  const { createLog, Scrubber } = await import('../../core/lib/log.ts')
  const { testEnvironment } = await import('../environment.ts')
  const { checkChain } = await import('../../core/chain/check-chain.ts')
  const loaded = await loadConfig(file, process.env, checkChain)
  if (!loaded.config) throw new Error(JSON.stringify(loaded.problems))
  const scrubber = new Scrubber()
  const environment = testEnvironment(process.env, { scrubber, log: createLog(scrubber, 'info', process.stdout) })
  const gateway = await Gateway.start(environment, loaded)
  const wish = { type: 'famC', name: 'bench', credits: 100_000n * NANO, expiresAt: undefined }
  const keys = await Promise.all(Array.from({ length: CUSTOMERS }, () => gateway.keys.changes.create(wish)))
  process.once('SIGTERM', () => void gateway.stop().then(() => process.exit(0)))
  process.send?.({ port: gateway.port, secrets: keys.map(({ secret }) => secret), store: gateway.store.kind })
}

const DELTA = `data: {"id":"chatcmpl-0123456789","object":"chat.completion.chunk","created":1795258001,"model":"acme/famC-5.5","choices":[{"index":0,"delta":{"content":"a few words "},"logprobs":null,"finish_reason":null}],"usage":null}\n\n`
const FINISH = DELTA.replace('{"content":"a few words "}', '{}').replace(
  '"finish_reason":null',
  '"finish_reason":"stop"',
)
const USAGE = DELTA.replace(
  /"choices":\[.*\],"usage":null/,
  '"choices":[],"usage":{"prompt_tokens":200,"completion_tokens":60,"total_tokens":260}',
)
const REPLY = JSON.stringify({
  id: 'chatcmpl-0123456789',
  object: 'chat.completion',
  created: 1795258001,
  model: 'acme/famC-5.5',
  choices: [{ index: 0, message: { role: 'assistant', content: 'x'.repeat(700) }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 200, completion_tokens: 60, total_tokens: 260 },
})

/** The `user` in a body names the kind of reply. */
function provider(): void {
  listen((req, res) => {
    let body = ''
    req.setEncoding('latin1').on('data', chunk => (body += chunk))
    req.on('end', () => {
      const kind = /"(?:user|safety_identifier)":"(\w+)"/.exec(body)?.[1]
      if (kind === 'json') {
        res
          .writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(REPLY) })
          .end(REPLY)
        return
      }
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      if (kind === 'burst') {
        // Each event is a write of its own, as with providers.
        for (let event = 0; event < 18; event++) res.write(DELTA)
        res.write(FINISH)
        res.end(`${USAGE}data: [DONE]\n\n`)
        return
      }
      res.write(DELTA)
      const pace = setInterval(() => res.write(DELTA), kind === 'hold' ? 5000 : 20)
      const end = setTimeout(
        () => {
          clearInterval(pace)
          res.write(FINISH)
          res.end(`${USAGE}data: [DONE]\n\n`)
        },
        kind === 'hold' ? 600_000 : 1000,
      )
      res.on('close', () => {
        clearInterval(pace)
        clearTimeout(end)
      })
    })
  })
}

process.on('message', async () => {
  const { user, system } = process.cpuUsage()
  process.send?.({
    cpu: user + system,
    rss: process.memoryUsage.rss(),
    connections: await connections(),
  } satisfies Usage)
})
process.on('disconnect', () => process.exit(0))
if (role === 'bare') process.once('SIGTERM', () => process.exit(0))

if (role === 'bare') await bare(argument)
else if (role === 'tollgate') await tollgate(argument)
else provider()
