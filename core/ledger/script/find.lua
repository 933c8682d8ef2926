-- find: reads a key by the digest of its secret, in one trip: fields of its record, and of its account, the last of which is the
-- key's part. KEYS: the pointer. ARGV: the prefix of the store's keys, how many fields are of the record, these fields, and those of
-- the account. Only for a store on one server: the other keys follow from the pointer.
local pointed = redis.call('GET', KEYS[1])
if not pointed then return {} end
local account, id, shard = string.match(pointed, '^(%S+) (%S+) (%d+)$')
local owner = id == account and '' or id
local base = ARGV[1] .. ':{' .. shard .. '}:'
local own = base .. 'a:' .. account
local record = owner == '' and own or base .. 'k:' .. account .. ':' .. owner
local fields = { unpack(ARGV, tonumber(ARGV[2]) + 3) }
fields[#fields] = fields[#fields] .. owner
return { pointed, redis.call('HMGET', record, unpack(ARGV, 3, tonumber(ARGV[2]) + 2)), redis.call('HMGET', own, unpack(fields)) }
