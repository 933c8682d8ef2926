import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'

t.test('the alarm of a command is on its standard error, and its result alone on its standard output', t => {
  const at = (path: string): URL => new URL(`../../${path}`, import.meta.url)
  const preload = `
    import { assertMoney } from '${at('core/money/assertions.ts').href}'
    process.on('exit', () => assertMoney(false, 'a charge is an amount', () => ({ charge: -1n })))`
  const args = [
    '--import',
    `data:text/javascript,${encodeURIComponent(preload)}`,
    fileURLToPath(at('core/main.ts')),
    'plan',
  ]
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' })
  t.match(stdout, /^GET \/health/m)
  t.notMatch(stdout, /broken|^\{/m)
  t.equal(stderr, 'a rule about money is broken: a charge is an amount ({"charge":"-1"})\n')
  t.end()
})
