import fc from 'fast-check'
import t from 'tap'
import { startGateway } from '../gateway.ts'
import { ScriptedUpstream } from '../upstream.ts'
import { customer, Provider, RATE, serve } from './thief.ts'

/** Milliseconds for which customers come; `npm run simulate` lets them come for longer. */
const TIME_MS = Number(process.env['THIEF_MS'] ?? 20_000)
/** Customers who come at once. */
const CROWD = 60
const SEED = Number(process.env['SEED'] ?? 20261124)

t.test(`no customer is charged less than the provider bills, or more than it could bill (SEED=${SEED})`, { timeout: TIME_MS + 60_000 }, async t => {
  const upstream = await ScriptedUpstream.start(t)
  const edit = (yaml: string): string =>
    yaml
      .replace(/(id: acme\/fam[AC]-[^,]*, price: )\w+/g, `$1medium, overhead: 0, outputRate: ${RATE}`)
      .replace(/(famC-5\.6-terra,.*reasoning: )hidden/, '$1none')
  // One gateway reads on for those who leave where much is unknown, the other cancels for all.
  const gateways = [
    await startGateway(t, { upstream: upstream.url, edit }),
    await startGateway(t, { upstream: upstream.url, edit: yaml => edit(yaml).replaceAll(/^( {4}url: !env FAM)/gm, '    onDisconnect: cancel\n$1') }),
  ] as const
  const provider = new Provider(upstream)
  const crowd = fc.array(customer, { minLength: CROWD, maxLength: CROWD })
  const until = Date.now() + TIME_MS
  let served = 0
  for (const customers of fc.sample(crowd, { seed: SEED, numRuns: 10_000 })) {
    if (Date.now() > until) break
    const wrong = await serve(gateways[served % (2 * CROWD) === 0 ? 0 : 1], provider, customers)
    served += customers.length
    if (wrong.length > 0) return t.fail(wrong.join('\n'))
  }
  t.ok(served >= CROWD, `${served} customers`)
})
