/**
 * What Tollgate costs, as multiples of a bare Node proxy that forwards the same exchanges. Slices of all peers alternate,
 * so that whatever else the machine does falls on each of them; only ratios are worth comparing.
 *
 * npm run bench                                          the table
 * npm run bench -- --rows JSON --peers bare,tollgate     rows whose titles match, and some peers
 * npm run bench -- --peers tollgate,../other             another checkout beside this one
 * npm run bench -- --write                               the table and the picture of docs/performance.md
 * npm run bench -- waits                                 how long others wait while a large body passes
 * npm run bench -- admin                                 the calls of the admin area
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { benchAdmin } from './admin.ts'
import { type Answered, Load } from './load.ts'
import { type Peer, startFiles, startPeer, startProvider } from './peers.ts'
import { cellsOf, type Figures, isHeld, type Slices, writePage } from './report.ts'
import { type Row, rowsOf } from './rows.ts'
import { longestWaits } from './waits.ts'

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rows: { type: 'string', default: '' },
    peers: { type: 'string', default: 'bare,http-proxy-3,nginx,tollgate' },
    slices: { type: 'string', default: '15' },
    warm: { type: 'string', default: '40000' },
    keys: { type: 'string', default: '100' },
    connections: { type: 'string', default: '32' },
    streams: { type: 'string', default: '5000' },
    sizes: { type: 'string', default: '100,1000' },
    write: { type: 'boolean', default: false },
  },
})
const SLICES = Number(values.slices)
/** What a peer serves before it is measured. */
const WARM_UP = { requests: Number(values.warm), ms: 60_000 }
const SLICE_S = 1
/** What a peer does after its last reply belongs to its requests: three times `ledger.archiveEvery`. */
const AFTERWARDS_MS = 300
/** How long a process rests before its memory and its CPU time are measured, and while they are. */
const REST_MS = 10_000
/** Exchanges of a lone client in one slice of `first byte`. */
const LONE_COUNT = 100
/** Streams need this long to open and to become steady. */
const OPEN_S = 8

/** Starts the peers for one row and measures them. Each row has its own processes, since garbage of one would cost another. */
async function measure(row: Row, folder: string): Promise<Slices> {
  const provider = await (isWhole(row) ? startFiles(folder) : startProvider(folder))
  const upstream = `http://127.0.0.1:${provider.port}/${row.reply}`
  const started: Peer[] = [provider]
  try {
    for (const [index, name] of values.peers.split(',').entries()) {
      // Many keys with a large body each would fill the memory of wrk.
      const keys = Math.min(Number(values.keys), Math.ceil(1e8 / row.bodyBytes))
      started.push(await startPeer(name, { folder: join(folder, String(index)), upstream, keys }))
    }
    return await slicesOf(row, provider, started.slice(1), new Load(row, folder))
  } finally {
    for (const peer of started) await peer.stop()
  }
}

function isWhole({ reply }: Row): boolean {
  return reply === 'json' || reply.startsWith('sse')
}

async function slicesOf(row: Row, provider: Peer, peers: readonly Peer[], load: Load): Promise<Slices> {
  const slices = new Map<string, number[]>(peers.map(({ name }) => [name, []]))
  const note = (peer: Peer, figure: number): void => void slices.get(peer.name)?.push(figure)
  switch (row.measure) {
    case 'rest':
      await sleep(REST_MS)
      for (const peer of peers) {
        const before = peer.cpuUs
        await sleep(REST_MS)
        note(peer, row.unit === 'MB' ? peer.memoryMb : (peer.cpuUs - before) / REST_MS)
      }
      break
    case 'open':
    case 'events':
      for (const peer of peers) note(peer, await openStreams(row, peer, load))
      break
    default:
      for (const peer of peers) await warmUp(row, peer, load)
      for (let slice = 0; slice < SLICES; slice++) {
        // What the provider takes itself, which is not the peer's.
        const direct = row.measure === 'requests' ? 0 : await exchange(row, provider, load, `/${row.reply}`)
        for (const peer of slice % 2 === 0 ? peers : peers.toReversed())
          note(peer, (await exchange(row, peer, load)) - direct)
      }
  }
  return slices
}

/** V8 compiles and recompiles for about as long, on threads whose CPU time counts too. */
async function warmUp(row: Row, peer: Peer, load: Load): Promise<void> {
  if (row.measure === 'first byte') return void (await load.firstByte(peer, WARM_UP.requests / 10))
  const until = performance.now() + WARM_UP.ms
  let requests = 0
  while (requests < WARM_UP.requests && performance.now() < until)
    requests += (await load.run(peer, SLICE_S * 5)).requests
}

/** Runs one slice. Returns the figure of its exchanges, in microseconds. */
async function exchange({ measure }: Row, peer: Peer, load: Load, prefix?: string): Promise<number> {
  if (measure === 'first byte') return load.firstByte(peer, LONE_COUNT, prefix)
  const before = peer.cpuUs
  const answered = await load.run(peer, SLICE_S, prefix)
  await sleep(AFTERWARDS_MS)
  refuseFailures(peer, answered)
  const { requests, p50 } = answered
  return measure === 'latency' ? p50 : (peer.cpuUs - before) / requests
}

/** @throws Error if a request failed: its cost says nothing */
function refuseFailures({ name }: Peer, { requests, failed }: Answered): void {
  if (failed > 0) throw new Error(`${name} failed ${failed} requests; ${requests} ended`)
}

/** Opens the streams of a row. Returns the memory that the peer needs for them, or its CPU time of an event. */
async function openStreams({ measure, connections }: Row, peer: Peer, load: Load): Promise<number> {
  const clients = load.run(peer, OPEN_S + SLICES)
  await sleep(OPEN_S * 1000)
  const before = peer.cpuUs
  const began = performance.now()
  await sleep((SLICES * 1000) / 2)
  const events = (connections * (performance.now() - began)) / 20
  const figure = measure === 'open' ? peer.memoryMb : (peer.cpuUs - before) / events
  refuseFailures(peer, await clients)
  return figure
}

/** Measures the rows in turn, and prints each. @returns whether no figure exceeds its limit */
async function table(): Promise<boolean> {
  console.log(`Node ${process.version}, ${cpus().length} × ${cpus()[0]?.model.trim()}`)
  const list = (text: string): number[] => text.split(',').filter(Boolean).map(Number)
  const shape = { connections: Number(values.connections), streams: Number(values.streams), sizes: list(values.sizes) }
  const rows = rowsOf(shape).filter(({ title }) => title.includes(values.rows))
  const figures: Figures[] = []
  for (const row of rows) {
    const folder = mkdtempSync(join(tmpdir(), 'tollgate-bench-'))
    const measured = { row, slices: await measure(row, folder) }
    figures.push(measured)
    console.log(cellsOf(measured).join(' | '))
    if (process.env['PROFILE'] === undefined) rmSync(folder, { recursive: true, force: true })
    else console.error(`its files are in ${folder}`)
  }
  if (values.write) writePage(figures)
  return figures.every(isHeld)
}

const parts: Readonly<Record<string, () => Promise<boolean>>> = { table, waits: longestWaits, admin: benchAdmin }
const part = parts[positionals[0] ?? 'table']
if (!part) throw new Error(`there is no part ${positionals[0]}; known: ${Object.keys(parts).join(', ')}`)
process.exitCode = (await part()) ? 0 : 1
