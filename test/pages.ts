/** What tests of the pages do again and again. */
import type { Page } from 'playwright-core'
import type { Test } from 'tap'
import type { Office } from './admin.ts'
import { seriousFaults } from './browser.ts'

/** Signs an operator in. */
export async function signIn(page: Page, { token }: Office): Promise<void> {
  await page.getByLabel('Token').fill(token)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('heading', { name: 'Overview' }).waitFor()
}

/** Pastes a customer's key, as people do. */
export async function paste(page: Page, key: string): Promise<void> {
  await page.getByLabel('Your API key').fill(`export API_KEY="${key}"`)
  await page.getByRole('button', { name: 'Show my key' }).click()
}

/** Checks what every state of a page must be: accessible, not wider than the screen, and silent. */
export async function sound(t: Test, page: Page, what: string): Promise<void> {
  t.same(await seriousFaults(page), [], `${what}: axe finds nothing serious`)
  const wider = await page.evaluate('document.documentElement.scrollWidth - innerWidth')
  t.ok(Number(wider) <= 0, `${what}: is not wider than the screen`)
  t.not(await page.title(), 'hacked')
}
