// Prints the keys of claude-relay-service, in dollars. What is left of a total cost limit becomes credits; a key without one
// gets none. It reads only.
//   REDIS_URL=redis://127.0.0.1:6379 node examples/moving/claude-relay-service.js > keys.csv
import { Redis } from 'ioredis'

const redis = new Redis(process.env.REDIS_URL ?? 'redis://127.0.0.1:6379')
const line = values => values.map(value => `"${String(value).replaceAll('"', '""')}"`).join(',')

/** Reads a JSON text under a name, such as a user. */
async function read(name) {
  const text = await redis.get(name)
  return text === null ? undefined : JSON.parse(text)
}

const seen = new Set()
console.log('hash,name,credits,expires,status')
for await (const names of redis.scanStream({ match: 'apikey:*', count: 500 })) {
  for (const name of names) {
    const [, id] = name.split(':')
    // A scan may find a name twice.
    if (name !== `apikey:${id}` || id === 'hash_map' || seen.has(id)) continue
    seen.add(id)
    const key = await redis.hgetall(name)
    if (!key.apiKey || key.isDeleted === 'true') continue
    const limit = Number(key.totalCostLimit || 0)
    const used = Number((await redis.get(`usage:cost:total:${id}`)) ?? 0)
    const isWaiting = key.expirationMode === 'activation' && key.isActivated !== 'true'
    const owner = key.userId ? await read(`user:${key.userId}`) : { isActive: true }
    const status = key.isActive === 'true' && owner?.isActive ? 'active' : 'disabled'
    // A key that was not used yet has no expiry; its time begins now.
    const days = Number(key.activationDays || 30) * (key.activationUnit === 'hours' ? 1 / 24 : 1)
    const expires = isWaiting ? new Date(Date.now() + days * 86_400_000).toISOString() : (key.expiresAt ?? '')
    const credits = limit > 0 ? (limit - used).toFixed(9) : ''
    console.log(line([`sha256-suffix:${key.apiKey}`, key.name ?? '', credits, expires, status]))
  }
}
await redis.quit()
