-- Operations on accounts: keys, grants, refunds, claimed names, and what is restored.

-- Returns the sum of two whole numbers beyond the exact numbers of Lua, as a text. The sum is not negative.
local function added(one, other)
  local UNIT = 1000000000
  local function halves(text)
    local sign, digits = string.match(text, '^(-?)(%d+)$')
    local factor = sign == '-' and -1 or 1
    return factor * (tonumber(string.sub(digits, 1, -10)) or 0), factor * tonumber(string.sub(digits, -9))
  end
  local high, low = halves(one)
  local more, rest = halves(other)
  low = low + rest
  high = high + more + math.floor(low / UNIT)
  low = low % UNIT
  return high > 0 and whole(high) .. string.format('%09.0f', low) or whole(low)
end

-- put(account; version, type, status, expiry, digest, label, rotation, creation, then for an account that is not here:
-- number of grants, granted, settled, number of entries)
-- Writes the record of a key, unless a newer one or another one of this version is here. An account that is not here
-- gets the sums that the records know.
operations['put'] = { 1, 12, function(k, a)
  local here = redis.call('HMGET', KEYS[k], 've', 'st', 'sec')
  local version = here[1]
  if version == ARGV[a] and here[2] == ARGV[a + 2] and here[3] == ARGV[a + 4] then return 'ok' end
  if version and tonumber(version) >= tonumber(ARGV[a]) then return 'old ' .. version end
  redis.call('HSET', KEYS[k], 've', ARGV[a], 'ty', ARGV[a + 1], 'st', ARGV[a + 2], 'ex', ARGV[a + 3], 'sec', ARGV[a + 4],
    'la', ARGV[a + 5], 'ro', ARGV[a + 6], 'cr', ARGV[a + 7])
  if not version then
    redis.call('HSET', KEYS[k], 'rsv', '0', 'n', '0', 'ab', '0', 'gn', ARGV[a + 8], 'gra', ARGV[a + 9], 'sq', ARGV[a + 11])
    redis.call('HSET', KEYS[k], 'bal', ARGV[a + 9])
    -- Both may be beyond the exact numbers of Lua; their difference is not.
    if ARGV[a + 10] ~= '0' then redis.call('HINCRBY', KEYS[k], 'bal', '-' .. ARGV[a + 10]) end
    -- The sums contain the entries up to here, whose outcomes are not here.
    if ARGV[a + 11] ~= '0' then
      redis.call('HSET', KEYS[k], 'fr', ARGV[a + 11], 'fh', whole(math.floor(now() / 3600000)))
    end
  end
  return 'ok'
end }

-- disable(account): refuses a key from now on. Returns its new version.
operations['disable'] = { 1, 0, function(k)
  if redis.call('EXISTS', KEYS[k]) == 0 then return 'unknown' end
  local version = whole(tonumber(redis.call('HGET', KEYS[k], 've')) + 1)
  redis.call('HSET', KEYS[k], 'st', 'disabled', 've', version)
  return 'ok ' .. version
end }

-- grant(account; number, amount): applies the grant with this number if all before it are applied. It is recorded, so it
-- is never refused.
operations['grant'] = { 1, 2, function(k, a)
  local here = redis.call('HMGET', KEYS[k], 'gn', 'bal', 'gra')
  local applied, number = tonumber(here[1]), tonumber(ARGV[a])
  if not applied then return 'unknown' end
  if applied >= number then return 'done' end
  if applied < number - 1 then return 'gap ' .. whole(applied) end
  -- Whole values, and no increments: a server may execute the same commands again when it reads a torn file.
  redis.call('HSET', KEYS[k], 'bal', whole(tonumber(here[2]) + tonumber(ARGV[a + 1])), 'gra',
    added(here[3], ARGV[a + 1]), 'gn', ARGV[a])
  return 'ok'
end }

