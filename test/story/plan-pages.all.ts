/** A plan on the two pages, in a real browser. */
import t from 'tap'
import { operate } from '../admin.ts'
import { stopBrowser, visit } from '../browser.ts'
import { paste, signIn, sound } from '../pages.ts'

t.teardown(stopBrowser)

t.test('an operator sets, extends and resets a plan, and its customer sees the windows as bars', async t => {
  const terms = { windows: [{ requests: 2, per: 'day' }, { credits: 5, per: '5h' }], until: '30d' } // prettier-ignore
  const office = await operate(t, {}, { edit: file => file.set('keyTypes.famC.plan', terms) })
  const secret = await office.gateway.key('famC', 0n)
  const id = await office.gateway.id(secret)
  const buy = () =>
    office.gateway.call('/v1/chat/completions', {
      key: secret,
      body: { model: 'acme/famC-5.5', max_tokens: 20, messages: [{ role: 'user', content: 'Hi' }] },
    })
  for (const status of [200, 200, 429]) t.match(await buy(), { status })
  await office.gateway.settled(secret)
  const customer = await visit(t, `${office.gateway.url}/`)
  await paste(customer, secret)
  await customer.getByText(/^What this key may use is used up until/).waitFor()
  const bars = customer.getByRole('group', { name: 'Plan' })
  await bars.getByText('0 of 2 left').waitFor()
  await bars.getByText(/^4\.\d+ of 5 left$/).waitFor()
  t.equal(await bars.getByRole('img').count(), 2)
  t.equal(await customer.getByText('credits left').count(), 0, 'a customer without credits sees none')
  await sound(t, customer, 'a plan that is used up')

  const page = await visit(t, `${office.base}/admin`)
  await signIn(page, office)
  await page.evaluate(`location.hash = '#/key/${id}'`)
  await page.getByText(/^The plan of famC, since /).waitFor()
  const dialog = page.getByRole('dialog')
  const act = async (name: string, label: string, fill: () => Promise<unknown>): Promise<void> => {
    await page.getByRole('group', { name: 'Plan' }).getByRole('button', { name, exact: true }).click()
    await fill()
    await dialog.getByLabel('Reason').fill('an outage')
    await dialog.getByRole('button', { name: label, exact: true }).click()
    await dialog.waitFor({ state: 'detached' })
  }
  await act('Add to a window', 'Add', () => dialog.getByLabel('Amount').fill('3'))
  await page.getByText('3 of 5 left').waitFor()
  await act('Reset a window', 'Reset', () => dialog.getByLabel('Window').selectOption('1'))
  await page.getByText('5 of 5 left').waitFor()
  await sound(t, page, 'the plan of a key')
  await act('Extend', 'Extend', async () => {})
  await act('End', 'End', async () => {})
  await page.getByText(/; it ended /).waitFor()
  await act('Set a plan', 'Set', async () => {
    await dialog.getByRole('combobox', { name: 'Plan' }).selectOption('')
    await dialog.getByLabel('Terms').fill('{ "windows": [{ "tokens": 1000, "per": "week" }], "then": "credits" }')
  })
  await page.getByText('1,000 of 1,000 left').waitFor()
  await customer.getByRole('button', { name: 'Forget key' }).click()
  await paste(customer, secret)
  await customer.getByText('When it is used up, your credits are used.').waitFor()
})

t.test('a customer reads until when the credits of a day are used up', async t => {
  const limits = { creditsPerDay: '0.000001' }
  const office = await operate(t, {}, { edit: file => file.set('keyTypes.famC.limits', limits) })
  const customer = await visit(t, `${office.gateway.url}/`)
  await paste(customer, await office.gateway.key('famC'))
  await customer.getByText(/^What this key may use is used up until .* 00:00/).waitFor()
  await customer.getByRole('button', { name: 'Forget key' }).click()
  await paste(customer, await office.gateway.key('famC', 0n))
  await customer.getByText('The credits of this key are used up.').waitFor()
})

t.test('a customer and the operator read what a plan has paid wherever they look', async t => {
  const plan = { windows: [{ credits: 20, per: 'month' }], then: 'credits' }
  const office = await operate(t, {}, { edit: file => file.set('keyTypes.famC.plan', plan) })
  const { gateway: g } = office
  const secret = await g.key('famC', 0n)
  const body = { model: 'acme/famC-5.6-sol', messages: [{ role: 'user', content: 'Say hello. '.repeat(900) }] }
  t.match(await g.call('/v1/chat/completions', { key: secret, body }), { status: 200 })
  await g.settled(secret)
  await g.gateway.ledger.background.archiveAll()
  const [{ cost }] = (await g.history(secret)) as [{ cost: number }]
  const left = (20 - cost).toFixed(9).replace(/0+$/, '')
  const customer = await visit(t, `${g.url}/`)
  await paste(customer, secret)
  const shows = async (page: typeof customer, words: RegExp): Promise<void> => {
    await page.getByText(words).first().waitFor()
    t.pass(String(words))
  }
  const exact = String(cost).replace('.', '\\.')
  await shows(customer, new RegExp(`^never expires; ${exact.slice(0, 5)}\\d* used`))
  await customer.getByRole('tab', { name: 'Requests' }).click()
  await customer
    .getByRole('button', { name: /^20\d\d-/ })
    .first()
    .click()
  await shows(customer, /^of the plan$/)
  await customer.getByRole('dialog').press('Escape')
  await customer.getByRole('tab', { name: 'Statement' }).click()
  await shows(customer, new RegExp(`^Left of your plan: month: ${left.replace('.', '\\.')} credits`))
  await shows(customer, /bought/)

  const page = await visit(t, `${office.base}/admin`)
  await signIn(page, office)
  await page.evaluate("location.hash = '#/keys/famC'")
  await shows(page, new RegExp(`^${left.slice(0, 5)}\\d* of 20$`))
})
