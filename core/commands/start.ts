/** `tollgate start`: the gateway in the foreground, until a signal. */
import { Gateway, simulatedNames } from '../gateway.ts'
import type { Config } from '../config/config.ts'
import type { Loaded } from '../config/load.ts'
import { NANO } from '../money/credits.ts'
import { budgetOf, connectionsMax } from '../exchange/memory.ts'
import { complainAbout, quoted, loadOrExit, type Shell } from './shell.ts'
import { isWorker, work, Workers } from './workers.ts'

/** Credits of a key that the first start makes. */
const FIRST_CREDITS = 5n

/** A terminal's Ctrl-C arrives once from the terminal and once from whoever started us; the echo is no second wish. */
const ECHO_MS = 1000

/** One gateway, or several with their host. */
type Running = Pick<Gateway, 'config' | 'store' | 'keys' | 'port' | 'load' | 'stop'> & { reload(): Promise<unknown> }

export async function start(shell: Shell, file: string): Promise<void> {
  const reject = (loaded: Loaded): void => complainAbout(shell, loaded)
  if (isWorker()) return work(shell, { ...shell, file, reject })
  const loaded = await loadOrExit(shell, file)
  const surround = { ...shell, file: loaded.config.file, reject }
  const gateway = loaded.config.workers > 1 ? await Workers.start(surround, loaded) : await Gateway.start(surround, loaded)
  // Before anything is printed: whoever reads that it listens may signal it at once.
  stopOnSignals(shell, gateway)
  await greet(shell, gateway)
}

function stopOnSignals(shell: Shell, gateway: Running): void {
  shell.onSignal('SIGHUP', () => void gateway.reload())
  let since: number | undefined
  const stop = (): void => {
    if (since !== undefined) {
      if (shell.now() - since > ECHO_MS) void shell.exit(1)
      return
    }
    since = shell.now()
    shell.print(`Draining ${gateway.load}; a second signal stops at once.`)
    gateway.stop().then(
      () => shell.exit(0),
      (cause: unknown) => {
        shell.complain(`The end was not clean: ${(cause as Error).message}`)
        return shell.exit(1)
      },
    )
  }
  shell.onSignal('SIGTERM', stop)
  shell.onSignal('SIGINT', stop)
}

/** Says in a few lines what runs, and hands the newcomer something to paste. */
async function greet(shell: Shell, gateway: Running): Promise<void> {
  const { config } = gateway
  const types = [...config.keyTypes.values()].map(({ name, models }) => `${name} (${models.size} models)`).join(', ')
  const simulated = simulatedNames(config)
  const host = config.listen.host === '0.0.0.0' || config.listen.host === '::' ? 'localhost' : config.listen.host
  const base = `http://${host}:${gateway.port}`
  shell.print(`Tollgate listens on ${base}${config.workers > 1 ? ` with ${config.workers} workers` : ''}`)
  shell.print(`  store:     ${gateway.store.description}`)
  shell.print(`  key types: ${types}`)
  const most = connectionsMax(config.limits.connections)
  const few = most < config.limits.connections ? `, not ${count(config.limits.connections)}, as the heap has no room for more` : ''
  const memory = Math.floor(budgetOf(config.limits.memory, config.workers) / 2 ** 20)
  shell.print(`  limits:    ${count(most)} connections${few}; ${count(memory)} MiB for requests and replies${config.workers > 1 ? '; in each worker' : ''}`)
  if (simulated.length > 0) {
    shell.print(`  upstreams: a SIMULATED PROVIDER answers for ${simulated.join(', ')}: no URL and key are set for ${simulated.length === 1 ? 'it' : 'them'}`)
  }
  // The embedded store forgets by its nature.
  const lost = gateway.store.kind === 'embedded' ? undefined : await gateway.keys.lost()
  if (lost !== undefined) {
    shell.print(`\nThe store is EMPTY, and ${lost} tells of keys that were made. Stop, and run this with your last export behind it:`)
    shell.print(`  npx tollgate -c ${quoted(config.file)} rebuild --from ${quoted(lost)}`)
  } else if (simulated.length > 0) await offerFirstKeys(shell, gateway, config, base)
}

function count(number: number): string {
  return number.toLocaleString('en')
}

/** With an empty store and a simulated provider: one key of each type that it serves, and three lines to try them. */
async function offerFirstKeys(shell: Shell, gateway: Running, config: Config, base: string): Promise<void> {
  for await (const _key of gateway.keys.all()) return
  const secrets = new Map<string, string>()
  shell.print('\nThis is the first start: here is a key of each type that the simulated provider answers for, shown once.')
  for (const { name, upstream } of config.keyTypes.values()) {
    if (upstream.url !== undefined) continue
    const wish = { type: name, name: 'first start', credits: FIRST_CREDITS * NANO, expiresAt: undefined }
    const { secret } = await gateway.keys.create(wish)
    secrets.set(name, secret)
    shell.print(`  ${name.padEnd(8)} ${secret}`)
  }
  shell.print('\nTry it:')
  for (const line of examples(config, secrets, base)) shell.print(`\n${line}`)
}

/** Three lines that work when pasted: a JSON reply, a stream, and the balance after them. */
function examples(config: Config, secrets: ReadonlyMap<string, string>, base: string): string[] {
  const types = [...config.keyTypes.values()].filter(({ name }) => secrets.has(name))
  const [first] = types
  if (!first) return []
  const last = types.at(-1) ?? first
  const call = (type: typeof first, stream: boolean): string => {
    const [format] = type.formats
    const path = format?.path ?? ''
    const said = path.endsWith('/responses') ? { input: 'Hello' } : { messages: [{ role: 'user', content: 'Hello' }] }
    const body = { model: type.default.id, max_tokens: 64, ...said, ...(stream && { stream }) }
    const { max_tokens: limit, ...rest } = body
    const sent = JSON.stringify(path.endsWith('/responses') ? { ...rest, max_output_tokens: limit } : body)
    return `curl ${stream ? '-N ' : ''}${base}${path} -H 'authorization: Bearer ${secrets.get(type.name)}' -H 'content-type: application/json' -d '${sent}'`
  }
  return [call(first, false), call(last, true), `curl ${base}/api/v1/keys/lookup/balance -H 'authorization: Bearer ${secrets.get(last.name)}'`]
}
