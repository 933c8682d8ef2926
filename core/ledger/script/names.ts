/**
 * The names of the script: the fields of an account, and the keys and arguments of each operation, in their order. The
 * Lua files use the names; `scriptOf` replaces them when the script is loaded, so that they cost nothing at run time.
 * docs/ledger.md explains the fields; the text of an operation explains its arguments.
 */
import type { Redis } from 'ioredis'

/**
 * The fields of an account and of a key's record in the store, by their names. The record of a key with the name of its account is
 * a part of the account. Fields of quotas stand at the end.
 */
export const FIELDS = {
  balance: 'bal',
  held: 'rsv',
  holds: 'n',
  granted: 'gra',
  grants: 'gn',
  ordinal: 'sq',
  version: 've',
  type: 'ty',
  status: 'st',
  expiresAt: 'ex',
  digest: 'sec',
  label: 'la',
  rotation: 'ro',
  createdAt: 'cr',
  part: 'u:',
  cap: 'cap',
  elsewhere: 'ew',
  lifetime: 'li',
  home: 'at',
  ahead: 'ah',
  limits: 'lm',
  keyWindows: 'kw',
  rates: 'rt',
  plan: 'pl',
  planVersion: 'pv',
  windows: 'pw',
  filledUpTo: 'fr',
  filledHour: 'fh',
  longestWaitSince: 'wf',
  longestWaitUntil: 'wu',
  waiverHour: 'wh',
  waivers: 'wn',
  freeMinute: 'fm',
  freeEntries: 'fn',
  unlisted: 'fu',
  unusedShares: 'sh',
} as const

/** The name of a field of an account. */
export type FieldName = keyof typeof FIELDS

/**
 * Reads fields of an account, by their names. Null for those that it does not have.
 * @param others fields with other short names
 */
export async function readFields<const N extends FieldName>(
  redis: Pick<Redis, 'hmget'>,
  account: string,
  names: readonly N[],
  others: Readonly<Partial<Record<FieldName, string>>> = {},
): Promise<Readonly<Record<N, string | null>>> {
  const values = await redis.hmget(account, ...names.map(name => others[name] ?? FIELDS[name]))
  return Object.fromEntries(names.map((name, at) => [name, values[at] ?? null])) as Record<N, string | null>
}

/** The keys and the arguments of an operation, in the order in which the script gets them. */
interface Signature {
  readonly keys: readonly string[]
  readonly args: readonly string[]
}

/** The operations of the script. */
export const OPERATIONS = {
  hold: {
    keys: ['account', 'record', 'hold', 'leases', 'slots'],
    args: [
      'lease',
      'amount',
      'least',
      'leaseMs',
      'version',
      'concurrency',
      'half',
      'bucket',
      'notes',
      'waitedMs',
      'owner',
      'planVersion',
      'windows',
      'credits',
      'typeCap',
      'keyWindows',
      'rates',
      'tokens',
      'leastTokens',
    ],
  },
  quota: {
    keys: ['account', 'hold', 'leases', 'shares'],
    args: ['lease', 'amount', 'least', 'leaseMs', 'windows', 'sharer', 'bucket', 'notes'],
  },
  extend: {
    keys: ['account', 'record', 'hold', 'leases', 'outcomes', 'slotsOrShares'],
    args: [
      'lease',
      'id',
      'amount',
      'leaseMs',
      'rotation',
      'floor',
      'bucket',
      'notes',
      'verdict',
      'owner',
      'windows',
      'keyWindows',
      'typeCap',
      'tokens',
      'claims',
    ],
  },
  renew: {
    keys: ['record', 'hold', 'leases', 'slots'],
    args: ['lease', 'id', 'floor', 'leaseMs', 'rotation', 'abandoned', 'notes', 'tokens'],
  },
  abandon: { keys: ['hold', 'slots'], args: ['id', 'most', 'readToEnd'] },
  rejoin: { keys: ['slots'], args: ['id'] },
  settle: {
    keys: ['account', 'hold', 'leases', 'stream', 'outcomes', 'slotsOrShares', 'resends'],
    args: [
      'lease',
      'id',
      'name',
      'charge',
      'kind',
      'notes',
      'verdict',
      'part',
      'resendsMs',
      'waiversMax',
      'freeEntriesMax',
      'owner',
      'tokens',
      'claims',
    ],
  },
  reap: {
    keys: ['account', 'hold', 'leases', 'stream', 'outcomes', 'slotsOrShares'],
    args: ['lease', 'id', 'name'],
  },
  open: { keys: ['account'], args: ['name', 'grants', 'granted', 'settled', 'ordinal', 'shared', 'parts'] },
  put: {
    keys: ['record'],
    args: [
      'version',
      'type',
      'status',
      'expiresAt',
      'digest',
      'label',
      'rotation',
      'createdAt',
      'cap',
      'elsewhere',
      'lifetime',
      'home',
      'limits',
    ],
  },
  disable: { keys: ['record'], args: [] },
  plan: { keys: ['account'], args: ['version', 'plan', 'windows'] },
  windows: { keys: ['account'], args: ['before', 'windows'] },
  fill: {
    keys: ['account', 'record', 'leases'],
    args: ['name', 'owner', 'seen', 'elsewhere', 'windows', 'holdPrefix'],
  },
  grant: { keys: ['account'], args: ['number', 'amount'] },
  credit: {
    keys: ['account', 'record', 'stream', 'outcomes'],
    args: ['id', 'name', 'amount', 'plan', 'notes', 'owner', 'beganAt'],
  },
  replay: {
    keys: ['account', 'hold', 'leases', 'outcomes', 'slots'],
    args: [
      'lease',
      'id',
      'ordinal',
      'charge',
      'how',
      'before',
      'recent',
      'reapedCharge',
      'owner',
      'plan',
      'kind',
      'endedAt',
    ],
  },
  recount: { keys: ['account', 'leases', 'slotsOrShares'], args: ['name', 'holdPrefix', 'leaseMs', 'seen'] },
  claim: { keys: ['claim'], args: ['value', 'ms'] },
  release: { keys: ['claim'], args: ['value'] },
  keep: { keys: ['items', 'ends', 'sizes'], args: ['name', 'id', 'value', 'ms', 'accountMax', 'shardMax'] },
} as const satisfies Readonly<Record<string, Signature>>

