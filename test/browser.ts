/** A real browser: Debian's Chromium, driven by Playwright. */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { chromium, type Browser, type BrowserContext, type Page } from 'playwright-core'
import type { Test } from 'tap'
import { BROWSER } from './browser-program.ts'

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** How a page is looked at. */
export interface Look {
  readonly width?: number
  readonly height?: number
  readonly dark?: boolean
  readonly zone?: string
  readonly scale?: number
}

export const DESKTOP: Look = { width: 1280, height: 860 }
export const PHONE: Look = { width: 390, height: 844 }

let browser: Promise<Browser> | undefined

/** Starts the browser of this process, once. */
export function startBrowser(): Promise<Browser> {
  return (browser ??= chromium.launch({
    executablePath: BROWSER,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  }))
}

/** Ends it. */
export async function stopBrowser(): Promise<void> {
  await (await browser)?.close()
  browser = undefined
}

/** A page whose complaints are collected. */
export interface OpenPage {
  readonly page: Page
  readonly context: BrowserContext
  /** Violations of the policy, exceptions, and errors on the console. */
  readonly complaints: string[]
}

/** Opens a page in a profile of its own. */
export async function openPage(url: string, look: Look = DESKTOP): Promise<OpenPage> {
  const { width = 1280, height = 860, dark = false, zone = 'Europe/Paris', scale = 1 } = look
  const context = await (
    await startBrowser()
  ).newContext({
    viewport: { width, height },
    deviceScaleFactor: scale,
    colorScheme: dark ? 'dark' : 'light',
    // Without a language, Chromium has one that is not valid.
    locale: 'en-US',
    timezoneId: zone,
    hasTouch: width < 768,
    isMobile: width < 768,
  })
  context.setDefaultTimeout(15_000)
  const page = await context.newPage()
  const complaints: string[] = []
  page.on('pageerror', error => complaints.push(`exception: ${error.message}`))
  page.on('console', message => {
    // Refusals of the gateway are part of the tests.
    if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) complaints.push(message.text())
  })
  await page.goto(url)
  return { page, context, complaints }
}

/** What axe-core finds on a page that is serious. */
export async function seriousFaults(page: Page): Promise<string[]> {
  await page.evaluate(AXE)
  const { violations } = (await page.evaluate(
    `axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })`,
  )) as { violations: { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }[] }
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(
      ({ id, nodes }) =>
        `${id}: ${nodes.map(({ html, failureSummary }) => `${html.slice(0, 160)} ${failureSummary}`).join(' | ')}`,
    )
}

/** Opens a page for a test, and checks at its end that the page never complained. */
export async function visit(t: Test, url: string, look?: Look): Promise<Page> {
  const { page, context, complaints } = await openPage(url, look)
  t.teardown(async () => {
    await context.close()
  })
  t.comment(url)
  t.teardown(() => {
    if (complaints.length > 0) throw new Error(`the page complained: ${complaints.join('; ')}`)
  })
  return page
}
