/** Runs the suite and says at the end, in one plain line, how many assertions held. Arguments go to tap. */
import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

mkdirSync('.tap', { recursive: true })
const results = '.tap/results.tap'
const child = spawn('tap', ['run', `--output-file=${results}`, '--reporter=terse', ...process.argv.slice(2)], {
  stdio: 'inherit',
  // Each test file is a process of its own: without the cache, each strips the types of all the sources anew.
  env: { ...process.env, NODE_COMPILE_CACHE: fileURLToPath(new URL('../node_modules/.cache/compile', import.meta.url)) },
})
child.on('exit', code => {
  const lines = readFileSync(results, 'utf8').split('\n')
  // Assertions are the lines at any depth that are not the sum of a deeper level.
  const points = lines.filter(line => /^\s*(?:not )?ok\b/.test(line) && !line.endsWith('{') && !/# time=/.test(line))
  let failed = points.filter(line => /^\s*not ok\b/.test(line) && !/# (?:todo|skip)/i.test(line)).length
  const skipped = points.filter(line => /# skip/i.test(line)).length
  // A file that could not even run has no assertion to its name.
  if (code !== 0 && failed === 0) failed = 1
  // On a line of its own, whatever the reporter left on the last one.
  console.log(`\n${points.length - failed - skipped} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`)
  process.exit(code ?? 1)
})
