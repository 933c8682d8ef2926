/** Runs the test files of TOGETHER one after the other in this process, which loads and compiles the gateway only once. */
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'

const files = (process.env['TOGETHER'] ?? '').split(' ').map(file => ({ file, url: pathToFileURL(resolve(file)).href }))
for (const { file, url } of files) {
  t.comment(file)
  await import(url)
}
