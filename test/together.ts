/** Runs the test files of TOGETHER one after the other in this process, which loads and compiles the gateway only once. */
import asyncHooks from 'node:async_hooks'
import { syncBuiltinESMExports } from 'node:module'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

// tap follows every promise by async hooks, in order to know which test an error belongs to that no test waits for. That
// takes a fifth of the time. Without it, such an error ends the process, and the file fails.
const { createHook } = asyncHooks
asyncHooks.createHook = () => ({ enable: () => undefined, disable: () => undefined }) as never
syncBuiltinESMExports()
const { t } = await import('tap')
// The hook is made by the first test.
t.comment('started')
asyncHooks.createHook = createHook
syncBuiltinESMExports()

// The tests begin when all files are loaded. tap ends when it has nothing to do, which could be between two files.
const loaded = Promise.withResolvers<void>()
t.waitOn(loaded.promise)

const files = (process.env['TOGETHER'] ?? '').split(' ').map(file => ({ file, url: pathToFileURL(resolve(file)).href }))
for (const { file, url } of files) {
  t.comment(file)
  await import(url)
}
loaded.resolve()
