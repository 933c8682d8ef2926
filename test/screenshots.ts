/**
 * Renews the screenshots in docs/images: `npm run screenshots`, or `npm run screenshots -- admin-keys` for some of them. A
 * gateway with the simulated provider gets keys, codes and thirty days of made-up usage. IMAGES names another folder.
 */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { timedId } from '../core/lib/ids.ts'
import { newToken } from '../core/operator/token-view.ts'
import { NANO } from '../core/money/credits.ts'
import { chargeAll, type Price } from '../core/money/price.ts'
import type { EndedEntry } from '../core/records/entry.ts'
import { DESKTOP, type Look, openPage, PHONE, stopBrowser } from './browser.ts'
import { startStandalone } from './standalone.ts'

const IMAGES = process.env['IMAGES'] ?? fileURLToPath(new URL('../docs/images/', import.meta.url))
const asked = process.argv.slice(2)
const isAsked = (name: string): boolean => asked.length === 0 || asked.includes(name)
const DAY_MS = 86_400_000
const MODELS = ['acme/famC-5.6-sol', 'acme/famC-5.5', 'acme/famC-5.6-luna']

const { gateway, stop } = await startStandalone()

try {
  mkdirSync(IMAGES, { recursive: true })
  const secret = await fill()
  const customers = `http://127.0.0.1:${gateway.port}/`
  const operators = `http://127.0.0.1:${gateway.sidePorts.get('admin')}/admin`
  await customer('key-page', customers, secret, 'usage', DESKTOP)
  await customer('key-page-setup', customers, secret, 'setup', { ...DESKTOP, dark: true })
  await customer('key-page-statement', customers, secret, 'statement', DESKTOP)
  await customer('key-page-phone', customers, secret, 'usage', PHONE)
  const token = await tokenOf()
  await operator('admin-overview', operators, token, 'overview', DESKTOP)
  await operator('admin-requests', operators, token, 'requests', DESKTOP)
  await operator('admin-keys', operators, token, 'keys/famC', DESKTOP)
  const key = await gateway.keys.refind(secret)
  await operator('admin-key', operators, token, `key/${key?.id}`, { ...DESKTOP, dark: true })
  const planned = await withPlan()
  await customer('key-page-plan', customers, planned.secret, 'statement', DESKTOP)
  await operator('admin-key-plan', operators, token, `key/${planned.id}`, DESKTOP)
  await operator('admin-editor-phone', operators, token, 'keys/editor', PHONE)
} finally {
  await stopBrowser()
  await stop()
}

/** Makes keys with usage. @returns the secret of the one that is shown */
async function fill(): Promise<string> {
  const { keys, ledger, records } = gateway
  const wish = { type: 'famC', name: 'Ann, order 1042', batch: 'autumn', credits: 300n * NANO, expiresAt: undefined }
  const { key, secret } = await keys.changes.create({ ...wish, expiresAt: Date.now() + 35 * DAY_MS })
  for (const [type, name] of [
    ['famC', 'Bob'],
    ['famC', 'Carol’s build server'],
    ['editor', 'Dan'],
    ['famA', 'Eve'],
  ] as const)
    await keys.changes.createMany({ ...wish, type, name, credits: 25n * NANO }, 3)
  let ordinal = 0
  const entries: EndedEntry[] = []
  const models = gateway.config.keyTypes.get('famC')?.models
  for (let ago = 29; ago >= 0; ago--) {
    for (const [at, model] of MODELS.entries()) {
      const requests = 3 + ((ago * 7 + at * 5) % 9)
      for (let n = 0; n < requests; n++) {
        const ms = Date.now() - ago * DAY_MS - n * 600_000
        const output = 300 + ((ago + n) % 5) * 210
        const usage = { input: 61_800, cacheRead: 40_900, cacheWrite5m: 0, cacheWrite1h: 0, output, reasoning: 120 }
        const entry = models?.get(model)
        const price = entry?.price as Price
        const charge = chargeAll([{ usage, price, conditions: undefined }])
        const id = timedId(ms)
        const request = {
          id,
          at: ms,
          account: key.id,
          type: 'famC',
          model,
          upstream: 'famC/1',
          status: 'ok',
          code: '',
        } as const
        records.recorder.requests.count({ ...request, kind: 'served' }, 0, () => ({}) as never)
        entries.push({
          id,
          account: key.id,
          ordinal: ++ordinal,
          at: ms,
          kind: 'settle',
          charge,
          balance: 0n,
          bucket: '1.1',
          waived: 0n,
          notes: {
            endpoint: '/v1/responses',
            model,
            type: 'famC',
            upstream: 'famC/1',
            stream: true,
            status: n === 7 ? 'client_gone' : 'ok',
            httpStatus: 200,
            usage,
            cost: String((charge * 3n) / 5n),
            price: entry?.priceName ?? '',
            priceVersion: price.version,
            usageSource: 'upstream',
            durationMs: 900 + output,
            ttftMs: 240 + (n % 4) * 60,
          },
        })
      }
    }
  }
  await records.recorder.record(entries, new Map())
  const recorded = await records.keys.get(key.id)
  if (recorded) await ledger.restorer.restore(recorded)
  return secret
}

/** Makes a key with a plan, of which a dozen requests have used something. */
async function withPlan(): Promise<{ readonly id: string; readonly secret: string }> {
  const { keys, ledger } = gateway
  const wish = { type: 'famC', name: 'Fay, plan of 20', credits: 5n * NANO, expiresAt: undefined }
  const { key, secret } = await keys.changes.create(wish)
  const windows = [{ credits: '20', per: 'month', anchor: 'purchase' } as const, { credits: '5', per: '5h' } as const]
  await keys.plans.set({ account: key.account, id: 'plan' }, { windows, then: 'credits', until: '30d' })
  for (let request = 0; request < 12; request++)
    await fetch(`http://127.0.0.1:${gateway.port}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'acme/famC-5.6-sol',
        messages: [{ role: 'user', content: 'Say hello. '.repeat(900) }],
      }),
    }).then(response => response.text())
  await ledger.background.archiveAll()
  return { id: key.id, secret }
}

async function tokenOf(): Promise<string> {
  const { token, secret, digest } = newToken('Ann', 'all', Date.now())
  await gateway.records.tokens.add(token, digest)
  return secret
}

async function customer(name: string, url: string, secret: string, tab: string, look: Look): Promise<void> {
  if (!isAsked(name)) return
  const { page, context } = await openPage(`${url}#${tab}`, look)
  await page.getByLabel('Your API key').fill(secret)
  await page.getByRole('button', { name: 'Show my key' }).click()
  await page
    .getByText(/credits left|of 20 left/)
    .first()
    .waitFor()
  await page.waitForTimeout(700)
  await page.screenshot({ path: join(IMAGES, `${name}.png`) })
  await context.close()
}

async function operator(name: string, url: string, token: string, area: string, look: Look): Promise<void> {
  if (!isAsked(name)) return
  const { page, context } = await openPage(`${url}#/${area}`, look)
  await page.getByLabel('Token').fill(token)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('heading', { level: 1 }).waitFor()
  await page.waitForTimeout(area === 'overview' ? 5000 : 900)
  if (area === 'requests') {
    await page
      .getByRole('button', { name: /^20\d\d-/ })
      .first()
      .click()
    await page.getByText('What happened').waitFor()
  }
  await page.screenshot({ path: join(IMAGES, `${name}.png`) })
  await context.close()
}
