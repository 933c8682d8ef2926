/** The key type of a key, with the prices that the key pays. */
import type { Config, KeyType, ModelEntry } from '../config/config.ts'
import type { Key } from '../keys/keys.ts'
import { timesKeyFactor } from '../money/price-factor.ts'

/** The types of keys with a factor. They stay the same as long as the key and its type in the file do. */
const own = new WeakMap<object, { readonly of: KeyType; readonly type: KeyType }>()

/** Returns the key type of a key whose type is in the file. Its models have the prices of the key. */
export function typeOf({ keyTypes }: Pick<Config, 'keyTypes'>, key: Pick<Key, 'type' | 'limits'>): KeyType {
  const of = keyTypes.get(key.type) as KeyType
  const factor = key.limits?.priceFactor
  if (factor === undefined) return of
  const known = own.get(key)
  if (known?.of === of) return known.type
  const entries = new Map([...of.models].map(([id, entry]) => [id, priced(entry, factor)]))
  const type = { ...of, models: entries, default: entries.get(of.default.id) ?? of.default }
  own.set(key, { of, type })
  return type
}

function priced(entry: ModelEntry, factor: bigint): ModelEntry {
  return { ...entry, price: timesKeyFactor(entry.price, factor) }
}
