-- The operations of the ledger. One call of the script runs a batch of them, each on the keys of one account.
-- KEYS: eight for each account: its hash, holds by end of lease, holds by id, history, grants, tombstones, counters,
-- abandoned holds; then two for each operation: the result of its id, and the attempts at the same request.
-- ARGV: for each operation one line with the index of its account, one with its name, and one for each argument.
-- Amounts are strings of at most 15 digits. They are only added by HINCRBY, since a Lua number would round them.
local ACCOUNT, LEASES, HOLDS, HISTORY, GRANTS, TOMBS, COUNTERS, ABANDONED, OUTCOME, ATTEMPTS

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function whole(number)
  return string.format('%.0f', number)
end

local function amount(text)
  if not string.match(text, '^%d+$') or #text > 15 then error('amount out of range') end
  return text
end

local function add(field, text)
  if text ~= '0' then redis.call('HINCRBY', ACCOUNT, field, text) end
end

local function subtract(field, text)
  if text ~= '0' then redis.call('HINCRBY', ACCOUNT, field, '-' .. text) end
end

local function get(field)
  return redis.call('HGET', ACCOUNT, field) or ''
end

local function number(field)
  return redis.call('HGET', ACCOUNT, field) or '0'
end

local function balance()
  return number('bal')
end

-- Writes one entry to the history or to the grants: kind, id, charge, earlier charge for the id, balance after it, and
-- the gateway's notes.
local function record(stream, kind, id, charge, before, notes, waived)
  if waived and waived ~= '0' then
    redis.call('XADD', stream, '*', 'k', kind, 'id', id, 'c', charge, 'p', before, 'b', balance(), 'm', notes, 'w', waived)
  else
    redis.call('XADD', stream, '*', 'k', kind, 'id', id, 'c', charge, 'p', before, 'b', balance(), 'm', notes)
  end
end

-- Updates the counters for summaries: in total, by UTC day, and by model. The counters of a day are deleted after 90
-- days.
local function count(charge, model, input, output)
  local day = math.floor(now() / 86400000)
  local today = 'd:' .. whole(day)
  if redis.call('HEXISTS', COUNTERS, today .. ':n') == 0 then
    for _, part in ipairs({ ':n', ':i', ':o', ':c' }) do
      redis.call('HDEL', COUNTERS, 'd:' .. whole(day - 90) .. part)
    end
  end
  for _, scope in ipairs({ 'all', today, 'm:' .. model }) do
    redis.call('HINCRBY', COUNTERS, scope .. ':n', 1)
    if input ~= '0' then redis.call('HINCRBY', COUNTERS, scope .. ':i', input) end
    if output ~= '0' then redis.call('HINCRBY', COUNTERS, scope .. ':o', output) end
    if charge ~= '0' then redis.call('HINCRBY', COUNTERS, scope .. ':c', charge) end
  end
end

-- Ends a hold and charges for it. Returns false if there is no such hold.
local function close(id, charge)
  local hold = redis.call('HGET', HOLDS, id)
  if not hold then return false end
  local held = string.match(hold, '^(%d+):')
  add('bal', held)
  subtract('bal', charge)
  subtract('rsv', held)
  add('set', charge)
  redis.call('HDEL', HOLDS, id)
  redis.call('ZREM', LEASES, id)
  redis.call('ZREM', ABANDONED, id)
  return true
end

-- Returns what was charged for a hold when it was reaped, which its final settlement corrects. False if it was not
-- reaped.
local function reaped(id)
  local floor = string.match(redis.call('HGET', TOMBS, id) or '', '^%d+')
  if not floor then return false end
  add('bal', floor)
  subtract('set', floor)
  redis.call('HDEL', TOMBS, id)
  return floor
end

-- Ends expired holds and charges their floor: what the customer is known to have received.
local function reap(time, limit)
  local expired = redis.call('ZRANGEBYSCORE', LEASES, '-inf', '(' .. whole(time), 'LIMIT', 0, limit)
  for _, id in ipairs(expired) do
    local floor, notes = string.match(redis.call('HGET', HOLDS, id) or '', '^%d+:(%d+):(.*)$')
    if floor and close(id, floor) then
      local earlier = reaped(id)
      redis.call('HSET', TOMBS, id, floor .. ':' .. whole(time))
      record(HISTORY, earlier and 'late' or 'reaped', id, floor, earlier or '0', notes)
    else
      redis.call('ZREM', LEASES, id)
    end
  end
  return #expired
end

local operations = {}

-- Returns why a key may not be used: its status, or its expiry. Nil if it may.
local function barred()
  if get('status') ~= 'active' then return 'disabled' end
  local expires = get('expires')
  if expires ~= '' and tonumber(expires) <= now() then return 'expired' end
end

-- Returns the fields of a stream entry by name.
local function fields_of(entry)
  local fields = {}
  for at = 1, #entry[2], 2 do fields[entry[2][at]] = entry[2][at + 1] end
  return fields
end

-- Returns why the requests of a key must end: its status, its expiry, or a rotation since they began. Nil if they may
-- continue. The rotation is '' for a quota, which is not a key.
local function off(rotation)
  if not rotation or rotation == '' then return nil end
  local reason = barred()
  if reason then return reason end
  if get('rot') ~= (rotation == '0' and '' or rotation) then return 'rotated' end
end

-- Holds the requested amount, or what the balance covers if that is at least `least`. Returns false otherwise.
-- With `half`, an amount above half of the balance is reduced to that half, but not below `least`.
local function take(wanted, least, half)
  if half and string.sub(balance(), 1, 1) ~= '-' then
    local share = math.max(math.floor(tonumber(balance()) / 2), tonumber(least))
    if tonumber(wanted) > share then wanted = whole(share) end
  end
  subtract('bal', wanted)
  if string.sub(balance(), 1, 1) == '-' then
    add('bal', wanted)
    -- It is less than requested, so it has at most 15 digits, which a Lua number represents exactly.
    if balance() == '0' or string.sub(balance(), 1, 1) == '-' or tonumber(balance()) < tonumber(least) then
      return false
    end
    wanted = balance()
    subtract('bal', wanted)
  end
  add('rsv', wanted)
  return wanted
end
