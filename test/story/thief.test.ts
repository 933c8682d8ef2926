import fc from 'fast-check'
import t from 'tap'
import { audit } from '../../core/ledger/audit.ts'
import { startGateway } from '../gateway.ts'
import { ScriptedUpstream } from '../upstream.ts'
import { ACCOUNTS, edit, type Models, teach, undeclared } from './thief-edit.ts'
import { customer, Provider, serve } from './thief.ts'

/** Number of customers: some in `npm test`, more in `npm run test:all`, and most in `npm run simulate`. */
const CASES = Number(process.env['CASES'] ?? 120)
/** Customers at once. Each gateway has a crowd. */
const CROWD = Math.min(CASES / 2, 250)
const SEED = Number(process.env['SEED'] ?? 20261128)

t.test(
  `no customer is charged less than the provider bills, or more than it could bill (SEED=${SEED})`,
  { timeout: 600_000 + CASES * 300 },
  async t => {
    const upstream = await ScriptedUpstream.start(t)
    // One gateway reads abandoned replies with much unknown cost. The other cancels all of them, has several accounts, each
    // with a prompt cache of its own, and lets the requests of a key wait.
    const gateways = [
      await startGateway(t, { upstream: upstream.url, edit }),
      await startGateway(t, {
        upstream: upstream.url,
        edit: file =>
          edit(file)
            .everyUpstream({ onDisconnect: 'cancel', accounts: ACCOUNTS })
            .everyKeyType({ limits: { concurrency: 2, queue: '10s' } })
            .change<Models>('keyTypes.famA.models', models => models.map(undeclared))
            .change<Models>('keyTypes.famC.models', models => models.map(undeclared)),
      }),
    ] as const
    teach(gateways[1])
    const provider = new Provider(upstream)
    const customersAtOnce = fc.array(customer, { minLength: CROWD, maxLength: CROWD })
    const crowds = fc.sample(customersAtOnce, { seed: SEED, numRuns: Math.ceil(CASES / CROWD) })
    for (const [nth, customers] of crowds.entries()) {
      const wrong = await serve(gateways[nth % 2 === 0 ? 0 : 1], provider, customers)
      if (wrong.length > 0) throw new Error(wrong.join('\n'))
    }
    t.pass(`${crowds.length * CROWD} customers`)
    // What `tollgate audit` and `tollgate audit --reprice` do.
    for (const { ledger } of gateways.map(({ gateway }) => gateway)) {
      await ledger.background.archiveAll()
      const { drifts, unversioned, repriced } = await audit(ledger, undefined, 'charges')
      t.same({ drifts, unversioned }, { drifts: [], unversioned: 0 }, `${repriced} charges are those of their prices`)
      t.ok(repriced > 0)
    }
  },
)
