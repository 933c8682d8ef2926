/** Where the browser of the tests is: Chromium without a window, which takes half of the time, or Chromium. */
import { existsSync } from 'node:fs'

const PROGRAMS = ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium']

/** The path of the program. `CHROMIUM` names another one. */
export const BROWSER = process.env['CHROMIUM'] ?? PROGRAMS.find(existsSync) ?? '/usr/bin/chromium'
