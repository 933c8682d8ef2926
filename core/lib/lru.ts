/**
 * Caches that forget what was used longest ago. lru-cache allocates its whole room at once if its number of entries is
 * limited, but grows if their sizes are. So here each entry has the size 1.
 */
import { LRUCache } from 'lru-cache'

/**
 * Creates a cache.
 * @param most entries that it keeps
 * @param options such as `ttl`
 */
export function lru<K extends {}, V extends {}>(
  most: number,
  options: { readonly ttl?: number; readonly ttlResolution?: number } = {},
): LRUCache<K, V> {
  return new LRUCache<K, V>({ ...options, maxSize: most, sizeCalculation: () => 1 })
}