/** The name of an operation. */
export type OperationName = keyof typeof OPERATIONS

/** The keys of an operation, by their names. */
export type KeysOf<N extends OperationName> = Readonly<Record<(typeof OPERATIONS)[N]['keys'][number], string>>

/** The arguments of an operation, by their names. True is written as `1`, and false as nothing. */
export type ArgsOf<N extends OperationName> = Readonly<
  Record<(typeof OPERATIONS)[N]['args'][number], string | number | bigint | boolean>
>

/** One operation on the keys of one account. */
export interface Operation {
  readonly name: OperationName
  readonly account: string
  /** In the order that the operation expects. */
  readonly keys: readonly string[]
  readonly args: readonly string[]
}

/** Puts the keys and the arguments of an operation in their order. */
export function operation<N extends OperationName>(
  name: N,
  account: string,
  keys: KeysOf<N>,
  args: ArgsOf<N>,
): Operation {
  const signature: Signature = OPERATIONS[name]
  const [byKey, byName] = [keys as Readonly<Record<string, string>>, args as Readonly<Record<string, unknown>>]
  return {
    name,
    account,
    keys: signature.keys.map(key => byKey[key] as string),
    args: signature.args.map(arg => argText(byName[arg])),
  }
}

function argText(value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value === 'boolean') return value ? '1' : ''
  return String(value)
}

/** The first and the last line of an operation in the text of the script. */
const BEGINNING = /^operations\.(\w+) = function\(key, arg\)$/
const END = 'end'

/**
 * Returns the script that the store runs. `field.NAME` becomes the short name of a field, `key.NAME` and `arg.NAME` the
 * positions of a key and of an argument.
 * @param text the Lua files, one after the other
 * @throws Error if the text has a name that the tables do not have
 */
export function scriptOf(text: string): string {
  let current: Signature | undefined
  const lines = text.split('\n').map(line => {
    if (line.startsWith('--')) return line
    const [, begun] = BEGINNING.exec(line) ?? []
    if (begun !== undefined) {
      current = OPERATIONS[known(OPERATIONS, begun)]
      return `operations['${begun}'] = { ${current.keys.length}, ${current.args.length}, function(k, a)`
    }
    if (current && line === END) {
      current = undefined
      return 'end }'
    }
    return line.replaceAll(/\b(field|key|arg)\.(\w+)/g, (_, kind: string, name: string) => {
      if (kind === 'field') return `'${FIELDS[known(FIELDS, name)]}'`
      const at = (kind === 'key' ? current?.keys : current?.args)?.indexOf(name) ?? -1
      if (at < 0) throw new Error(`the script has an unknown name ${kind}.${name}: ${line}`)
      return kind === 'key' ? `KEYS[k + ${at}]` : `ARGV[a + ${at}]`
    })
  })
  return lines.join('\n')
}

function known<T extends object>(table: T, name: string): keyof T {
  if (!Object.hasOwn(table, name)) throw new Error(`the script has an unknown name: ${name}`)
  return name as keyof T
}
