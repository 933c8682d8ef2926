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

-- put: writes the record of a key, unless a newer one or another one of this version is here. An account that is not here
-- gets the sums that the records know: the number of its grants, granted, settled, and the ordinal of its last entry.
operations.put = function(key, arg)
  local found = redis.call('HMGET', key.account, field.version, field.status, field.digest)
  local version = found[1]
  if version == arg.version and found[2] == arg.status and found[3] == arg.digest then return 'ok' end
  if version and tonumber(version) >= tonumber(arg.version) then return 'old ' .. version end
  redis.call('HSET', key.account, field.version, arg.version, field.type, arg.type, field.status, arg.status,
    field.expiresAt, arg.expiresAt, field.digest, arg.digest, field.label, arg.label, field.rotation, arg.rotation,
    field.createdAt, arg.createdAt)
  if version then return 'ok' end
  redis.call('HSET', key.account, field.held, '0', field.holds, '0', field.abandoned, '0', field.grants, arg.grants,
    field.granted, arg.granted, field.ordinal, arg.ordinal, field.balance, arg.granted)
  -- Both may be beyond the exact numbers of Lua; their difference is not.
  if arg.settled ~= '0' then redis.call('HINCRBY', key.account, field.balance, '-' .. arg.settled) end
  -- The sums contain the entries up to here, whose outcomes are not here.
  if arg.ordinal ~= '0' then
    redis.call('HSET', key.account, field.filledUpTo, arg.ordinal, field.filledHour, whole(math.floor(now() / HOUR)))
  end
  return 'ok'
end

-- disable: refuses a key from now on. Answers its new version.
operations.disable = function(key, arg)
  local version = redis.call('HGET', key.account, field.version)
  if not version then return 'unknown' end
  version = whole(tonumber(version) + 1)
  redis.call('HSET', key.account, field.status, 'disabled', field.version, version)
  return 'ok ' .. version
end

-- grant: applies the grant with this number if all before it are applied. It is recorded, so it is never refused.
operations.grant = function(key, arg)
  local found = redis.call('HMGET', key.account, field.grants, field.balance, field.granted)
  local applied, number = tonumber(found[1]), tonumber(arg.number)
  if not applied then return 'unknown' end
  if applied >= number then return 'done' end
  if applied < number - 1 then return 'gap ' .. whole(applied) end
  -- Whole values, and no increments: a server may execute the same commands again when it reads a torn file.
  redis.call('HSET', key.account, field.balance, whole(tonumber(found[2]) + tonumber(arg.amount)), field.granted,
    added(found[3], arg.amount), field.grants, arg.number)
  return 'ok'
end

-- credit: refunds what an exchange was charged. The caller has looked in the records whether this was done before.
operations.credit = function(key, arg)
  local refund = amount(arg.amount)
  local balance, held, holds, ordinal = sums(key.account)
  if not balance then return 'unknown' end
  if redis.call('HEXISTS', key.outcomes, arg.id) == 1 then return 'done' end
  redis.call('PERSIST', key.outcomes)
  redis.call('HSET', key.outcomes, arg.id, 'F0')
  balance, ordinal = balance + refund, ordinal + 1
  writeSums(key.account, balance, held, holds, ordinal)
  record(key.stream, key.outcomes, {
    kind = 'credit', name = arg.name, ordinal = ordinal, id = arg.id, charge = 0, before = refund, left = balance + held,
    waived = 0, notes = arg.notes,
  })
  return 'ok'
end

