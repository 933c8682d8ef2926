/** What the processes share about their store as a whole. */
import type { Commit } from '../../records/lineage.ts'
import type { Scripts } from '../script/scripts.ts'
import { orUnavailable } from '../../records/unavailable.ts'

/** The state of a store, as its processes share it. */
export interface SharedState {
  /** Everything that the store acknowledged up to here is recorded, in milliseconds of the store's clock. */
  readonly recordedUntil: number
  /** Bytes of ended exchanges that wait to be recorded. */
  readonly backlogBytes: number
  /** When the oldest of them ended, in milliseconds of the store's clock; 0 if none waits. */
  readonly oldestMs: number
}

/** The id of a store whose records are used with another one. */
export const REPLACED = 'replaced'

const REPLACE = `if redis.call('HGET', KEYS[1], 'store') == ARGV[1] then
  return redis.call('HSET', KEYS[1], 'store', ARGV[2])
end
return 0`

const NOTE_COMMIT = `local known = redis.call('HGET', KEYS[1], 'commit')
if known and tonumber(string.match(known, '^%d+')) >= tonumber(ARGV[1]) then return 0 end
return redis.call('HSET', KEYS[1], 'commit', ARGV[2])`

/** Writes a commit of the records for its field. */
export function commitText({ no, id, branch }: Commit): string {
  return `${no} ${id} ${branch}`
}

/** Reads the latest commit of the records from its field. */
export function commitFrom(text: string | null | undefined): Commit | undefined {
  const [no = '', id = '', branch = ''] = text?.split(' ') ?? []
  return id === '' ? undefined : { no: Number(no), id, branch }
}

/** The fields about one store. */
export class StoreMeta {
  readonly #scripts: Scripts

  constructor(scripts: Scripts) {
    this.#scripts = scripts
  }

  /** Returns fields; null for those that are missing. @throws GatewayError unavailable */
  get(...names: readonly string[]): Promise<(string | null)[]> {
    return orUnavailable(this.#scripts.redis.hmget(this.#key, ...names))
  }

  /** Writes fields, also to a full store. @throws GatewayError unavailable */
  async set(fields: Readonly<Record<string, string>>): Promise<void> {
    await this.#scripts.write('HSET', this.#key, ...Object.entries(fields).flat())
  }

  /** Shares how far the store is recorded. @throws GatewayError unavailable */
  share({ recordedUntil, backlogBytes, oldestMs }: Partial<SharedState>): Promise<void> {
    return this.set({
      ...(recordedUntil !== undefined && { recordedUntil: String(recordedUntil) }),
      ...(backlogBytes !== undefined && { backlog: String(backlogBytes) }),
      ...(oldestMs !== undefined && { oldest: String(oldestMs) }),
    })
  }

  /** Notes a commit of the records, unless a later one is noted. @throws GatewayError unavailable */
  async noteCommit(commit: Commit): Promise<void> {
    await this.#scripts.evaluate(NOTE_COMMIT, this.#key, commit.no, commitText(commit))
  }

  /** Notes that the records are used with another store, unless this store has got another id meanwhile. */
  async replace(id: string): Promise<void> {
    await this.#scripts.evaluate(REPLACE, this.#key, id, REPLACED)
  }

  get #key(): string {
    return this.#scripts.keys.shared('meta')
  }
}
