/** The gateways of the random customers. */
import type { TestGateway } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import { CHEAPER, OTHERS, pricesTimes, RATE } from './thief.ts'

/** The models of a key type. */
export type Models = readonly Readonly<Record<string, unknown>>[]

const alike = (model: Models[number]): Models[number] => ({ ...model, price: 'medium', overhead: 0, outputRate: RATE })

/** All models at one price but those that answer for others, and as fast as the provider of this test makes tokens. */
export const edit: Edit = file =>
  file
    // Nothing here waits for what runs in the background.
    .setAll('ledger', { reapEvery: '30s', archiveEvery: '1s' })
    // The clock of `fetch` for idle connections is late on a busy machine. It would use one that the gateway closes.
    .set('limits.idleConnection', '24h')
    // A request waits while the process compares charges.
    .set('limits.headersTime', '10m')
    .set('prices.medium', pricesTimes(1))
    .set('prices.cheap', pricesTimes(1 / Number(CHEAPER)))
    .set('prices.dear', pricesTimes(2))
    .change<Models>('keyTypes.famA.models', models => models.map(alike))
    .change<Models>('keyTypes.famC.models', models => models.map(alike))
    .model('famC', 'acme/famC-5.6-terra', { reasoning: 'none' })
    .model('famA', 'acme/famA-large-5', { price: 'large' })
    .model('famA', OTHERS.famA.cheap, { price: 'cheap' })
    .model('famA', OTHERS.famA.dear, { price: 'dear' })
    .model('famC', OTHERS.famC.cheap, { price: 'cheap' })
    .model('famC', OTHERS.famC.dear, { price: 'dear' })

/** What the upstreams add to a prompt is not in the file, and keys pretend that it is much. */
export const undeclared = ({ overhead: _overhead, ...model }: Models[number]): Models[number] => model

/** Lets a gateway learn that upstreams add much to prompts. */
export function teach({ gateway: { config, meter } }: TestGateway): void {
  for (const { name, models } of config.keyTypes.values())
    for (const { sends } of models.values())
      for (let nth = 0; nth < 25; nth++) {
        const key = { id: `${name} ${nth}`, createdAt: 0, settled: 1_000_000_000n }
        meter.learned.learn(`${name} ${sends}`, key, { overhead: 19_000 }, Date.now())
      }
}

/** Accounts with a prompt cache each. */
export const ACCOUNTS = ['a', 'b', 'c'].map(name => ({ name, key: `${name}-secret-0123456789` }))
