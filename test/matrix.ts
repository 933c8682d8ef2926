/**
 * Runs the stories of the ledger on PostgreSQL, and on a cluster of three Redis servers. The tiers run them on SQLite and on
 * one Redis.
 *
 * npm run matrix            all stories
 * npm run matrix -- money   these stories
 */
import { spawn } from 'node:child_process'
import { globSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { findServer } from '../core/store/managed.ts'
import { freePort } from './ports.ts'
import { PostgresServer } from './postgres.ts'

const STORIES = ['money', 'budget', 'charges', 'retries', 'lookups', 'usage', 'leaving']
/** Stories with a Redis of their own, which they stop, kill or empty. */
const WITH_OWN_REDIS = ['crash', 'store', 'rebuild', 'gateways', 'failing-commands', 'stopping', 'workers']

const asked = process.argv.slice(2)
const unknown = asked.find(story => ![...STORIES, ...WITH_OWN_REDIS].includes(story))
if (unknown !== undefined) {
  console.error(`There is no story ${unknown}. There are: ${[...STORIES, ...WITH_OWN_REDIS].join(', ')}.`)
  process.exit(2)
}
const isAsked = (story: string): boolean => asked.length === 0 || asked.includes(story)

const SLOTS = 16_384

/** Starts a cluster of three servers. */
async function startCluster(folder: string): Promise<{ url: string; stop(): void }> {
  const ports = [await freePort(), await freePort(), await freePort()]
  const servers = ports.map(port => {
    mkdirSync(join(folder, String(port)))
    const args = ['--port', String(port), '--cluster-enabled', 'yes', '--appendonly', 'yes', '--save', '']
    return spawn(findServer(process.env) as string, [...args, '--dir', join(folder, String(port))], { stdio: 'ignore' })
  })
  const clients = ports.map(port => new Redis(port, { retryStrategy: () => 50, maxRetriesPerRequest: 100 }))
  const third = Math.ceil(SLOTS / clients.length)
  for (const [index, client] of clients.entries()) {
    const [from, to] = [index * third, Math.min((index + 1) * third, SLOTS) - 1]
    await client.call('CLUSTER', 'ADDSLOTSRANGE', String(from), String(to))
    if (index > 0) await clients[0]?.call('CLUSTER', 'MEET', '127.0.0.1', String(ports[index]))
  }
  for (const client of clients)
    while (!/cluster_state:ok[^]*cluster_known_nodes:3/.test(String(await client.call('CLUSTER', 'INFO'))))
      await new Promise(resolve => setTimeout(resolve, 50))
  for (const client of clients) client.disconnect()
  return {
    url: `redis+cluster://${ports.map(port => `127.0.0.1:${port}`).join(',')}`,
    stop: () => servers.forEach(server => server.kill()),
  }
}

function run(title: string, stories: readonly string[], env: Record<string, string>): Promise<boolean> {
  const chosen = stories.filter(isAsked)
  if (chosen.length === 0) return Promise.resolve(true)
  console.log(`\n${title}: ${chosen.join(', ')}`)
  const files = chosen.flatMap(story => globSync(`test/story/${story}.{test,all}.ts`))
  const child = spawn(process.execPath, ['test/run.ts', ...files], {
    stdio: 'inherit',
    env: { ...process.env, ...env },
  })
  return new Promise(resolve => child.on('exit', code => resolve(code === 0)))
}

const folder = mkdtempSync(join(tmpdir(), 'tollgate-matrix-'))
const postgres = await PostgresServer.start()
const cluster = await startCluster(folder)
const onPostgres = { TEST_POSTGRES: postgres.url, TEST_RECORDS: 'postgres' }
const onCluster = { TEST_REDIS: cluster.url }
const results = [
  await run('PostgreSQL, one Redis', [...STORIES, ...WITH_OWN_REDIS], onPostgres),
  await run('SQLite, a cluster of three', STORIES, onCluster),
  await run('PostgreSQL, a cluster of three', STORIES, { ...onPostgres, ...onCluster }),
]
cluster.stop()
await postgres.stop()
rmSync(folder, { recursive: true, force: true })
process.exit(results.every(Boolean) ? 0 : 1)
