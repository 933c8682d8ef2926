/** A gateway that may open few files. */
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import http from 'node:http'
import t from 'tap'
import { connectionsMax, whyFewerConnections } from '../../core/client/memory.ts'
import { isOwnFault } from '../../core/upstream/connection/send.ts'
import { upstreamEnv } from '../gateway.ts'
import { Place } from '../process.ts'
import { BODY, CHAT, REPLY } from '../pooled.ts'
import { json, ScriptedUpstream } from '../upstream.ts'

const skip = !existsSync('/usr/bin/prlimit') && 'no prlimit'

t.test('each connection may need two file descriptors, and some are left for the rest', async t => {
  t.equal(connectionsMax(1000, Infinity), 1000)
  t.equal(connectionsMax(1000, 1024), 472)
  t.match(whyFewerConnections(1000, 1024), '1,024 open files are too few for 1,000; raise `ulimit -n` or LimitNOFILE')
  t.equal(whyFewerConnections(400, 1024), undefined)
})

t.test("a failure to connect is the gateway's own only if it lacks something of its own", async t => {
  const failed = (code: string): Error => Object.assign(new Error(code), { code })
  const both = (...codes: string[]): Error =>
    Object.assign(new AggregateError(codes.map(failed)), { code: codes[0] ?? '' })
  t.ok(isOwnFault(failed('EMFILE')))
  t.notOk(isOwnFault(failed('ECONNREFUSED')))
  t.ok(isOwnFault(both('EMFILE', 'EMFILE')))
  t.notOk(isOwnFault(both('EADDRNOTAVAIL', 'ECONNREFUSED')), 'a machine without IPv6')
})

t.test('a gateway without free file descriptors answers 503, and its accounts stay in use', { skip }, async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => json(res, REPLY)
  const place = new Place(t, file => file, upstreamEnv(upstream.url))
  const running = await place.startProcess(t)
  const { key } = await place.key('famC', '1')
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 })
  t.teardown(() => agent.destroy())
  const ask = (method: string, path: string, body = ''): Promise<{ status: number | undefined; text: string }> =>
    new Promise((resolve, reject) => {
      const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
      const request = http.request(running.url + path, { agent, method, headers }, res => {
        let text = ''
        res.on('data', (part: Buffer) => (text += part.toString()))
        res.on('end', () => resolve({ status: res.statusCode, text }))
      })
      request.on('error', reject).end(body)
    })
  t.match(await ask('GET', '/health'), { status: 200 })
  const { pid } = running.child
  const used = new Set(readdirSync(`/proc/${pid}/fd`).map(Number))
  let free = 0
  while (used.has(free)) free++
  const limit = (files: number): unknown =>
    execFileSync('/usr/bin/prlimit', ['--pid', String(pid), `--nofile=${files}:`])
  limit(free)
  for (let times = 0; times < 3; times++)
    t.match(await ask('POST', CHAT, JSON.stringify(BODY)), { status: 503, text: /unavailable/ })
  t.equal(upstream.requests.length, 0)
  t.notMatch((await place.run('upstreams', 'list', '--json')).out, /EMFILE|"out"/)
  limit(1024)
  t.match(await ask('POST', CHAT, JSON.stringify(BODY)), { status: 200 })
})
