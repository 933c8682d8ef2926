/** `tollgate start`: runs the gateway in the foreground until a signal. */
import { checkChain } from '../chain/check-chain.ts'
import { findPlugins } from '../chain/plugins.ts'
import { simulatedNames } from '../config/upstreams.ts'
import { Gateway } from '../gateway.ts'
import type { Config } from '../config/config.ts'
import { NANO } from '../money/credits.ts'
import { budgetOf, connectionsMax, whyFewerConnections } from '../client/memory.ts'
import { fileOption, loadOrExit } from './shared.ts'
import { isWorker, work, Workers } from './workers.ts'
import type { Environment } from '../lib/environment.ts'

/** Credits of each key that the first start creates. */
const FIRST_CREDITS = 5n

/**
 * A terminal's Ctrl-C may arrive twice: from the terminal and from the parent process. Within this time, in
 * milliseconds, they count as one.
 */
const ECHO_MS = 1000

/** One gateway, or the host of several. */
type Running = Pick<Gateway, 'config' | 'store' | 'records' | 'keys' | 'port' | 'load' | 'stop'> & {
  readonly sidePorts?: Gateway['sidePorts']
  readonly reportUntaken?: Gateway['reportUntaken']
  reload(): Promise<unknown>
}

/** Starts the gateway, or its workers, and stops on a signal. */
export async function start(environment: Environment, file: string): Promise<void> {
  if (isWorker()) return work(environment, file)
  const loaded = await loadOrExit(environment, file, checkChain)
  const gateway =
    loaded.config.workers > 1 ? await Workers.start(environment, loaded) : await Gateway.start(environment, loaded)
  // This comes first: a reader of the next lines may signal the gateway at once.
  stopOnSignals(environment, gateway)
  // It serves already.
  await greet(environment, gateway).catch((cause: unknown) =>
    environment.log.warn({ err: cause }, 'cannot print how to use the gateway'),
  )
}

function stopOnSignals(environment: Environment, gateway: Running): void {
  environment.onSignal('SIGHUP', () => void gateway.reload())
  let since: number | undefined
  const stop = (): void => {
    if (since !== undefined) {
      if (environment.now() - since <= ECHO_MS) return
      gateway.reportUntaken?.()
      void environment.exit(1)
      return
    }
    since = environment.now()
    environment.print(`Draining ${gateway.load}. A second signal stops at once.`)
    gateway.stop().then(
      () => environment.exit(0),
      (cause: unknown) => {
        environment.complain(`The gateway did not stop cleanly: ${(cause as Error).message}`)
        return environment.exit(1)
      },
    )
  }
  environment.onSignal('SIGTERM', stop)
  environment.onSignal('SIGINT', stop)
}

/** Prints what runs, and commands to try. */
async function greet(environment: Environment, gateway: Running): Promise<void> {
  const { config } = gateway
  const types = [...config.keyTypes.values()]
    .map(({ name, models }) => `${name} (${models.size} ${models.size === 1 ? 'model' : 'models'})`)
    .join(', ')
  const simulated = simulatedNames(config)
  const host = config.listen.host === '0.0.0.0' || config.listen.host === '::' ? 'localhost' : config.listen.host
  const base = `http://${host}:${gateway.port}`
  environment.print(`Tollgate listens on ${base}${config.workers > 1 ? ` with ${config.workers} workers` : ''}`)
  environment.print(`  store:     ${gateway.store.description}`)
  environment.print(`  records:   ${gateway.records.description}`)
  environment.print(`  key types: ${types}`)
  const { connections } = config.limits
  const most = connectionsMax(connections, environment.openFiles())
  const why = whyFewerConnections(connections, environment.openFiles())
  const few = why === undefined ? '' : ` (${why})`
  const memory = Math.floor(budgetOf(config.limits.memoryBytes, config.workers, environment.memoryBytes) / 2 ** 20)
  environment.print(
    `  limits:    ${count(most)} connections${few}; ${count(memory)} MiB for requests and replies${config.workers > 1 ? '; in each worker' : ''}`,
  )
  if (simulated.length > 0) {
    environment.print(
      `  upstreams: a SIMULATED PROVIDER answers for ${simulated.join(', ')}, which ${simulated.length === 1 ? 'has' : 'have'} no URL and key`,
    )
  }
  const pages = await pagesOf(gateway, base)
  const option = fileOption(config.file)
  if (await gateway.keys.changes.any()) {
    for (const page of pages) environment.print(`\n${page}`)
    environment.print(`\nCustomers call ${base} with their keys. \`npx tollgate keys list${option}\` prints the keys.`)
  } else if (simulated.length > 0) {
    await offerFirstKeys(environment, gateway, base, pages)
  } else {
    const [type] = config.keyTypes.keys()
    environment.print(
      `\nThere are no keys yet. Create one:\n  npx tollgate keys create --type ${type} --credits 25${option}`,
    )
  }
}

/** Describes the pages for people that the stages serve, each with its address. */
async function pagesOf({ config, sidePorts }: Running, base: string): Promise<string[]> {
  const { plugins } = await findPlugins(config.plugins)
  return config.chain.flatMap(({ plugin: name, options }) => {
    const { page, listens = false } = plugins.get(name) ?? {}
    if (page === undefined) return []
    const { listen } = options as { listen?: { host: string; port: number } }
    const own = `http://${listen?.host}:${sidePorts?.get(name) ?? listen?.port}`
    return [`${page.words} ${listens ? own : base}${page.path}`]
  })
}

function count(number: number): string {
  return number.toLocaleString('en')
}

/** Creates one key per key type with a simulated provider, and prints three commands to try them. */
async function offerFirstKeys(
  environment: Environment,
  gateway: Running,
  base: string,
  pages: readonly string[],
): Promise<void> {
  const { config } = gateway
  for (const page of pages) environment.print(`\n${page}`)
  const secrets = new Map<string, string>()
  environment.print(
    '\nThis is the first start. Here is one key of each key type with a simulated provider; they are shown only once.',
  )
  for (const { name, upstreams } of config.keyTypes.values()) {
    if (!upstreams.every(({ simulated }) => simulated)) continue
    const wish = { type: name, name: 'first start', credits: FIRST_CREDITS * NANO, expiresAt: undefined }
    const { secret } = await gateway.keys.changes.create(wish)
    secrets.set(name, secret)
    environment.print(`  ${name.padEnd(8)} ${secret}`)
  }
  environment.print('\nTry it:')
  for (const line of examples(config, secrets, base)) environment.print(`\n${line}`)
}

/** Returns three commands that work when pasted: a JSON reply, a stream, and the balance after them. */
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
  return [
    call(first, false),
    call(last, true),
    `curl ${base}/api/v1/keys/lookup/balance -H 'authorization: Bearer ${secrets.get(last.name)}'`,
  ]
}
