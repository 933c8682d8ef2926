/** A gateway with the admin API, for what runs outside the tests. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checkChain } from '../core/chain/check-chain.ts'
import { loadConfig } from '../core/config/load.ts'
import { Gateway } from '../core/gateway.ts'
import { testEnvironment } from './environment.ts'
import { storeEnv, testYaml } from './gateway.ts'

/** Starts a gateway with the simulated provider, a store of its own and free ports. `stop` also deletes its files. */
export async function startStandalone(): Promise<{ gateway: Gateway; stop: () => Promise<void> }> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-standalone-'))
  const store = storeEnv()
  const file = join(folder, 'gateway.yaml')
  writeFileSync(
    file,
    testYaml(store.prefix, edit => edit.append({ admin: { listen: { port: 0 } } })),
  )
  const env = { ...store.env, PORT: '0', LOG_LEVEL: 'silent' }
  const loaded = await loadConfig(file, env, checkChain)
  if (!loaded.config) throw new Error(JSON.stringify(loaded.problems))
  const gateway = await Gateway.start(testEnvironment(env), loaded)
  return {
    gateway,
    async stop() {
      await gateway.stop()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
