import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { keepsTable } from '../tables.ts'
import { PROMISES, tierOf } from './promises.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8')

t.test('each promise has a test, and a text that stands in its source once', t => {
  for (const { promise, test, title, file, text, instead } of PROMISES) {
    t.ok(
      read(test)
        .replaceAll(String.raw`\'`, "'")
        .includes(title),
      `${promise} ${test}: ${title}`,
    )
    t.equal(read(file).split(text).length - 1, 1, `${promise} ${file}: ${text}`)
    t.not(text, instead)
  }
  t.end()
})

/** Returns code for a cell of a table. */
function code(text: string): string {
  const escaped = text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('|', '&#124;')
    .replaceAll('*', '&#42;')
  return `<code>${escaped.replaceAll(/\s+/g, ' ')}</code>`
}

t.test('docs/reliability.md has each promise with its test and what it is broken by', t => {
  keepsTable(
    t,
    new URL('../../docs/reliability.md', import.meta.url),
    'promise',
    PROMISES.map(promised => {
      const { promise, test, title, file, text } = promised
      return [promise, `\`${test}\`: ${title}`, `\`${tierOf(promised)}\``, `\`${file}\`: ${code(text)}`]
    }),
  )
  t.end()
})