-- credit(account, stream, outcomes; id, account's name, amount, notes): refunds what an exchange was charged. The
-- caller has looked in the records whether this was done before.
operations['credit'] = { 3, 4, function(k, a)
  local given = amount(ARGV[a + 2])
  local balance, reserved, _, ordinal = sums(KEYS[k])
  if not balance then return 'unknown' end
  if redis.call('HEXISTS', KEYS[k + 2], ARGV[a]) == 1 then return 'done' end
  redis.call('PERSIST', KEYS[k + 2])
  redis.call('HSET', KEYS[k + 2], ARGV[a], 'F0')
  redis.call('HSET', KEYS[k], 'bal', whole(balance + given), 'sq', whole(ordinal + 1))
  record(KEYS[k + 1], KEYS[k + 2], 'credit', ARGV[a + 1], ordinal + 1, ARGV[a], 0, given, balance + reserved + given, 0,
    ARGV[a + 3])
  return 'ok'
end }

-- replay(account, hold, leases, outcomes, places; lease's name, id, ordinal, charge, 'F' or 'R', what an earlier end
-- charged, '1' if it is too recent to have been forgotten, the charge with what is waived because a sum of lost entries
-- contains it)
-- Applies an exchange that the records know and that a store may have lost with its last writes. A store that has counted
-- others since has given them the same numbers. Only the outcomes show then which exchanges it knows.
operations['replay'] = { 5, 8, function(k, a)
  local balance, reserved, count, ordinal = sums(KEYS[k])
  if not balance then return 'unknown' end
  local outcome = redis.call('HGET', KEYS[k + 3], ARGV[a + 1])
  local number, reaped = tonumber(ARGV[a + 2]), ARGV[a + 4] == 'R'
  local charge, whole_charge = tonumber(ARGV[a + 3]), tonumber(ARGV[a + 7])
  local known = outcome and string.sub(outcome, 1, 1) == 'F'
  if outcome and not known and reaped then
    -- An exchange may be reaped more than once. A store that fell back may have given the same number to another charge.
    local reapedAt, has = tonumber(string.match(outcome, ':(%d+)$')) or number, chargeIn(outcome)
    known = reapedAt > number or (reapedAt == number and (has == charge or has == whole_charge))
  end
  if known then
    -- The records have counted it with a later number.
    if ordinal < number then redis.call('HSET', KEYS[k], 'sq', whole(number)) end
    return 'known'
  end
  if ordinal >= number and ARGV[a + 6] ~= '1' then return 'known' end
  if number <= tonumber(redis.call('HGET', KEYS[k], 'fr') or '0') then return 'known' end
  local before = outcome and chargeIn(outcome) or tonumber(ARGV[a + 5])
  local hold = redis.call('GETDEL', KEYS[k + 1])
  local held = 0
  if hold then
    local _, earlier, placed
    held, _, _, earlier, placed = readHold(hold)
    before = tonumber(earlier) or before
    count = count - 1
    redis.call('ZREM', KEYS[k + 2], ARGV[a])
    if placed == '1' then leavePlace(KEYS[k], KEYS[k + 4], ARGV[a + 1]) end
  end
  -- A refund is a negative charge.
  redis.call('HSET', KEYS[k], 'bal', whole(balance + held + (before or 0) - charge), 'rsv', whole(reserved - held), 'n',
    whole(count), 'sq', whole(math.max(ordinal, number)))
  redis.call('HSET', KEYS[k + 3], ARGV[a + 1],
    ARGV[a + 4] .. whole(math.max(charge, 0)) .. (reaped and ':' .. ARGV[a + 2] or ''))
  -- It is recorded, so nobody else lets it expire. Three hours are longer than an outcome is asked for.
  if redis.call('TTL', KEYS[k + 3]) < 0 then redis.call('EXPIRE', KEYS[k + 3], 10800) end
  return 'ok'
end }

-- recount(account, leases, places; account's name, names of its holds without their ids, lease ms, ids of holds that were
-- seen): sets what is reserved, and the number of holds, from the holds that are here, so that what was settled stays the
-- same. A hold without a lease gets one. The places of replies whose clients left, and what a quota's shares hold, follow
-- from the holds too. Returns what was corrected.
operations['recount'] = { 3, 4, function(k, a)
  local name, prefix = ARGV[a] .. ' ', ARGV[a + 1]
  local balance, reserved, count = sums(KEYS[k])
  if not balance then return 'unknown' end
  local leased, held, holds, shares, changed = {}, 0, 0, {}, false
  local function add(text)
    local amount, _, bucket, _, placed = readHold(text)
    held, holds = held + amount, holds + 1
    shares[placed] = (shares[placed] or 0) + amount
    return bucket
  end
  for _, lease in ipairs(redis.call('ZRANGE', KEYS[k + 1], 0, -1)) do
    if string.sub(lease, 1, #name) == name then
      local id = string.match(lease, '^%S+', #name + 1)
      local text = redis.call('GET', prefix .. id)
      if not text then
        redis.call('ZREM', KEYS[k + 1], lease)
      elseif not leased[id] then
        leased[id] = true
        add(text)
      end
    end
  end
  for id in string.gmatch(ARGV[a + 3], '%S+') do
    local text = not leased[id] and redis.call('GET', prefix .. id)
    if text then redis.call('ZADD', KEYS[k + 1], whole(now() + tonumber(ARGV[a + 2])), name .. id .. ' ' .. add(text)) end
  end
  local kind = redis.call('TYPE', KEYS[k + 2]).ok
  if kind == 'zset' then
    for _, id in ipairs(redis.call('ZRANGE', KEYS[k + 2], 0, -1)) do
      if redis.call('EXISTS', prefix .. id) == 0 then redis.call('ZREM', KEYS[k + 2], id) end
    end
  elseif kind == 'hash' then
    local all = redis.call('HGETALL', KEYS[k + 2])
    for index = 1, #all, 2 do
      local share = string.match(all[index + 1], '^%d+ %d+ %d+ ') .. whole(shares[all[index]] or 0)
      changed = changed or share ~= all[index + 1]
      redis.call('HSET', KEYS[k + 2], all[index], share)
    end
  end
  local abandoned = redis.call('HGET', KEYS[k], 'ab')
  local places = kind == 'zset' and whole(redis.call('ZCARD', KEYS[k + 2])) or '0'
  if abandoned and abandoned ~= places then
    changed = true
    redis.call('HSET', KEYS[k], 'ab', places)
  end
  if held == reserved and holds == count and not changed then return 'same' end
  redis.call('HSET', KEYS[k], 'bal', whole(balance + reserved - held), 'rsv', whole(held), 'n', whole(holds))
  return 'corrected ' .. whole(reserved) .. ' ' .. whole(held) .. ' ' .. whole(count) .. ' ' .. whole(holds)
end }

-- claim(claimed name; value, ms): claims a name for a time, unless another value has claimed it. The same value extends
-- its claim.
operations['claim'] = { 1, 2, function(k, a)
  local taken = redis.call('GET', KEYS[k])
  if taken and taken ~= ARGV[a] then return 'taken ' .. taken end
  redis.call('SET', KEYS[k], ARGV[a], 'PX', ARGV[a + 1])
  return 'ok'
end }

-- release(claimed name; value): releases a claimed name.
operations['release'] = { 1, 1, function(k, a)
  if redis.call('GET', KEYS[k]) == ARGV[a] then redis.call('DEL', KEYS[k]) end
  return 'ok'
end }

-- keep(items, their ends, sizes of the shard's accounts; account, id, value, ms, most of an account, most of the shard):
-- keeps an item of a reply for a time. Beyond the most of an account its oldest items go, and beyond that of the shard
-- all items of the accounts that keep most.
operations['keep'] = { 3, 6, function(k, a)
  local items, ends, sizes = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local account, id, value, ms = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
  local most, mostOfShard = tonumber(ARGV[a + 4]), tonumber(ARGV[a + 5])
  if #id + #value > most then return 'large' end
  local function resize(other, by)
    redis.call('HINCRBY', sizes, other, by)
    return redis.call('HINCRBY', sizes, '', by)
  end
  local function drop(name)
    resize(account, -#name - redis.call('HSTRLEN', items, name))
    redis.call('HDEL', items, name)
    redis.call('ZREM', ends, name)
  end
  -- The items of an account that kept none for a time have expired.
  local before = redis.call('HGET', sizes, account)
  if before and before ~= '0' and redis.call('EXISTS', items) == 0 then resize(account, -before) end
  if redis.call('HEXISTS', items, id) == 1 then drop(id) end
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now())) do drop(name) end
  redis.call('HSET', items, id, value)
  redis.call('ZADD', ends, now() + ms, id)
  local all = resize(account, #id + #value)
  for i = k, k + 2 do redis.call('PEXPIRE', KEYS[i], ms) end
  while tonumber(redis.call('HGET', sizes, account)) > most do
    local oldest = redis.call('ZRANGE', ends, 0, 0)[1]
    if not oldest then break end
    drop(oldest)
    all = tonumber(redis.call('HGET', sizes, ''))
  end
  if all <= mostOfShard then return 'ok' end
  local kept = redis.call('HGETALL', sizes)
  local function forget(other, size)
    all = resize(other, -size)
    redis.call('HDEL', sizes, other)
  end
  local function keyOf(i, other) return string.sub(KEYS[i], 1, -1 - #account) .. other end
  local others = {}
  for i = 1, #kept, 2 do
    local other, size = kept[i], tonumber(kept[i + 1])
    if other ~= '' then
      -- The items of others may have expired as well.
      if redis.call('EXISTS', keyOf(k, other)) == 1 then others[#others + 1] = { other, size } else forget(other, size) end
    end
  end
  table.sort(others, function(one, other) return one[2] > other[2] end)
  for _, other in ipairs(others) do
    if all <= mostOfShard then break end
    redis.call('DEL', keyOf(k, other[1]), keyOf(k + 1, other[1]))
    forget(other[1], other[2])
  end
  return 'ok'
end }
