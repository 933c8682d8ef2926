/** Where the browser of the tests is. */
export const BROWSER = process.env['CHROMIUM'] ?? '/usr/bin/chromium'
