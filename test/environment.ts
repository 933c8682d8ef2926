import { totalmem } from 'node:os'
import type { Environment } from '../core/lib/environment.ts'
import { timedId } from '../core/lib/ids.ts'
import { createLog } from '../core/lib/log.ts'
import { Scrubber } from '../core/lib/scrubber.ts'

/** The environment of this process for a gateway that runs in it: the gateway prints nothing and never exits. */
export function testEnvironment(env: Environment['env'] = process.env, more: Partial<Environment> = {}): Environment {
  const scrubber = new Scrubber()
  return {
    env,
    memoryBytes: totalmem(),
    openFiles: () => Infinity,
    uid: 1000,
    log: createLog(scrubber, 'silent', process.stdout),
    scrubber,
    now: Date.now,
    newId: () => timedId(Date.now()),
    print: () => {},
    complain: () => {},
    onSignal: () => {},
    exit: code => Promise.reject(new Error(`exit ${code}`)),
    ...more,
  }
}
