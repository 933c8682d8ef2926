/**
 * Provides a real Redis, a real PostgreSQL and a real browser for the tests: those on the machine, else Debian's
 * packages. TEST_REDIS names another Redis, which the tests fill, CHROMIUM another browser. With the argument `store` it provides only Redis, as
 * `npm test` needs it. Other arguments are further programs, which Debian's packages of the same name have.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { findServer } from '../core/store/managed.ts'
import { BROWSER } from './browser-program.ts'
import { postgresPrograms } from './postgres.ts'

const asked = process.argv.slice(2)
const isStoreOnly = asked.includes('store')
const missing = [
  ...(process.env['TEST_REDIS'] === undefined && findServer(process.env) === undefined ? ['redis-server'] : []),
  ...(isStoreOnly || postgresPrograms() !== undefined ? [] : ['postgresql']),
  ...(isStoreOnly || existsSync(BROWSER) ? [] : ['chromium-headless-shell']),
  ...asked.filter(program => program !== 'store' && spawnSync('which', [program]).status !== 0),
]
if (missing.length > 0) {
  if (process.getuid?.() !== 0 || !existsSync('/etc/debian_version')) {
    console.error(
      `The tests and the bench need real programs. Install ${missing.join(' and ')} (Debian: apt-get install ${missing.join(' ')}; macOS: brew install redis postgresql chromium), or set CHROMIUM to the program of a browser.`,
    )
    process.exit(1)
  }
  console.log(`Installing ${missing.join(' and ')}, which the tests need ...`)
  const apt = (...args: string[]): void => {
    const { status } = spawnSync('apt-get', ['-qq', '-y', ...args], {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    })
    if (status !== 0) process.exit(status ?? 1)
  }
  // Only the programs are needed. The system's own servers must not start.
  mkdirSync('/etc/postgresql-common', { recursive: true })
  if (!existsSync('/etc/postgresql-common/createcluster.conf'))
    writeFileSync('/etc/postgresql-common/createcluster.conf', 'create_main_cluster = false\n')
  apt('update')
  apt('install', '--no-install-recommends', ...missing)
}