-- replay: applies an exchange that the records know and that a store may have lost with its last writes. how is 'F' or 'R',
-- before is what an earlier end charged, and recent is '1' if its outcome cannot have been forgotten. reapedCharge is the
-- charge with what is waived because a sum of lost entries contains it.
-- A store that has counted others since has given them the same ordinals. Only the outcomes show then which exchanges it
-- knows.
operations.replay = function(key, arg)
  local account, ordinal, isReaped = key.account, tonumber(arg.ordinal), arg.how == 'R'
  local balance, heldByAll, holds, last = sums(account)
  if not balance then return 'unknown' end
  local outcome = redis.call('HGET', key.outcomes, arg.id)
  local charge = tonumber(arg.charge)
  local isKnown = isForGood(outcome)
  if outcome and not isKnown and isReaped then
    -- An exchange may be reaped more than once. A store that fell back may have given the same ordinal to another charge.
    local reapedAt, charged = tonumber(string.match(outcome, ':(%d+)$')) or ordinal, chargeIn(outcome)
    isKnown = reapedAt > ordinal or
      (reapedAt == ordinal and (charged == charge or charged == tonumber(arg.reapedCharge)))
  end
  if isKnown then
    -- The records have counted it with a later ordinal.
    if last < ordinal then redis.call('HSET', account, field.ordinal, whole(ordinal)) end
    return 'known'
  end
  if last >= ordinal and arg.recent ~= '1' then return 'known' end
  if ordinal <= tonumber(redis.call('HGET', account, field.filledUpTo) or '0') then return 'known' end
  local before = outcome and chargeIn(outcome) or tonumber(arg.before)
  local text = redis.call('GETDEL', key.hold)
  local held = 0
  if text then
    local _, earlier, slotOrSharer
    held, _, _, earlier, slotOrSharer = readHold(text)
    before = tonumber(earlier) or before
    holds = holds - 1
    redis.call('ZREM', key.leases, arg.lease)
    if slotOrSharer == '1' then leaveSlot(account, key.slots, arg.id) end
  end
  -- A refund is a negative charge.
  writeSums(account, balance + held + (before or 0) - charge, heldByAll - held, holds, math.max(last, ordinal))
  redis.call('HSET', key.outcomes, arg.id,
    arg.how .. whole(math.max(charge, 0)) .. (isReaped and ':' .. arg.ordinal or ''))
  -- It is recorded, so nobody else lets it expire. Three hours are longer than an outcome is asked for.
  if redis.call('TTL', key.outcomes) < 0 then redis.call('EXPIRE', key.outcomes, 3 * HOUR / SECOND) end
  return 'ok'
end

