/** Provides a real Redis for the tests: REDIS_URL, else a redis-server on PATH, else Debian's package. */
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { findServer } from '../core/store/managed.ts'

if (process.env['REDIS_URL'] === undefined && findServer(process.env) === undefined) {
  if (process.getuid?.() !== 0 || !existsSync('/etc/debian_version')) {
    console.error(
      'The tests need a real Redis. Install redis-server (Debian: apt-get install redis-server; macOS: brew install redis) or set REDIS_URL.',
    )
    process.exit(1)
  }
  console.log('Installing redis-server, which the tests need ...')
  const apt = (...args: string[]): void => {
    const { status } = spawnSync('apt-get', ['-qq', '-y', ...args], {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    })
    if (status !== 0) process.exit(status ?? 1)
  }
  apt('update')
  // Only the program is needed. The system's own server must not start.
  apt('install', '--no-install-recommends', 'redis-server')
}
