/**
 * Runs test files one after the other in this process, which loads and compiles the gateway only once: alone, most files
 * would take longer for that than for their tests. It takes each next file from the folder that QUEUE names, which it
 * shares with other processes.
 */
import asyncHooks from 'node:async_hooks'
import { readdirSync, readFileSync, renameSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { join, resolve } from 'node:path'
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

// The AI SDK warns of each model that it does not know.
Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false })

const queue = process.env['QUEUE'] ?? ''
/** The folder of the project. A command that a test runs may change the working directory. */
const root = process.cwd()
/** How long a file may take. It bounds a test that hangs. */
const limitMs = Number(process.env['LIMIT_S'] ?? 1800) * 1000

/** Takes the next file of the queue. Undefined if there is none. */
function next(): string | undefined {
  for (const name of readdirSync(queue).sort()) {
    if (!name.endsWith('.waiting')) continue
    const taken = join(queue, name.replace('waiting', 'taken'))
    try {
      renameSync(join(queue, name), taken)
    } catch {
      // Another process has taken it.
      continue
    }
    return readFileSync(taken, 'utf8')
  }
  return undefined
}

/** Loads the next file. Its tests follow this one, and the next file follows them: tap is never idle between two. */
function takeNext(): void {
  void t.test('next', async own => {
    const file = next()
    // These lines must not overtake what tap has still to print.
    if (file === undefined) return own.comment('all files have run')
    t.setTimeout(limitMs)
    // TapReader reads from this line on whose tests follow.
    own.comment(`file: ${file}`)
    await import(pathToFileURL(resolve(root, file)).href)
    takeNext()
  })
}
takeNext()