-- recount: sets what is held, and the number of holds, from the holds that are here, so that what was settled stays the
-- same. seen has the ids of holds that were seen; one without a lease gets one. The slots of replies whose clients left, and
-- what a quota's shares hold, follow from the holds too. Answers what was corrected.
operations.recount = function(key, arg)
  local name = arg.name .. ' '
  local balance, heldBefore, holdsBefore = sums(key.account)
  if not balance then return 'unknown' end
  local isLeased, held, holds, heldBySlot, isChanged = {}, 0, 0, {}, false
  -- Returns the bucket of the hold's outcome.
  local function add(text)
    local more, _, bucket, _, slotOrSharer = readHold(text)
    held, holds = held + more, holds + 1
    heldBySlot[slotOrSharer] = (heldBySlot[slotOrSharer] or 0) + more
    return bucket
  end
  for _, lease in ipairs(redis.call('ZRANGE', key.leases, 0, -1)) do
    if string.sub(lease, 1, #name) == name then
      local id = string.match(lease, '^%S+', #name + 1)
      local text = redis.call('GET', arg.holdPrefix .. id)
      if not text then
        redis.call('ZREM', key.leases, lease)
      elseif not isLeased[id] then
        isLeased[id] = true
        add(text)
      end
    end
  end
  for id in string.gmatch(arg.seen, '%S+') do
    local text = not isLeased[id] and redis.call('GET', arg.holdPrefix .. id)
    if text then
      local lease = name .. id .. ' ' .. add(text)
      redis.call('ZADD', key.leases, whole(now() + tonumber(arg.leaseMs)), lease)
    end
  end
  local kind = redis.call('TYPE', key.slotsOrShares).ok
  if kind == 'zset' then
    for _, id in ipairs(redis.call('ZRANGE', key.slotsOrShares, 0, -1)) do
      if redis.call('EXISTS', arg.holdPrefix .. id) == 0 then redis.call('ZREM', key.slotsOrShares, id) end
    end
  elseif kind == 'hash' then
    -- The shares of a quota.
    local all = redis.call('HGETALL', key.slotsOrShares)
    for index = 1, #all, 2 do
      local share = string.match(all[index + 1], '^%d+ %d+ %d+ ') .. whole(heldBySlot[all[index]] or 0)
      isChanged = isChanged or share ~= all[index + 1]
      redis.call('HSET', key.slotsOrShares, all[index], share)
    end
  end
  local abandoned = redis.call('HGET', key.account, field.abandoned)
  local slots = kind == 'zset' and whole(redis.call('ZCARD', key.slotsOrShares)) or '0'
  if abandoned and abandoned ~= slots then
    isChanged = true
    redis.call('HSET', key.account, field.abandoned, slots)
  end
  if held == heldBefore and holds == holdsBefore and not isChanged then return 'same' end
  redis.call('HSET', key.account, field.balance, whole(balance + heldBefore - held), field.held, whole(held), field.holds,
    whole(holds))
  return 'corrected ' .. whole(heldBefore) .. ' ' .. whole(held) .. ' ' .. whole(holdsBefore) .. ' ' .. whole(holds)
end

-- claim: claims a name for a time, unless another value has claimed it. The same value extends its claim.
operations.claim = function(key, arg)
  local taken = redis.call('GET', key.claim)
  if taken and taken ~= arg.value then return 'taken ' .. taken end
  redis.call('SET', key.claim, arg.value, 'PX', arg.ms)
  return 'ok'
end

-- release: releases a claimed name.
operations.release = function(key, arg)
  if redis.call('GET', key.claim) == arg.value then redis.call('DEL', key.claim) end
  return 'ok'
end

-- keep: keeps an item of a reply for a time. Beyond the most bytes of an account its oldest items go, and beyond the most of
-- the shard all items of the accounts that keep most.
operations.keep = function(key, arg)
  local account, id, accountMax, shardMax = arg.name, arg.id, tonumber(arg.accountMax), tonumber(arg.shardMax)
  if #id + #arg.value > accountMax then return 'large' end
  local function resize(other, by)
    redis.call('HINCRBY', key.sizes, other, by)
    return redis.call('HINCRBY', key.sizes, '', by)
  end
  local function drop(item)
    resize(account, -#item - redis.call('HSTRLEN', key.items, item))
    redis.call('HDEL', key.items, item)
    redis.call('ZREM', key.ends, item)
  end
  -- The items of an account that kept none for a time have expired.
  local before = redis.call('HGET', key.sizes, account)
  if before and before ~= '0' and redis.call('EXISTS', key.items) == 0 then resize(account, -before) end
  if redis.call('HEXISTS', key.items, id) == 1 then drop(id) end
  for _, item in ipairs(redis.call('ZRANGEBYSCORE', key.ends, '-inf', now())) do drop(item) end
  redis.call('HSET', key.items, id, arg.value)
  redis.call('ZADD', key.ends, now() + arg.ms, id)
  local all = resize(account, #id + #arg.value)
  for _, name in ipairs({ key.items, key.ends, key.sizes }) do redis.call('PEXPIRE', name, arg.ms) end
  while tonumber(redis.call('HGET', key.sizes, account)) > accountMax do
    local oldest = redis.call('ZRANGE', key.ends, 0, 0)[1]
    if not oldest then break end
    drop(oldest)
    all = tonumber(redis.call('HGET', key.sizes, ''))
  end
  if all <= shardMax then return 'ok' end
  local function forget(other, size)
    all = resize(other, -size)
    redis.call('HDEL', key.sizes, other)
  end
  -- Returns the same key of another account.
  local function keyOf(name, other) return string.sub(name, 1, -1 - #account) .. other end
  local others = {}
  local kept = redis.call('HGETALL', key.sizes)
  for index = 1, #kept, 2 do
    local other, size = kept[index], tonumber(kept[index + 1])
    if other ~= '' then
      -- The items of others may have expired as well.
      if redis.call('EXISTS', keyOf(key.items, other)) == 1 then
        others[#others + 1] = { name = other, size = size }
      else
        forget(other, size)
      end
    end
  end
  table.sort(others, function(one, other) return one.size > other.size end)
  for _, other in ipairs(others) do
    if all <= shardMax then break end
    redis.call('DEL', keyOf(key.items, other.name), keyOf(key.ends, other.name))
    forget(other.name, other.size)
  end
  return 'ok'
end
