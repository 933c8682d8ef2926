import OpenAI from 'openai'
import type { Page } from 'playwright-core'
import t from 'tap'
import { operate, type Office } from '../admin.ts'
import { DESKTOP, type Look, openPage, PHONE, stopBrowser, visit } from '../browser.ts'
import { until } from '../gateway.ts'
import { paste, signIn, sound } from '../pages.ts'

/** The two pages in a real browser: an operator's and a customer's whole day. */

t.teardown(stopBrowser)

/** Strings that a browser would run if they became markup. */
const HOSTILE = `<img src=x onerror="document.title='hacked'"><script>document.title='hacked'</script>`

/** Returns a key that has been used once, so that its chart has something to show. */
async function usedKey({ gateway }: Office): Promise<string> {
  const key = await gateway.key('famC')
  const body = { model: 'acme/famC-5.5', max_tokens: 20, messages: [{ role: 'user', content: 'Hi' }] }
  await gateway.call('/v1/chat/completions', { key, body })
  await gateway.settled(key)
  await gateway.gateway.ledger.background.archiveAll()
  return key
}

t.test('an operator makes a batch, a customer uses a key, and both see it', async t => {
  const office = await operate(t)
  const admin = await visit(t, `${office.base}/admin`)
  await signIn(admin, office)
  await admin.getByRole('link', { name: 'Keys', exact: true }).click()
  await admin.getByRole('tab', { name: /^famC/ }).click()
  await admin.getByRole('button', { name: 'Create keys' }).click()
  const dialog = admin.getByRole('dialog')
  await dialog.getByLabel('Number of keys').fill('3')
  await dialog.getByLabel('Credits of each').fill('12.5')
  await dialog.getByLabel('Name').fill('order 1')
  await dialog.getByLabel('Batch').fill('autumn')
  await dialog.getByRole('button', { name: 'Create' }).click()
  const secrets = admin.getByLabel('3 new keys').last()
  await secrets.waitFor()
  const keys = (await secrets.inputValue()).split('\n')
  t.equal(keys.length, 3)
  await admin.keyboard.press('Escape')
  await admin.getByText('it cannot be shown again').waitFor()
  const [download] = await Promise.all([
    admin.waitForEvent('download'),
    admin.getByRole('button', { name: 'Download as CSV' }).click(),
  ])
  t.equal(download.suggestedFilename(), 'keys.csv')
  await admin.keyboard.press('Escape')
  await admin
    .getByRole('row', { name: /order 1/ })
    .nth(2)
    .waitFor()

  const [key = ''] = keys
  const client = new OpenAI({ baseURL: `${office.gateway.url}/v1`, apiKey: key })
  const messages = [{ role: 'user' as const, content: 'Hello' }]
  for (let times = 0; times < 3; times++) await client.chat.completions.create({ model: 'acme/famC-5.5', messages })
  await office.gateway.settled(key)

  const customer = await visit(t, `${office.gateway.url}/`)
  await paste(customer, key)
  await customer.getByText(/^12\.4\d+ of 12\.5 credits left$/).waitFor()
  await customer.getByText('3 requests (UTC)').waitFor()
  await customer
    .getByText(/Credits by day and model/)
    .first()
    .waitFor()
  t.notMatch(customer.url(), /sk-/)
  await sound(t, customer, 'the customer’s usage')

  await admin
    .getByRole('row', { name: /order 1/ })
    .nth(2)
    .getByRole('link')
    .first()
    .click()
  await admin.getByRole('heading', { name: 'order 1' }).waitFor()
  await admin.getByText('acme/famC-5.5').first().waitFor()
  await admin.locator('.plot canvas').waitFor()
  await sound(t, admin, 'a key')
})

