/** Duties: work that one process at a time does for all that use a store. */
import type { Scripts } from '../script/scripts.ts'

/** Takes a duty that no process has, or extends one that the process already has. */
const TAKE = `local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if holder then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`

const RENEW = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`

const RELEASE = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`

/** A duty, as one process sees it. It passes to another process when it is not renewed in time. */
export class Duty {
  readonly #scripts: Scripts
  readonly #key: string
  readonly #token: string
  readonly #ms: number

  /**
   * @param token identifies the process
   * @param ms how long the duty is this process's without a renewal
   */
  constructor(scripts: Scripts, key: string, token: string, ms: number) {
    this.#scripts = scripts
    this.#key = key
    this.#token = token
    this.#ms = ms
  }

  /** Takes the duty, or renews it. @returns whether this process has it @throws GatewayError unavailable */
  take(): Promise<boolean> {
    return this.#run(TAKE, this.#token, String(this.#ms))
  }

  /** Whether a process has the duty. @throws GatewayError unavailable */
  async isTaken(): Promise<boolean> {
    return (await this.#scripts.evaluate("return redis.call('EXISTS', KEYS[1])", this.#key)) === 1
  }

  /** Renews the duty. @returns false if this process no longer has it @throws GatewayError unavailable */
  renew(): Promise<boolean> {
    return this.#run(RENEW, this.#token, String(this.#ms))
  }

  /** Gives the duty back, if this process has it. @throws GatewayError unavailable */
  async release(): Promise<void> {
    await this.#run(RELEASE, this.#token)
  }

  /** Takes the duty away from whichever process has it. @throws GatewayError unavailable */
  async revoke(): Promise<void> {
    await this.#scripts.evaluate("return redis.call('DEL', KEYS[1])", this.#key)
  }

  async #run(script: string, ...args: string[]): Promise<boolean> {
    return (await this.#scripts.evaluate(script, this.#key, ...args)) === 1
  }
}
