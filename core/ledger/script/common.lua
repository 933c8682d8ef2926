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
-- continue; its cap follows, what it was charged elsewhere, and its windows. The rotation is '' for a quota, which is not a key.
local function off(record, rotation)
  if rotation == '' then return nil end
  local found = redis.call('HMGET', record, field.status, field.expiresAt, field.rotation, field.cap, field.elsewhere,
    field.keyWindows)
  if not found[1] then return nil end
  return barred(found[1], found[2]) or (found[3] ~= rotation and 'rotated' or nil), found[4], found[5], found[6]
end

-- Returns how much a balance gives: the wanted amount, or the whole balance if it is at least `least`. Nil if neither.
local function affordable(balance, wanted, least)
  if balance >= wanted then return wanted end
  if balance > 0 and balance >= least then return balance end
end

-- A hold is one text of seven words: the amount of the balance that it holds; the floor, which is charged if it is reaped; the
-- bucket of its outcome; what an earlier end of the exchange charged (a text of purses.lua), or '-'; its slot or sharer; its
-- claims on windows (purses.lua), or '-'; and the notes of the floor, which may contain spaces. The slot is '1' if the client
-- of the hold has left, else '0'; whether it has a slot now is in key.slots. If the hold is of a key with another name than its
-- account, ':' and the key follow. A hold of a quota that is shared fairly has the key whose share is held instead, as its
-- sharer.
local function writeHold(hold, held, floor, bucket, before, slotOrSharer, claims, notes, condition)
  local text = string.format('%.0f %.0f %s %s %s %s %s', held, floor, bucket, before, slotOrSharer, claims, notes)
  if condition then return redis.call('SET', hold, text, condition) end
  return redis.call('SET', hold, text)
end

local function readHold(text)
  local held, floor, bucket, before, slotOrSharer, claims, notes =
    string.match(text, '^(%d+) (%d+) (%S+) (%S+) (%S+) (%S+) (.*)$')
  return tonumber(held), tonumber(floor), bucket, before, slotOrSharer, claims, notes
end

-- Returns the amount that a hold has in the store.
local function heldBy(hold)
  return string.match(redis.call('GET', hold), '^%d+')
end

-- Writes one entry to the stream of ended exchanges, as one text: kind, account (with '/' and the key, if that has another
-- name), ordinal, id, charge, what an earlier entry of this id charged, with its parts (a text of purses.lua), what was granted less what was charged after it,
-- waived amount, key of the bucket of its outcome, what a plan has covered (or '-'), and the gateway's notes. A stream stores
-- one text much faster than ten fields.
local function record(stream, outcomes, sums, entry)
  local name = entry.owner == '' and entry.name or entry.name .. '/' .. entry.owner
  redis.call('XADD', stream, '*', 'e', string.format('%s %s %.0f %s %.0f %s %.0f %.0f %s %s %s', entry.kind, name,
    sums.ordinal, entry.id, entry.charge, entry.before, sums.balance + sums.held, entry.waived, outcomes,
    entry.plan or '-', entry.notes))
end

-- An outcome says how an exchange ended: 'F' (for good) or 'R' (reaped), and the charge. If reaped, ':' and the ordinal
-- of its entry follow, and ':' and when it was reaped first, in milliseconds since the epoch.
local function isForGood(outcome)
  return outcome and string.sub(outcome, 1, 1) == 'F'
end

-- Returns the ordinal of the entry of a reaped exchange, and when it was reaped first, by its outcome; nil for any other outcome.
local function reapedAt(outcome)
  local ordinal, at = string.match(outcome or '', '^R.*:(%d+):(%d+)$')
  return tonumber(ordinal), tonumber(at)
end

-- Returns the slot of a hold, and the key that it is of: '' if it has the name of its account.
local function readSlot(slotOrSharer)
  return string.match(slotOrSharer, '^([01]):?(.*)$')
end

-- Returns the key of the slots of a key, given those of the key with the name of the account.
local function slotsOf(slots, owner)
  return owner == '' and slots or slots .. ':' .. owner
end

local function slotText(slot, owner)
  return owner == '' and slot or slot .. ':' .. owner