t.test('the overview moves while requests are served', async t => {
  const office = await operate(t)
  const admin = await visit(t, `${office.base}/admin`)
  await signIn(admin, office)
  const today = admin.locator('section', { has: admin.getByRole('heading', { name: 'Today (UTC)' }) })
  await today.getByText('0', { exact: true }).first().waitFor()
  const key = await office.gateway.key('famC')
  const body = { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 20 }
  for (let times = 0; times < 7; times++) await office.gateway.call('/v1/chat/completions', { key, body })
  await today.getByText('7', { exact: true }).waitFor()
  await sound(t, admin, 'the overview')
})

t.test('an operator tops up, deducts, edits, rotates, disables and deletes a key by the keyboard alone', async t => {
  const office = await operate(t)
  const secret = await office.gateway.key('famC', 10n)
  const id = await office.gateway.id(secret)
  const page = await visit(t, `${office.base}/admin`)
  await page.getByLabel('Token').waitFor()
  await page.keyboard.type(office.token)
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'Overview' }).waitFor()
  await page.goto(`${office.base}/admin#/key/${id}`)
  const press = async (name: string): Promise<void> => {
    await page.getByRole('button', { name, exact: true }).first().focus()
    await page.keyboard.press('Enter')
  }
  const fill = async (...texts: string[]): Promise<void> => {
    await page.getByRole('dialog').waitFor()
    for (const text of texts) {
      await page.keyboard.press('Control+A')
      await page.keyboard.type(text)
      await page.keyboard.press('Tab')
    }
    await page.keyboard.press('Shift+Tab')
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
  }
  await press('Top up')
  await fill('5', 'invoice 7')
  await page.getByText('of 15 credits').waitFor()
  await press('Deduct')
  await fill('2.5', 'mistake')
  await page.getByText('of 12.5 credits').waitFor()
  await press('Edit')
  await fill('Ann', 'For Ann')
  await page.getByRole('heading', { name: 'Ann' }).waitFor()
  t.match(await office.gateway.gateway.keys.refind(secret), { label: 'For Ann' })
  await press('Disable')
  await page.getByRole('dialog').getByRole('button', { name: 'Disable' }).press('Enter')
  await page.locator('.chip', { hasText: 'disabled' }).waitFor()
  t.equal((await office.gateway.call('/api/v1/key-info', { key: secret })).status, 401)
  await press('Enable')
  await page.locator('.chip', { hasText: 'active' }).waitFor()
  await press('Rotate')
  await page.getByRole('dialog').getByRole('button', { name: 'Rotate' }).press('Enter')
  const next = await page.getByLabel('The new secret').last().inputValue()
  t.match(await office.gateway.balance(next), { balance: 12.5 })
  await page.getByRole('dialog').getByRole('button', { name: 'Copy' }).press('Enter')
  await page.getByRole('dialog').getByText('Copied').waitFor()
  await page.keyboard.press('Escape')
  // The page is shown anew, and its buttons with it.
  await page.getByText(`...${next.slice(-4)}`).waitFor()
  await press('Delete')
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).press('Enter')
  await page.locator('.chip', { hasText: 'deleted' }).waitFor()
  t.equal((await office.gateway.call('/api/v1/key-info', { key: next })).status, 401)
  await page.goto(`${office.base}/admin#/audit`)
  await page.getByText('key.rotate').waitFor()
})

