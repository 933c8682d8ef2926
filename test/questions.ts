/** Questions of support: each answer stands on one page, and in the output of one command. */
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import type { Test } from 'tap'
import { visit } from './browser.ts'
import { until } from './gateway.ts'
import type { Place, Running } from './process.ts'

/** A question, and where its answer stands. `Known` has the ids that it is about. */
export interface Question<Known> {
  readonly question: string
  readonly command: (known: Known) => readonly string[]
  readonly says: RegExp
  readonly area: (known: Known) => string
  /** What is pressed on the page, if anything. */
  readonly press?: (page: Page) => Promise<void>
  readonly shows: RegExp
}

/** Opens the first row of a list. */
export const pressFirst = (page: Page): Promise<void> =>
  page
    .getByRole('button', { name: /^20\d\d-/ })
    .first()
    .click()

/**
 * Asks each question by command and on the admin page. With `IMAGES`, a folder, it leaves a picture of each page there.
 */
export async function answered<Known>(
  t: Test,
  { place, running }: { readonly place: Place; readonly running: Running },
  questions: readonly Question<Known>[],
  known: Known,
): Promise<void> {
  const { token } = JSON.parse((await place.run('tokens', 'create', '--name', 'Eve', '--json')).out)
  const address = /Operators sign in at (\S+)/.exec(running.output)?.[1] ?? ''
  const page = await visit(t, address)
  await page.getByLabel('Token').fill(token)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('heading', { name: 'Overview' }).waitFor()
  const images = process.env['IMAGES']
  for (const [index, { question, command, says, area, press, shows }] of questions.entries()) {
    const { out, err } = await place.run(...command(known))
    t.match(`${out}${err}`, says, question)
    await page.goto(`${address}#/${area(known)}`)
    await page.reload()
    await page.getByRole('heading', { level: 1 }).waitFor()
    await until(async () => (await page.locator('[aria-busy]').count()) === 0)
    if (press) await press(page)
    const text = async (): Promise<string> => String(await page.evaluate('document.body.innerText'))
    await until(async () => shows.test(await text())).catch(() => {})
    t.match(await text(), shows, `${question} (page)`)
    if (images !== undefined) await page.screenshot({ path: join(images, `${index + 1}.png`) })
  }
}
