-- The operations of the ledger. One call of the script runs a batch of them, each on the keys of one account, which all
-- carry the tag of its shard.
-- key.NAME and arg.NAME are the keys and the arguments of an operation, and field.NAME is a field of an account. names.ts
-- has all names; the gateway replaces them by positions and short names when it loads the script. So key and arg are no
-- tables: only the text of an operation itself can use them.
-- KEYS: for each operation its keys, in their order. ARGV: for each operation its name and its arguments.
-- Amounts are strings of at most 15 digits. A balance stays below 2^53 nano-credits, so Lua numbers are exact. The sum
-- of all grants may exceed that, and is a text.
local operations = {}

local SECOND, MINUTE, HOUR = 1000, 60000, 3600000

-- Milliseconds since the epoch, read once in a call.
local current
local function now()
  if not current then
    local time = redis.call('TIME')
    current = time[1] * SECOND + math.floor(time[2] / 1000)
  end
  return current
end

-- Returns the text of a whole number.
local function whole(number)
  return string.format('%.0f', number)
end

-- Returns the amount that an argument has.
local function amount(text)
  if not string.match(text, '^%d+$') or #text > 15 then error('amount out of range') end
  return tonumber(text)
end

-- Returns why a key may not be used: its status, or its expiry. Nil if it may.
local function barred(status, expiresAt)
  if status ~= 'active' then return 'disabled' end
  if expiresAt ~= '' and tonumber(expiresAt) <= now() then return 'expired' end
end

-- Returns why the requests of a key must end: its status, its expiry, or a rotation since they began. Nil if they may
-- continue. The rotation is '' for a quota, which is not a key.
local function off(account, rotation)
  if rotation == '' then return nil end
  local found = redis.call('HMGET', account, field.status, field.expiresAt, field.rotation)
  if not found[1] then return nil end
  return barred(found[1], found[2]) or (found[3] ~= rotation and 'rotated' or nil)
end

-- Returns how much a balance gives: the wanted amount, or the whole balance if it is at least `least`. Nil if neither.
local function affordable(balance, wanted, least)
  if balance >= wanted then return wanted end
  if balance > 0 and balance >= least then return balance end
end

-- A hold is one text of six words: the held amount; the floor, which is charged if the hold is reaped; the bucket of its
-- outcome; what an earlier end of the exchange charged, or '-'; its slot or sharer; and the notes of the floor, which may
-- contain spaces. The slot is '1' if the client of the hold has left, else '0'; whether it has a slot now is in key.slots. A
-- hold of a quota that is shared fairly has the key whose share is held instead, as its sharer.
local function writeHold(hold, held, floor, bucket, before, slotOrSharer, notes, condition)
  local text = string.format('%.0f %.0f %s %s %s %s', held, floor, bucket, before, slotOrSharer, notes)
  if condition then return redis.call('SET', hold, text, condition) end
  return redis.call('SET', hold, text)
end

local function readHold(text)
  local held, floor, bucket, before, slotOrSharer, notes = string.match(text, '^(%d+) (%d+) (%S+) (%S+) (%S+) (.*)$')
  return tonumber(held), tonumber(floor), bucket, before, slotOrSharer, notes
end

-- Returns the amount that a hold has in the store.
local function heldBy(hold)
  return string.match(redis.call('GET', hold), '^%d+')
end

-- Writes one entry to the stream of ended exchanges, as one text: kind, account, ordinal, id, charge, what an earlier entry
-- of this id charged, what was granted less what was charged after it, waived amount, key of the bucket of its outcome, and
-- the gateway's notes. A stream stores one text much faster than ten fields.
local function record(stream, outcomes, entry)
  redis.call('XADD', stream, '*', 'e', string.format('%s %s %.0f %s %.0f %.0f %.0f %.0f %s %s', entry.kind, entry.name,
    entry.ordinal, entry.id, entry.charge, entry.before, entry.left, entry.waived, outcomes, entry.notes))
end

-- An outcome says how an exchange ended: 'F' (for good) or 'R' (reaped), and the charge. If reaped, ':' and the ordinal
-- of its entry follow.
local function isForGood(outcome)
  return outcome and string.sub(outcome, 1, 1) == 'F'
end

local function chargeIn(outcome)
  return tonumber(string.match(outcome, '^%u(%-?%d+)'))
end

-- Returns the balance of an account, what it has held, the number of its holds, and its last ordinal. Nil if it is not
-- here. Every end of a hold changes these fields.
local function sums(account)
  local found = redis.call('HMGET', account, field.balance, field.held, field.holds, field.ordinal)
  if not found[1] then return nil end
  return tonumber(found[1]), tonumber(found[2]), tonumber(found[3]), tonumber(found[4])
end

local function writeSums(account, balance, held, holds, ordinal)
  redis.call('HSET', account, field.balance, whole(balance), field.held, whole(held), field.holds, whole(holds),
    field.ordinal, whole(ordinal))
end

-- Whether an account is a quota (OF_QUOTAS in store-keys.ts). Its exchanges get no entries.
local function isQuota(name)
  return string.sub(name, 1, 6) == 'quota:'
end

-- Frees the slot that a hold was given for a reply whose client left.
local function leaveSlot(account, slots, id)
  if redis.call('ZREM', slots, id) == 1 then redis.call('HINCRBY', account, field.abandoned, -1) end
end
