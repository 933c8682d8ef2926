/** Clients of a peer: wrk for throughput and open streams, one of Node for the time to the first byte. */
import { spawn } from 'node:child_process'
import { text } from 'node:stream/consumers'
import { Agent, request } from 'node:http'
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { ASIDE, MODEL, type Peer } from './peers.ts'
import { median } from './report.ts'
import { requestOf } from './replies.ts'
import type { Row } from './rows.ts'

const LUA = fileURLToPath(new URL('load.lua', import.meta.url))
const PATH = '/v1/chat/completions'

/** What wrk has seen. */
export interface Answered {
  readonly requests: number
  /** Requests that were not answered with 200, or not to the end. */
  readonly failed: number
  /** Median time of a reply in microseconds. */
  readonly p50: number
}

/** The clients of one row. */
export class Load {
  readonly #row: Row
  readonly #body: string
  readonly #bodyFile: string

  /** @param folder for the body, which wrk reads from a file */
  constructor(row: Row, folder: string) {
    this.#row = row
    this.#body = requestOf(MODEL, row.reply !== 'json', row.bodyBytes)
    this.#bodyFile = `${folder}/body`
    writeFileSync(this.#bodyFile, this.#body)
  }

  /** Lets every client send one request after another. `prefix` is the folder of the provider, if it is asked itself. */
  async run(peer: Peer, seconds: number, prefix = ''): Promise<Answered> {
    const { connections } = this.#row
    const headers = peer.headers.flatMap(header => ['-H', header])
    const options = ['-t', '1', '-c', String(connections), '-d', `${seconds}s`, '--timeout', '60s', ...headers]
    const url = `http://127.0.0.1:${peer.port}${prefix}${PATH}`
    const argv = ['-c', ASIDE, 'wrk', ...options, '-s', LUA, url, '--', this.#bodyFile, peer.keysFile]
    const wrk = spawn('taskset', argv, { stdio: ['ignore', 'pipe', 'inherit'] })
    const printed = await text(wrk.stdout)
    const answered = JSON.parse(/^\{.*\}$/m.exec(printed)?.[0] ?? 'null') as Answered | null
    if (!answered) throw new Error(`wrk failed: ${printed}`)
    return answered
  }

  /** Returns the median time to the first byte of a lone client's replies, in microseconds. */
  async firstByte(peer: Peer, count: number, prefix = ''): Promise<number> {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const times: number[] = []
    while (times.length < count) times.push(await this.#askOnce(peer, agent, prefix + PATH))
    agent.destroy()
    return median(times)
  }

  #askOnce(peer: Peer, agent: Agent, path: string): Promise<number> {
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${peer.secret}` }
    const { promise, resolve, reject } = Promise.withResolvers<number>()
    const began = performance.now()
    const req = request({ agent, port: peer.port, host: '127.0.0.1', path, method: 'POST', headers }, res => {
      let us = 0
      res.once('data', () => (us = (performance.now() - began) * 1000))
      res.on('end', () => (res.statusCode === 200 ? resolve(us) : reject(new Error(`${peer.name} answered ${res.statusCode}`)))) // prettier-ignore
    })
    req.on('error', reject)
    req.end(this.#body)
    return promise
  }
}
