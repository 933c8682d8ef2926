-- Operations on the quotas of upstream accounts, and the shares of keys in them.

-- The window of a quota: when it began, its length, and whether it is rolling. For a rolling quota it is a fixed window of
-- that length, in which shares are counted.
local function window(from, length, isRolling)
  return { from = from, length = length, isRolling = isRolling, elapsed = math.max(0, math.min(1, (now() - from) / length)) }
end

-- What a key has of a quota that is shared fairly is one text of four words: the beginning of the window in which it asked
-- last, what it was charged in that window, what it was charged in the one before, and what it holds. Returns the last
-- three, as of this window; nil for a key that has nothing any more: it asked in neither window.
local function readShare(text, from, length)
  local began, used, before, held = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+)$')
  if not began then return nil end
  began, used, before, held = tonumber(began), tonumber(used), tonumber(before), tonumber(held)
  if began >= from then return used, before, held end
  -- When clocks are changed, the window before is an hour longer.
  if began > from - 1.5 * length then return 0, used, held end
  if held > 0 then return 0, 0, held end
end

local function writeShare(shares, sharer, from, length, used, before, held)
  redis.call('HSET', shares, sharer, string.format('%.0f %.0f %.0f %.0f', from, used, before, held))
  redis.call('PEXPIRE', shares, whole(3 * length))
end

-- Up to this many keys, all shares are looked at whenever a key needs more than its own. Of more keys, once a second.
local LOOKED_AT_ALWAYS = 100