t.test('a customer redeems a code, tests the key and reads what it cost', async t => {
  const office = await operate(t)
  const made = async (wish: object): Promise<string> => (await office.api('POST', '/codes', wish)).json.codes[0].code
  const [newKey, credits] = [
    await made({ kind: 'key', type: 'famA', credits: 3, key_days: 5 }),
    await made({ kind: 'credits', credits: 4 }),
  ]
  const page = await visit(t, `${office.gateway.url}/`)
  await page.getByLabel('Code').fill(newKey.toLowerCase())
  await page.getByRole('button', { name: 'Redeem' }).click()
  await page.getByText('This is shown only once.').waitFor()
  await page.getByRole('button', { name: 'Show this key' }).click()
  await page.getByText('3 of 3 credits left').waitFor()
  await page.getByText('This key expires in 5 days.').waitFor()
  await page.getByRole('tab', { name: 'Redeem' }).click()
  await page.getByLabel('Code').fill(credits)
  await page.getByRole('button', { name: 'Redeem' }).click()
  await page.getByText('7 of 7 credits left').waitFor()
  await page.getByRole('tab', { name: 'Set up' }).click()
  for (const path of ['/v1/messages', '/v1/responses', '/v1/chat/completions']) {
    await page.getByLabel('Endpoint').selectOption(path)
    await page.getByRole('button', { name: 'Test this key' }).click()
    await page.getByText(/It cost 0\.\d+ credits: \d+ input and \d+ output tokens/).waitFor()
    t.not(await page.getByRole('log').textContent(), '', path)
  }
  await sound(t, page, 'the prices')
  await page.getByRole('tab', { name: 'Requests' }).click()
  await page
    .getByRole('row', { name: /acme\/famA/ })
    .nth(2)
    .waitFor()
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Download as CSV' }).click(),
  ])
  t.equal(download.suggestedFilename(), 'history.csv')
  await page
    .getByRole('button', { name: /^20\d\d-/ })
    .first()
    .click()
  await page.getByText('Total, rounded up once').waitFor()
  await sound(t, page, 'a request')
})

