#!lua flags=allow-oom
-- Shared by all scripts of the ledger. KEYS are those of one account, in one cluster slot:
--   1 account hash   2 holds by lease end   3 holds by id   4 history   5 tombstones   6 counters   7 outcome of this id
-- Amounts are strings of at most 15 digits and are only ever added by HINCRBY: a Lua number would round them.
local ACCOUNT, LEASES, HOLDS, HISTORY, TOMBS, COUNTERS, OUTCOME = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]

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

-- One entry of the history: kind, id, charge, what was charged for the id before, balance after, and the gateway's notes.
local function record(kind, id, charge, before, notes)
  redis.call('XADD', HISTORY, '*', 'k', kind, 'id', id, 'c', charge, 'p', before, 'b', balance(), 'm', notes)
end

-- Counters for summaries: in all, by UTC day, by model. Days older than `keep` go when a new one begins.
local function count(charge, model, input, output)
  local day = math.floor(now() / 86400000)
  local today = 'd:' .. whole(day)
  if redis.call('HEXISTS', COUNTERS, today .. ':n') == 0 then
    for _, part in ipairs({ ':n', ':i', ':o', ':c' }) do redis.call('HDEL', COUNTERS, 'd:' .. whole(day - 90) .. part) end
  end
  for _, scope in ipairs({ 'all', today, 'm:' .. model }) do
    redis.call('HINCRBY', COUNTERS, scope .. ':n', 1)
    if input ~= '0' then redis.call('HINCRBY', COUNTERS, scope .. ':i', input) end
    if output ~= '0' then redis.call('HINCRBY', COUNTERS, scope .. ':o', output) end
    if charge ~= '0' then redis.call('HINCRBY', COUNTERS, scope .. ':c', charge) end
  end
end

-- Ends a hold and charges for it. Returns false when there is no such hold.
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
  return true
end

-- Ends holds whose lease ran out and charges their floor: what the customer is known to have received.
local function reap(time, limit)
  local expired = redis.call('ZRANGEBYSCORE', LEASES, '-inf', '(' .. whole(time), 'LIMIT', 0, limit)
  for _, id in ipairs(expired) do
    local floor, notes = string.match(redis.call('HGET', HOLDS, id) or '', '^%d+:(%d+):(.*)$')
    if floor and close(id, floor) then
      redis.call('HSET', TOMBS, id, floor)
      record('reaped', id, floor, '0', notes)
    else
      redis.call('ZREM', LEASES, id)
    end
  end
  return #expired
end