-- Returns how many keys have a share, and how much all of them and a new key have not used.
-- use: what the sharer uses; useOf: returns what another key uses.
local function lookAtShares(ask, use, useOf)
  local isLarge = redis.call('HLEN', ask.shares) > LOOKED_AT_ALWAYS
  local at, keys, unused =
    string.match(isLarge and redis.call('HGET', ask.account, field.unusedShares) or '', '^(%d+) (%d+) (%d+)$')
  if at and now() - tonumber(at) < SECOND then return tonumber(keys), tonumber(unused) end
  local uses = { use }
  local all = redis.call('HGETALL', ask.shares)
  for index = 1, #all, 2 do
    if all[index] ~= ask.sharer then
      local used, before, held = readShare(all[index + 1], ask.window.from, ask.window.length)
      if used then
        uses[#uses + 1] = useOf(used, before, held)
      else
        redis.call('HDEL', ask.shares, all[index])
      end
    end
  end
  local share = math.floor(ask.quota / (#uses + 1))
  unused = share
  for _, used in ipairs(uses) do unused = unused + math.max(0, share - used) end
  if isLarge then
    redis.call('HSET', ask.account, field.unusedShares, whole(now()) .. ' ' .. #uses .. ' ' .. whole(unused))
  end
  return #uses, unused
end

-- Returns how much of a balance a key may hold. Each key that asked in this window or in the one before has an equal
-- share, and so has a key that has not asked yet. A key may always use its own share. Beyond it, it may use what others
-- leave, except for what is kept for them: of a rolling quota half of what they have not used of their shares, otherwise
-- as much of it as there is left of the window.
local function fairly(ask, balance)
  if ask.sharer == '' then return balance end
  local isRolling, left = ask.window.isRolling, 1 - ask.window.elapsed
  local function useOf(used, before, held)
    return used + held + (isRolling and math.floor(before * left) or 0)
  end
  local own = redis.call('HGET', ask.shares, ask.sharer)
  local used, before, held = readShare(own, ask.window.from, ask.window.length)
  local use = used and useOf(used, before, held) or 0
  local sharers = redis.call('HLEN', ask.shares) + (own and 1 or 2)
  if use + ask.wanted <= math.floor(ask.quota / sharers) then return balance end
  local keys, unused = lookAtShares(ask, use, useOf)
  local share = math.floor(ask.quota / (keys + 1))
  local kept = math.ceil((unused - math.max(0, share - use)) * (isRolling and 0.5 or left))
  return math.min(balance, math.max(share - use, balance - kept))
end

-- Notes what was charged to a key's share, and what it holds more, in the window that the quota knows. A hold without a
-- share has '0' or '1' in place of the sharer.
local function noteShare(account, shares, slotOrSharer, charge, more)
  if readSlot(slotOrSharer) then return end
  local found = redis.call('HMGET', account, field.windowFrom, field.windowMs, field.partMs)
  local length = tonumber(found[2] or '0')
  if length == 0 then return end
  local isRolling = found[3]
  local from = isRolling and math.floor(now() / length) * length or tonumber(found[1])
  local used, before, held = readShare(redis.call('HGET', shares, slotOrSharer), from, length)
  writeShare(shares, slotOrSharer, from, length, math.max(0, (used or 0) + charge), before or 0,
    math.max(0, (held or 0) + more))
end

-- Notes what was charged to a quota, and what is not held any more.
local function noteUse(account, shares, slotOrSharer, charge, heldBefore)
  noteShare(account, shares, slotOrSharer, charge, -heldBefore)
  if charge == 0 then return end
  local partMs = tonumber(redis.call('HGET', account, field.partMs) or '0')
  if partMs > 0 then redis.call('HINCRBY', account, 's' .. whole(math.floor(now() / partMs)), whole(charge)) end
end

-- Whether a quota would have the least amount if nothing were held. A key may always use its own share.
local function isOnlyHeld(ask, balance, held, least)
  if balance + held < least then return false end
  if ask.sharer == '' or balance < least then return true end
  local own = redis.call('HGET', ask.shares, ask.sharer)
  local used, before = readShare(own, ask.window.from, ask.window.length)
  local earlier = ask.window.isRolling and (before or 0) * (1 - ask.window.elapsed) or 0
  local sharers = redis.call('HLEN', ask.shares) + (own and 1 or 2)
  return (used or 0) + earlier + least <= math.floor(ask.quota / sharers)
end

-- Holds an amount of a quota.
-- ask: what the operation was asked, with the window. balance, held, holds: the sums of the quota as of this window.
-- fields: what the window needs in the account. resets(missing): when the quota has so much more again.
local function holdOfQuota(ask, balance, held, holds, fields, resets)
  local given = affordable(fairly(ask, balance), ask.wanted, ask.least)
  local slotOrSharer = ask.sharer == '' and '0' or ask.sharer
  if given and not writeHold(ask.hold, given, 0, ask.bucket, '-', slotOrSharer, '-', ask.notes, 'NX') then
    return 'held ' .. heldBy(ask.hold) .. ' ' .. whole(balance)
  end
  if given then
    redis.call('ZADD', ask.leases, whole(now() + ask.leaseMs), ask.lease)
    if ask.sharer ~= '' then
      local used, before, heldByKey =
        readShare(redis.call('HGET', ask.shares, ask.sharer), ask.window.from, ask.window.length)
      writeShare(ask.shares, ask.sharer, ask.window.from, ask.window.length, used or 0, before or 0,
        (heldByKey or 0) + given)
    end
  end
  redis.call('HSET', ask.account, field.granted, whole(ask.quota), field.windowMs, whole(ask.window.length),
    unpack(fields))
  writeSums(ask.account, '', { balance = balance - (given or 0), held = held + (given or 0),
    holds = holds + (given and 1 or 0), ordinal = 0 })
  if given then return 'held ' .. whole(given) .. ' ' .. whole(balance - given) end
  local least = math.max(1, ask.least)
  if isOnlyHeld(ask, balance, held, least) then return 'busy' end
  local ofShare = affordable(balance, ask.wanted, ask.least) and ' share' or ''
  return 'insufficient ' .. whole(balance) .. ' ' .. resets(math.max(1, ask.least - balance)) .. ofShare
end

-- quota: holds an amount of an upstream account's quota, which is granted anew in each window. Holds that are still running
-- count towards the new window. sharer is the key whose share it is, or ''. Answers 'window' if the window is not the
-- current one. If only the key's share is used up, the last word of the answer is 'share'.
operations.quota = function(key, arg)
  local quota, from, ends = amount(arg.quota), tonumber(arg.from), tonumber(arg.ends)
  local found = redis.call('HMGET', key.account, field.windowFrom, field.granted, field.balance, field.held, field.holds)
  if now() >= ends or tonumber(found[1] or '0') > from then return 'window' end
  local granted, held, holds = tonumber(found[2] or '0'), tonumber(found[4] or '0'), tonumber(found[5] or '0')
  -- What was used in a window is granted - balance - held.
  local balance = tonumber(found[3] or '0') + quota - granted
  local isNewWindow = found[1] ~= arg.from
  if isNewWindow then balance = quota - held end
  local function resets() return whole(ends) end
  return holdOfQuota({
    account = key.account, hold = key.hold, leases = key.leases, shares = key.shares, lease = arg.lease,
    wanted = amount(arg.amount), least = amount(arg.least), leaseMs = tonumber(arg.leaseMs), quota = quota,
    sharer = arg.sharer, bucket = arg.bucket, notes = arg.notes, window = window(from, ends - from, false),
  }, balance, held, holds, { field.windowFrom, arg.from }, resets)
end

-- rolling: like quota, for what was used in the last parts of partMs each. The charges of each part are kept, in the field
-- 's' and the number of the part, and come back when the part is over.
operations.rolling = function(key, arg)
  local quota, partMs, parts = amount(arg.quota), tonumber(arg.partMs), tonumber(arg.parts)
  local part = math.floor(now() / partMs)
  local found = redis.call('HMGET', key.account, field.granted, field.balance, field.held, field.holds, field.firstPart,
    field.partMs)
  local granted, held, holds = tonumber(found[1] or '0'), tonumber(found[3] or '0'), tonumber(found[4] or '0')
  local balance = tonumber(found[2] or '0') + quota - granted
  local first = part - parts + 1
  -- Parts of another length say nothing about this window.
  local isSameLength = found[6] == arg.partMs
  local low = isSameLength and tonumber(found[5]) or first
  if found[6] and not isSameLength then balance = quota - held end
  local over = {}
  if first - low <= parts then
    for at = low, first - 1 do over[#over + 1] = 's' .. whole(at) end
  else
    -- Nothing was asked for a long time.
    for _, name in ipairs(redis.call('HKEYS', key.account)) do
      local at = tonumber(string.match(name, '^s(%d+)$'))
      if at and at < first then over[#over + 1] = name end
    end
  end
  if #over > 0 then
    for _, used in ipairs(redis.call('HMGET', key.account, unpack(over))) do balance = balance + tonumber(used or '0') end
    redis.call('HDEL', key.account, unpack(over))
  end
  low = math.max(low, first)
  -- When enough of what was charged has come back. If that is not enough, what is held now must be charged first.
  local function resets(missing)
    local names = {}
    for at = low, part do names[#names + 1] = 's' .. whole(at) end
    for index, used in ipairs(redis.call('HMGET', key.account, unpack(names))) do
      missing = missing - tonumber(used or '0')
      if missing <= 0 then return whole((low + index - 1 + parts) * partMs) end
    end
    return whole((part + parts) * partMs)
  end
  local length = partMs * parts
  return holdOfQuota({
    account = key.account, hold = key.hold, leases = key.leases, shares = key.shares, lease = arg.lease,
    wanted = amount(arg.amount), least = amount(arg.least), leaseMs = tonumber(arg.leaseMs), quota = quota,
    sharer = arg.sharer, bucket = arg.bucket, notes = arg.notes,
    window = window(math.floor(now() / length) * length, length, true),
  }, balance, held, holds, { field.firstPart, whole(low), field.partMs, arg.partMs }, resets)
end