t.test('an operator reads why a request failed, refunds another, and finds the filters again', async t => {
  const office = await operate(t)
  const { gateway } = office
  const key = await usedKey(office)
  const id = await gateway.id(key)
  await gateway.call('/v1/chat/completions', { key, body: { model: 'none', messages: [] } })
  await gateway.gateway.ledger.background.archiveAll()
  const admin = await visit(t, `${office.base}/admin`)
  await signIn(admin, office)
  await admin.getByText('No key is used up within a week.').waitFor()
  await admin.getByRole('link', { name: 'Failures', exact: true }).click()
  await admin.getByRole('cell', { name: 'model_not_found' }).waitFor()
  await admin.getByLabel('Code').fill('overloaded')
  await admin.getByText('No failure matches.').waitFor()
  t.match(admin.url(), /#\/failures\?code=overloaded$/)
  await admin.reload()
  await admin.getByText('No failure matches.').waitFor()
  t.equal(await admin.getByLabel('Code').inputValue(), 'overloaded')
  await admin.goto(`${office.base}/admin#/failures`)
  await admin.getByRole('button', { name: /^20\d\d-/ }).click()
  await admin.getByText('The request cannot be served as it was sent (model_not_found).').waitFor()
  await sound(t, admin, 'a failure')
  await admin.keyboard.press('Escape')
  await admin.getByRole('link', { name: 'Requests', exact: true }).click()
  await admin.getByRole('button', { name: 'Yesterday' }).click()
  await admin.getByText('No request matches.').waitFor()
  await admin.getByRole('button', { name: 'Today' }).click()
  await admin.getByRole('button', { name: /^20\d\d-/ }).click()
  await admin.getByText('Total, rounded up once').waitFor()
  await admin.getByText('It was served.').waitFor()
  await sound(t, admin, 'a request')
  await admin.getByRole('button', { name: 'Refund' }).click()
  await admin.getByLabel('Reason').fill(HOSTILE)
  await admin.getByRole('dialog').last().getByRole('button', { name: 'Refund' }).click()
  await admin.getByText(/credits were refunded/).waitFor()
  await admin.goto(`${office.base}/admin#/key/${id}`)
  await admin
    .getByRole('row', { name: /refund/ })
    .first()
    .waitFor()
  const page = await visit(t, `${gateway.url}/#statement`)
  await paste(page, key)
  await page.getByRole('row', { name: /refund/ }).waitFor()
  await page.getByText('10 credits are booked: 10 can be spent.').waitFor()
  await sound(t, page, 'the statement')
  await admin.goto(`${office.base}/admin#/accounts`)
  await admin.getByRole('button', { name: 'Test' }).first().click()
  await admin
    .getByText(/is simulated/)
    .first()
    .waitFor()
})

t.test('a customer has a key of the balance made, limits it and disables it', async t => {
  const office = await operate(t, {}, { edit: file => file.set('keyTypes.famC.manages', ['famC']) })
  const { gateway } = office
  const wish = { type: 'famC', name: 'boss', credits: 10_000_000_000n, expiresAt: undefined, manage: true }
  const { secret } = await gateway.gateway.keys.changes.create(wish)
  const page = await visit(t, `${gateway.url}/#keys`)
  await paste(page, secret)
  await page.getByRole('button', { name: 'Create a key' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('Name').fill(HOSTILE)
  await dialog.getByLabel('Limit in credits').fill('2.5')
  await sound(t, page, 'the dialog for a new key')
  await dialog.getByRole('button', { name: 'Create' }).click()
  const made = page.getByLabel('The new key').last()
  await made.waitFor()
  const key = await made.inputValue()
  t.match(await gateway.balance(key), { balance: 2.5 })
  await page.keyboard.press('Escape')
  await page.keyboard.press('Escape')
  await page.getByRole('row', { name: /2\.5/ }).waitFor()
  await sound(t, page, 'the keys')
  await page.getByRole('button', { name: /^Edit/ }).click()
  await dialog.getByLabel('Limit in credits').fill('')
  await dialog.getByRole('button', { name: 'Save' }).click()
  await page.getByRole('row', { name: /none/ }).last().waitFor()
  await page.getByRole('button', { name: /^Disable/ }).click()
  await dialog.getByRole('button', { name: 'Disable' }).click()
  await page.getByRole('row', { name: /disabled/ }).waitFor()
  t.equal((await gateway.call('/api/v1/keys', { key: secret })).json.data[1].cap, null)
})

t.test('a key type that is not public is shown to nobody without a key', async t => {
  const office = await operate(
    t,
    {},
    { edit: file => file.set('keyTypes.editor.public', false).insertBefore('access-log', { 'status-page': {} }) },
  )
  const { gateway } = office
  const told = async (path: string): Promise<string> =>
    (await gateway.call(path, { headers: { accept: 'application/json' } })).text
  for (const path of ['/page/settings', '/status', '/v1/models']) {
    const text = await told(path)
    t.match(text, 'acme/famC-5.5', path)
    t.notMatch(text, /"editor"/, path)
  }
})

t.test('set-up has the key, the address and the model of each client', async t => {
  const office = await operate(t)
  const key = await office.gateway.key('famC')
  const page = await visit(t, `${office.gateway.url}/#setup`)
  await paste(page, key)
  await page.getByLabel('Model', { exact: true }).selectOption('acme/famC-5.6-sol')
  await page.getByLabel(/Hide the key/).uncheck()
  const texts = async (client: string): Promise<string> => {
    await page.getByRole('button', { name: client, exact: true }).click()
    return (await page.locator('.clients pre').allTextContents()).join('\n')
  }
  const { url } = office.gateway
  for (const [client, ...wanted] of [
    [
      'Claude Code',
      `ANTHROPIC_BASE_URL="${url}"`,
      `ANTHROPIC_AUTH_TOKEN="${key}"`,
      `ANTHROPIC_DEFAULT_HAIKU_MODEL="acme/famC-5.6-luna"`,
    ],
    ['Codex', `base_url = "${url}/v1"`, 'wire_api = "responses"'],
    ['OpenAI SDK', `base_url="${url}/v1"`, `api_key="${key}"`],
    ['Anthropic SDK', `base_url="${url}"`],
    ['Cursor', `${url}/v1`],
    ['curl', `Bearer ${key}`],
  ]) {
    const found = await texts(client ?? '')
    for (const text of [...wanted, key, 'acme/famC-5.6-sol']) t.ok(found.includes(text ?? ''), `${client}: ${text}`)
  }
  await page.getByRole('button', { name: 'cc-switch', exact: true }).click()
  const link = await page.evaluate(
    async address => {
      const { importLink } = await import(address)
      return importLink('codex', { base: 'https://g.example', key: 'sk-1', model: 'm', title: 'T' })
    },
    (await page.locator('script[src]').getAttribute('src'))?.replace('main.js', 'setup.js') ?? '',
  )
  const query = new URL(link).searchParams
  t.match(Object.fromEntries(query), {
    resource: 'provider',
    app: 'codex',
    name: 'T',
    apiKey: 'sk-1',
    endpoint: 'https://g.example/v1',
    usageEnabled: 'true',
  })
  t.match(Buffer.from(query.get('usageScript') ?? '', 'base64').toString(), '/v1/usage')
  const other = await office.gateway.key('famB')
  const limited = await visit(t, `${office.gateway.url}/#setup`)
  await paste(limited, other)
  await limited.getByRole('button', { name: 'Claude Code' }).click()
  await limited.getByText('This key cannot be used with Claude Code.').waitFor()
})

t.test('the operators’ page shows no session but its own, and no secret after its end', async t => {
  const office = await operate(t)
  const key = await office.gateway.key('famC')
  const page = await visit(t, `${office.base}/admin`)
  await signIn(page, office)
  await page.getByText('(all)').waitFor()
  // The overview would learn at once that its session is over. Other areas learn it with their next request.
  await page.getByRole('link', { name: 'Usage', exact: true }).click()
  await page.getByText('Credits by day').waitFor()
  const reader = (await office.api('POST', '/tokens', { name: 'reader', scope: 'read' })).json
  const other = await page.context().newPage()
  await other.goto(`${office.base}/admin`)
  await other.getByRole('button', { name: 'Sign out' }).click()
  await other.getByText('You are signed out.').waitFor()
  await signIn(other, { ...office, token: reader.token })
  await page.getByRole('link', { name: 'Keys', exact: true }).click()
  await page.getByText('reader (read)').waitFor()

  const last = await visit(t, `${office.base}/admin`)
  await signIn(last, office)
  await last.goto(`${office.base}/admin#/key/${await office.gateway.id(key)}`)
  await last.getByRole('button', { name: 'Rotate' }).click()
  await last.getByRole('dialog').getByRole('button', { name: 'Rotate' }).click()
  await last.getByRole('textbox', { name: 'The new secret' }).waitFor()
  await last.context().clearCookies()
  await last.evaluate("location.hash = '#/tokens'")
  await last.getByText('Your session is over.').waitFor()
  t.equal(await last.getByRole('textbox', { name: 'The new secret' }).count(), 0)
  await last.evaluate("location.hash = '#/constructor/%'")
  await signIn(last, office)
})

t.test('a late answer about an old key does not touch the new one', async t => {
  const office = await operate(t)
  const key = await office.gateway.key('famC', 7n)
  const page = await visit(t, `${office.gateway.url}/`)
  let release = (): void => {}
  const held = new Promise<void>(resolve => (release = resolve))
  let asked = (): void => {}
  const isAsked = new Promise<void>(resolve => (asked = resolve))
  await page.route('**/page/settings', async route => {
    asked()
    await held
    await route.continue()
  })
  await paste(page, 'sk-unknown')
  await isAsked
  await page.getByRole('button', { name: 'Forget key' }).click()
  await paste(page, key)
  await page.getByText('7 of 7 credits left').waitFor()
  const late = page.waitForResponse('**/page/settings')
  release()
  await (await late).finished()
  await page.reload()
  await page.getByText('7 of 7 credits left').waitFor()
})

t.test('an expired, a used up, a disabled and an unknown key each say what to do', async t => {
  const office = await operate(t, {}, { edit: file => file.set('contact', 'help@reseller.example') })
  const { gateway } = office
  const expired = await gateway.gateway.keys.changes.create({
    type: 'famC',
    name: '',
    credits: 10n ** 9n,
    expiresAt: Date.now() + 1,
  })
  const usedUp = await gateway.key('famC', 1n)
  await office.api('POST', `/keys/${await gateway.id(usedUp)}/deduct`, { credits: 1, reason: 'x' })
  const disabled = await gateway.key('famC')
  await office.api('POST', `/keys/${await gateway.id(disabled)}/disable`)
  for (const [key, text] of [
    [expired.secret, /This key expired on/],
    [usedUp, 'The credits of this key are used up.'],
    [disabled, 'This key is disabled.'],
    ['sk-unknown', 'This gateway does not know this key.'],
  ] as const) {
    const page = await visit(t, `${gateway.url}/`)
    await paste(page, key)
    await page.getByText(text).waitFor()
    await page.getByRole('link', { name: 'help@reseller.example' }).first().waitFor()
    await sound(t, page, String(text))
  }
})

t.test('hostile names, labels, models and notes show as text on both pages', async t => {
  const office = await operate(
    t,
    {},
    { edit: file => file.insertModel('famC', { id: 'acme/<b>x', price: 'small', reasoning: 'none', maxOutput: 100 }) },
  )
  const wish = { type: 'famC', credits: 5, name: HOSTILE, label: HOSTILE, batch: HOSTILE }
  const [{ id, key }] = (await office.api('POST', '/keys', wish)).json.keys
  await office.api('POST', `/keys/${id}/topup`, { credits: 1, reason: HOSTILE })
  await office.gateway.call('/v1/chat/completions', {
    key,
    body: { model: 'acme/<b>x', messages: [{ role: 'user', content: HOSTILE }], max_tokens: 20 },
  })
  await office.gateway.settled(key)
  const page = await visit(t, `${office.gateway.url}/`)
  await paste(page, key)
  await page.getByRole('heading', { name: HOSTILE }).waitFor()
  for (const tab of ['Set up', 'Models and prices', 'Requests']) {
    await page.getByRole('tab', { name: tab }).click()
    await page.getByText('acme/<b>x').first().waitFor({ state: 'attached' })
  }
  t.not(await page.title(), 'hacked')
  const admin = await visit(t, `${office.base}/admin`)
  await signIn(admin, office)
  for (const [area, text] of [
    ['keys', HOSTILE],
    [`key/${id}`, HOSTILE],
    ['usage', 'acme/<b>x'],
    ['requests', 'acme/<b>x'],
    ['audit', '<img src=x'],
  ] as const) {
    await admin.goto(`${office.base}/admin#/${area}`)
    await admin.getByText(text).first().waitFor()
    t.equal(await admin.locator('img, main script').count(), 0)
    t.not(await admin.title(), 'hacked')
  }
})

// Colours differ between light and dark, and the layout between a desktop and a phone.
const LOOKS: [string, Look][] = [
  ['on a desktop', DESKTOP],
  ['on a phone in the dark', { ...PHONE, dark: true }],
]

for (const [where, look] of LOOKS) {
  t.test(`every area of both pages is sound ${where}`, async t => {
    const office = await operate(t)
    const key = await office.gateway.key('famC')
    const admin = await visit(t, `${office.base}/admin`, look)
    await sound(t, admin, 'signing in')
    await signIn(admin, office)
    for (const area of [
      'keys',
      'keys/editor',
      'codes',
      'usage',
      'requests',
      'failures',
      'accounts',
      'audit',
      'tokens',
      'configuration',
    ]) {
      await admin.goto(`${office.base}/admin#/${area}`)
      await admin.getByRole('heading', { level: 1 }).waitFor()
      await until(async () => (await admin.locator('[aria-busy]').count()) === 0)
      await sound(t, admin, area)
    }
    await admin.goto(`${office.base}/admin#/keys`)
    await admin.getByRole('button', { name: 'Create keys' }).click()
    await admin.getByRole('dialog').waitFor()
    await sound(t, admin, 'the dialog for keys')
    const page = await visit(t, `${office.gateway.url}/`, look)
    await sound(t, page, 'asking for the key')
    await paste(page, key)
    for (const tab of ['Usage', 'Set up', 'Models and prices', 'Requests', 'Statement', 'Redeem']) {
      await page.getByRole('tab', { name: tab }).click()
      await until(async () => (await page.locator('[aria-busy]').count()) === 0)
      await sound(t, page, tab)
    }
  })
}

t.test('nothing moves on the pages while they load', async t => {
  const office = await operate(t)
  const key = await usedKey(office)
  // What moves after an input counts as well: on a slow machine it moves long after it.
  const shifted = async (page: Page): Promise<number> =>
    Number(
      await page.evaluate(
        `new Promise(resolve => { let sum = 0; new PerformanceObserver(list => { for (const each of list.getEntries()) sum += each.value }).observe({ type: 'layout-shift', buffered: true }); setTimeout(() => resolve(sum), 300) })`,
      ),
    )
  const page = await visit(t, `${office.gateway.url}/`)
  await paste(page, key)
  await page.locator('.plot').waitFor()
  t.ok((await shifted(page)) < 0.1, 'the customer’s page')
  await page.reload()
  await page.locator('.plot').waitFor()
  t.ok((await shifted(page)) < 0.1, 'after a reload, with the key of this tab')
  for (const [where, look] of LOOKS) {
    const admin = await visit(t, `${office.base}/admin`, look)
    await signIn(admin, office)
    await admin.getByText('Accounts of the upstreams').waitFor()
    t.ok((await shifted(admin)) < 0.1, `the operators’ page ${where}`)
  }
})

t.test('without the library for charts, everything else works', async t => {
  const office = await operate(t)
  const key = await usedKey(office)
  const { page, context, complaints } = await openPage('about:blank')
  t.teardown(() => context.close())
  await page.route('**/uplot.js', route => route.abort())
  await page.goto(`${office.gateway.url}/`)
  await paste(page, key)
  await page.getByText(/9\.9\d+ of 10 credits left/).waitFor()
  await page.getByText('Show as a table').waitFor()
  t.same(
    complaints.filter(each => !each.includes('Failed to fetch')),
    [],
  )
})

t.test('pages and their files have strict headers; files may be cached and data may not', async t => {
  const office = await operate(t)
  for (const [address, files] of [
    [`${office.gateway.url}/`, '/page/'],
    [`${office.base}/admin`, '/admin/page/'],
  ] as const) {
    const response = await fetch(address, { headers: { accept: 'text/html,*/*' } })
    const html = await response.text()
    const policy = response.headers.get('content-security-policy') ?? ''
    t.notMatch(policy, /unsafe-/)
    t.match(policy, /default-src 'none'; script-src 'self'/)
    t.match(policy, /trusted-types 'none'/)
    t.equal(response.headers.get('cache-control'), 'no-store')
    t.equal(response.headers.get('x-content-type-options'), 'nosniff')
    t.equal(response.headers.get('referrer-policy'), 'no-referrer')
    t.notMatch(html, /<script(?![^>]*src=)|<style|style=|onclick/)
    const paths = [...html.matchAll(/(?:href|src)="(\/[^"]+)"/g)].map(([, path = '']) => path)
    t.ok(paths.length > 4)
    for (const path of paths) {
      t.ok(path.startsWith(files), path)
      const file = await fetch(new URL(path, address))
      t.match([file.status, file.headers.get('cache-control')], [200, /immutable/], path)
    }
    const wrong = await fetch(new URL(`${files}../../../gateway.yaml`, address))
    t.ok(wrong.status >= 400)
    t.equal((await fetch(new URL(`${files}x/..%2f..%2findex.ts`, address))).status >= 400, true)
  }
  const api = await office.api('GET', '/keys')
  t.equal(api.headers.get('cache-control'), 'no-store')
  const json = await office.gateway.call('/')
  t.match(json.json, { status: 'ok' }, 'a client that asks for no page gets what it got before')
  t.equal(
    (await office.gateway.call('/', { method: 'HEAD' })).headers.get('content-type'),
    'application/json; charset=utf-8',
  )
})
