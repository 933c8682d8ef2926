#!/usr/bin/env node
// Tollgate needs Node 24. Where the machine's own is older, the packaged one (an optional dependency) takes over.
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import module, { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { constants } from 'node:os'
import { fileURLToPath } from 'node:url'

const main = new URL('../core/main.ts', import.meta.url)

if (Number(process.versions.node.split('.')[0]) >= 24) {
  // Node keeps the compiled sources in node_modules/.cache. From the second time on, a command takes half the time.
  module.enableCompileCache(fileURLToPath(new URL('../node_modules/.cache/compile', import.meta.url)))
  await import(main.href)
} else {
  const node = packagedNode()
  if (!node) {
    console.error(
      `Tollgate needs Node 24 or later; this is ${process.version}, and the packaged one is not installed. Run npm ci first.`,
    )
    process.exit(1)
  }
  // Node's own options, such as the size of the heap, go to the process that runs Tollgate.
  const child = spawn(node, [...process.execArgv, fileURLToPath(import.meta.url), ...process.argv.slice(2)], {
    stdio: 'inherit',
  })
  // A terminal's Ctrl-C reaches the child by itself, too: the gateway takes a second signal only after a moment.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal))
  child.on('exit', (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : (code ?? 1)))
}

function packagedNode() {
  try {
    const folder = dirname(
      createRequire(import.meta.url).resolve(`node-${process.platform}-${process.arch}/package.json`),
    )
    const node = join(folder, 'bin', 'node')
    return existsSync(node) ? node : undefined
  } catch {
    return undefined
  }
}
