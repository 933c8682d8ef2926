-- The operations of the ledger. One call of the script runs a batch of them, each on the keys of one account, which all
-- carry the tag of its shard.
-- KEYS: for each operation the keys that it names, in its order. ARGV: for each operation its name and its arguments.
-- Amounts are strings of at most 15 digits. A balance stays below 2^53 nano-credits, so Lua numbers are exact. The sum
-- of all grants may exceed that, and is a text.
local operations = {}

-- Milliseconds since the epoch, read once in a call.
local current
local function now()
  if not current then
    local time = redis.call('TIME')
    current = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return current
end

local function whole(number)
  return string.format('%.0f', number)
end

local function amount(text)
  if not string.match(text, '^%d+$') or #text > 15 then error('amount out of range') end
  return tonumber(text)
end

-- Returns why a key may not be used: its status, or its expiry. Nil if it may.
local function barred(status, expires)
  if status ~= 'active' then return 'disabled' end
  if expires ~= '' and tonumber(expires) <= now() then return 'expired' end
end

-- Returns why the requests of a key must end: its status, its expiry, or a rotation since they began. Nil if they may
-- continue. The rotation is '' for a quota, which is not a key.
local function off(account, rotation)
  if rotation == '' then return nil end
  local key = redis.call('HMGET', account, 'st', 'ex', 'ro')
  if not key[1] then return nil end
  return barred(key[1], key[2]) or (key[3] ~= rotation and 'rotated' or nil)
end

-- Returns how much a balance gives: the wanted amount, or the whole balance if it is at least `least`. Nil if neither.
local function affordable(balance, wanted, least)
  if balance >= wanted then return wanted end
  if balance > 0 and balance >= least then return balance end
end

-- A hold is one text: amount, floor, bucket of its outcome, the charge of an earlier end or '-', '1' if it was given a
-- place for a reply whose client left, otherwise '0', and the notes of its floor. A hold on a quota that is shared fairly
-- has the key whose share it is instead of the '0'.
local function writeHold(key, held, floor, bucket, before, placed, notes, condition)
  local text = string.format('%.0f %.0f %s %s %s %s', held, floor, bucket, before, placed, notes)
  if condition then return redis.call('SET', key, text, condition) end
  return redis.call('SET', key, text)
end

local function readHold(text)
  local held, floor, bucket, before, placed, notes = string.match(text, '^(%d+) (%d+) (%S+) (%S+) (%S+) (.*)$')
  return tonumber(held), tonumber(floor), bucket, before, placed, notes
end

-- Writes one entry to the stream of ended exchanges, as one text: kind, account, number of the entry in its account, id,
-- charge, what an earlier entry of this id charged, what was granted less what was charged after it, waived amount, bucket of the outcome, and the
-- gateway's notes. A stream stores one text much faster than ten fields.
local function record(stream, outcomes, kind, account, ordinal, id, charge, before, balance, waived, notes)
  redis.call('XADD', stream, '*', 'e', string.format('%s %s %.0f %s %.0f %.0f %.0f %.0f %s %s', kind, account, ordinal, id,
    charge, before, balance, waived, outcomes, notes))
end

-- What an outcome says was charged. An outcome is 'F' or 'R' (reaped) and the charge; if reaped, also ':' and the number
-- of the entry.
local function chargeIn(outcome)
  return tonumber(string.match(outcome, '^%u(%-?%d+)'))
end

-- The fields of an account that every end of a hold changes.
local function sums(account)
  local found = redis.call('HMGET', account, 'bal', 'rsv', 'n', 'sq')
  if not found[1] then return nil end
  return tonumber(found[1]), tonumber(found[2]), tonumber(found[3]), tonumber(found[4])
end

-- Frees the place that a hold was given for a reply whose client left.
local function leavePlace(account, places, id)
  if redis.call('ZREM', places, id) == 1 then redis.call('HINCRBY', account, 'ab', -1) end
end
