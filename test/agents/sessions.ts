/**
 * Sessions of the real coding agents that change the family at each of twenty turns, with tools, reasoning, a picture and,
 * for Codex, a compaction. The providers refuse what providers refuse, and reasoning that they have not signed.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { NANO, parseDecimal } from '../../core/money/credits.ts'
import type { Price } from '../../core/money/price.ts'
import { type Call, families, PNG, providers } from '../session-provider.ts'
import { type Received } from '../upstream.ts'
import { AGENTS, install, PATIENCE, run } from './agent.ts'
import { scene } from '../scene.ts'

const TURNS = 20
/** The turn with a picture. */
const PICTURED = 4
const MODELS = ['a', 'b', 'c'] as const

const TOOL = /"name":"(exec_command|shell_command|shell|Bash)"/

/** A command at the first request of each turn. */
function callOf(turn: number, folder: string, { body }: Received): Call | undefined {
  const name = TOOL.exec(body)?.[1]
  const asked = body.lastIndexOf(`turn ${turn}:`)
  if (name === undefined || asked === -1 || body.includes('Summarise this conversation')) return undefined
  if (body.indexOf(`done ${turn}.`, asked) !== -1) return undefined
  // One agent is shown a picture by its own tool, the other one by its user.
  if (turn === PICTURED && body.includes('"name":"Read"'))
    return body.includes(PNG) ? undefined : { name: 'Read', input: { file_path: join(folder, 'dot.png') } }
  const line = `echo "done ${turn}."`
  const inputs: Readonly<Record<string, object>> = {
    exec_command: { cmd: line },
    shell_command: { command: line },
    shell: { command: ['bash', '-lc', line] },
    Bash: { command: line, description: 'Prints.' },
  }
  return { name, input: inputs[name] as object }
}

install()

for (const agent of AGENTS)
  t.test(
    `a session of ${agent.name} changes the family at each of twenty turns`,
    { timeout: TURNS * PATIENCE },
    async t => {
      const { g, upstream } = await scene(t, families('large'))
      const price = g.gateway.config.keyTypes.get('famC')?.models.get('a')?.price as Price
      let turn = 0
      let compactions = 0
      let pictures = 0
      const folder = mkdtempSync(join(tmpdir(), 'tollgate-agent-'))
      t.teardown(() => rmSync(folder, { recursive: true, force: true }))
      writeFileSync(join(folder, 'dot.png'), Buffer.from(PNG, 'base64'))
      const made = providers(
        upstream,
        price,
        received => {
          if (received.body.includes('Summarise this conversation')) compactions++
          // The result of a command is escaped in the history.
          return callOf(turn, folder, received)
        },
        // Once, the conversation seems to fill the window.
        (_received, count) => (turn === TURNS / 2 && compactions === 0 ? 240_000 : 1000 + count),
      )
      const key = await g.key('famC', 1000n)
      for (; turn < TURNS; turn++) {
        const model = MODELS[turn % MODELS.length] as string
        const task = `turn ${turn}: print the words with a command.`
        const { file, args, env } = agent.command({
          g,
          key,
          model,
          folder,
          task,
          continues: turn > 0,
          pictured: turn === PICTURED,
        })
        const { code, said } = await run(file, args, folder, env)
        t.equal(code, 0, `turn ${turn}: ${said.slice(-1500)}`)
        t.match(said, /said n\d+/, `turn ${turn}`)
        if (turn === PICTURED) pictures = upstream.requests.filter(({ body }) => body.includes(PNG)).length
      }
      t.ok(pictures > 0, 'a provider was shown the picture')
      t.equal(made.refused, 0, 'no provider got what is not its own')
      if (agent.speaks === 'responses') t.equal(compactions, 1, 'the conversation was compacted once')
      const entries = await g.settled(key)
      t.ok(entries.length >= 2 * TURNS, `${entries.length} requests`)
      t.ok(entries.every(({ status }) => status === 'ok'))
      const { balance } = await g.balance(key)
      t.equal(1000n * NANO - (parseDecimal(String(balance)) ?? 0n), made.billed, 'the charges equal the bills')
    },
  )