end

-- Returns the sum of two whole numbers beyond the exact numbers of Lua, as a text.
local function added(one, other)
  local UNIT = 1000000000
  local function halves(text)
    local sign, digits = string.match(text, '^(-?)(%d+)$')
    local factor = sign == '-' and -1 or 1
    return factor * (tonumber(string.sub(digits, 1, -10)) or 0), factor * tonumber(string.sub(digits, -9))
  end
  local high, low = halves(one)
  local more, rest = halves(other)
  high, low = high + more, low + rest
  local sign = (high < 0 or (high == 0 and low < 0)) and -1 or 1
  high, low = sign * high, sign * low
  high = high + math.floor(low / UNIT)
  low = low % UNIT
  return (sign < 0 and '-' or '') .. (high > 0 and whole(high) .. string.format('%09.0f', low) or whole(low))
end

-- The sums of an account: what is left, what is held, the number of holds, the last ordinal, and what was granted. If several
-- keys spend from it, it has a part for each: a field with what the key was charged, what it holds, the number of its holds, and
-- a number that grows with each end. The field is named after the key; '' stands for the key with the name of the account. Only
-- the part of one key is read. Nil if the account is not here. Every end of a hold changes the sums.
local PART = field.part

-- further: names of fields that are read with them. Their values follow.
local function readSums(account, owner, further)
  local found = redis.call('HMGET', account, field.balance, field.held, field.holds, field.ordinal, field.granted,
    PART .. owner, unpack(further or {}))
  if not found[1] then return nil end
  local sums = { balance = tonumber(found[1]), held = tonumber(found[2]), holds = tonumber(found[3]),
    ordinal = tonumber(found[4]), granted = found[5] }
  if found[6] or owner ~= '' then
    local charged, held, holds, ends = string.match(found[6] or '0 0 0', '^(%S+) (%S+) (%S+) ?(%d*)$')
    sums.part = { charged = charged, held = tonumber(held), holds = tonumber(holds), ends = tonumber(ends) or 0 }
  end
  return sums, unpack(found, 7)
end

-- Changes sums by a charge, by what is held more, and by a number of holds.
local function book(sums, charge, held, holds)
  sums.balance = sums.balance - charge - held
  sums.held, sums.holds = sums.held + held, sums.holds + holds
  local part = sums.part
  if part then
    part.charged, part.held, part.holds = added(part.charged, whole(charge)), part.held + held, part.holds + holds
    -- What a plan covers changes nothing else.
    if held <= 0 then part.ends = part.ends + 1 end
  end
end

local function partText(part)
  return string.format('%s %.0f %.0f %.0f', part.charged, part.held, part.holds, part.ends)
end

-- more: further fields with their values.
local function writeSums(account, owner, sums, more)
  local part, fields = sums.part, more or {}
  if part then
    fields[#fields + 1] = PART .. owner
    fields[#fields + 1] = partText(part)
  end
  redis.call('HSET', account, field.balance, whole(sums.balance), field.held, whole(sums.held), field.holds,
    whole(sums.holds), field.ordinal, whole(sums.ordinal), unpack(fields))
end

-- Writes changed fields of the record of a key: beside the fields of its account that are written later, if both are one hash.
local function writeRecord(account, record, changed, fields)
  if record ~= account then
    if #changed > 0 then redis.call('HSET', record, unpack(changed)) end
    return
  end
  for _, value in ipairs(changed) do fields[#fields + 1] = value end
end

-- Returns what a key may hold: the balance, or what is left below its cap for life. '' is none. elsewhere is what it was charged
-- on balances from which it was moved away.
local function roomOf(sums, cap, elsewhere)
  if (cap or '') == '' then return sums.balance end
  local part = sums.part
  local used = part and added(part.charged, whole(part.held)) or added(sums.granted, whole(-sums.balance))
  return math.min(sums.balance, tonumber(cap) - tonumber(elsewhere or '0') - tonumber(used))
end

-- Whether an account is a quota (OF_QUOTAS in store-keys.ts). Its exchanges get no entries.
local function isQuota(name)
  return string.sub(name, 1, 6) == 'quota:'
end
