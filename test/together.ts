/**
 * Runs the test files of TOGETHER in this process, which loads and compiles the gateway only once. Their tests run one
 * after the other. It says "complete" after the last one: test/run.ts fails without it.
 */
import asyncHooks from 'node:async_hooks'
import { syncBuiltinESMExports } from 'node:module'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

// tap follows every promise by async hooks, in order to know which test an error belongs to that no test waits for. That
// takes a fifth of the time. Without it, such an error ends the process, and all its files fail.
const { createHook } = asyncHooks
asyncHooks.createHook = () => ({ enable: () => undefined, disable: () => undefined }) as never
syncBuiltinESMExports()
const { t } = await import('tap')
// The hook is made by the first test.
t.comment('started')
asyncHooks.createHook = createHook
syncBuiltinESMExports()

// After the first teardown of its own, tap's root test ends whenever nothing runs, such as between two files. So it gets
// the teardowns of the files at the end.
const teardown = t.teardown.bind(t)
const atEnd: Parameters<typeof t.teardown>[0][] = []
t.teardown = run => void atEnd.push(run)

const files = (process.env['TOGETHER'] ?? '').split(' ').map(file => ({ file, url: pathToFileURL(resolve(file)).href }))
for (const { file, url } of files) {
  t.comment(file)
  await import(url)
}
for (const run of atEnd) teardown(run)
t.comment('complete')
t.end()
