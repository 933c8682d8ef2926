-- Operations on the quotas of upstream accounts, and the shares of keys in them.

-- What a key has of a quota that is shared fairly, as one text: the beginning of the window in which it asked last, what
-- it was charged in that window and in the one before, and what it holds. A window is one of the quota, or for a rolling
-- quota a fixed one of its length. Returns nil for a key that has nothing any more: it asked in neither window.
local function readShare(text, from, length)
  local began, used, before, held = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+)$')
  if not began then return nil end
  began, used, before, held = tonumber(began), tonumber(used), tonumber(before), tonumber(held)
  if began >= from then return used, before, held end
  -- When clocks are changed, the window before is an hour longer.
  if began > from - 1.5 * length then return 0, used, held end
  if held > 0 then return 0, 0, held end
end

-- Up to this many keys, all shares are looked at whenever a key needs more than its own. Of more keys, once a second.
local LOOKED_AT_ALWAYS = 100
local LOOKED_AT_MS = 1000

-- Returns how many keys have a share, and how much all of them and a new key have not used.
local function lookAtShares(account, shares, sharer, use, quota, from, length, useOf)
  local many = redis.call('HLEN', shares) > LOOKED_AT_ALWAYS
  local at, keys, unused = string.match(many and redis.call('HGET', account, 'sh') or '', '^(%d+) (%d+) (%d+)$')
  if at and now() - tonumber(at) < LOOKED_AT_MS then return tonumber(keys), tonumber(unused) end
  local uses = { use }
  local all = redis.call('HGETALL', shares)
  for index = 1, #all, 2 do
    if all[index] ~= sharer then
      local used, before, held = readShare(all[index + 1], from, length)
      if used then
        uses[#uses + 1] = useOf(used, before, held)
      else
        redis.call('HDEL', shares, all[index])
      end
    end
  end
  local share = math.floor(quota / (#uses + 1))
  unused = share
  for _, of in ipairs(uses) do unused = unused + math.max(0, share - of) end
  if many then redis.call('HSET', account, 'sh', whole(now()) .. ' ' .. #uses .. ' ' .. whole(unused)) end
  return #uses, unused
end

-- Returns how much of a balance a key may hold. Each key that asked in this window or in the one before has an equal
-- share, and so has a key that has not asked yet. A key may always use its own share. Beyond it, it may use what others
-- leave, except for what is kept for them: of a rolling quota half of what they have not used of their shares, otherwise
-- as much of it as there is left of the window.
local function fairly(account, shares, sharer, quota, balance, wanted, from, length, rolling)
  if sharer == '' then return balance end
  local elapsed = math.max(0, math.min(1, (now() - from) / length))
  local function useOf(used, before, held)
    return used + held + (rolling and math.floor(before * (1 - elapsed)) or 0)
  end
  local own = redis.call('HGET', shares, sharer)
  local used, before, held = readShare(own, from, length)
  local use = used and useOf(used, before, held) or 0
  if use + wanted <= math.floor(quota / (redis.call('HLEN', shares) + (own and 1 or 2))) then return balance end
  local keys, unused = lookAtShares(account, shares, sharer, use, quota, from, length, useOf)
  local share = math.floor(quota / (keys + 1))
  local kept = math.ceil((unused - math.max(0, share - use)) * (rolling and 0.5 or 1 - elapsed))
  return math.min(balance, math.max(share - use, balance - kept))
end

local function writeShare(shares, sharer, from, length, used, before, held)
  redis.call('HSET', shares, sharer, string.format('%.0f %.0f %.0f %.0f', from, used, before, held))
  redis.call('PEXPIRE', shares, whole(3 * length))
end

-- Notes what a key holds of a quota, in the window that it asks in.
local function holdShare(shares, sharer, held, from, length)
  if sharer == '' then return end
  local used, before, earlier = readShare(redis.call('HGET', shares, sharer), from, length)
  writeShare(shares, sharer, from, length, used or 0, before or 0, (earlier or 0) + held)
end

-- Notes what was charged to a key's share, and what it holds more, in the window that the quota knows. A hold without a
-- share has '0' or '1' in its place.
local function noteShare(account, shares, sharer, charge, more)
  if sharer == '0' or sharer == '1' then return end
  local known = redis.call('HMGET', account, 'win', 'wl', 'part')
  local length = tonumber(known[2] or '0')
  if length == 0 then return end
  local from = known[3] and math.floor(now() / length) * length or tonumber(known[1])
  local used, before, held = readShare(redis.call('HGET', shares, sharer), from, length)
  writeShare(shares, sharer, from, length, math.max(0, (used or 0) + charge), before or 0, math.max(0, (held or 0) + more))
end

-- Whether a quota would have the least amount if nothing were held. A key may always use its own share.
local function onlyHeld(shares, sharer, quota, balance, held, least, from, length, rolling)
  if balance + held < least then return false end
  if sharer == '' or balance < least then return true end
  local own = redis.call('HGET', shares, sharer)
  local used, before = readShare(own, from, length)
  local earlier = rolling and (before or 0) * math.max(0, 1 - (now() - from) / length) or 0
  return (used or 0) + earlier + least <= math.floor(quota / (redis.call('HLEN', shares) + (own and 1 or 2)))
end

-- Holds an amount on a quota whose balance is known, and writes the fields that its window needs as well.
local function holdQuota(k, a, quota, balance, heldBefore, count, resets, fields, from, length, rolling)
  local wanted, least, sharer = amount(ARGV[a + 1]), amount(ARGV[a + 2]), ARGV[a + 7]
  local held = affordable(fairly(KEYS[k], KEYS[k + 3], sharer, quota, balance, wanted, from, length, rolling), wanted, least)
  local place = sharer == '' and '0' or sharer
  if held and not writeHold(KEYS[k + 1], held, 0, ARGV[a + 8], '-', place, ARGV[a + 9], 'NX') then
    return 'held ' .. string.match(redis.call('GET', KEYS[k + 1]), '^%d+') .. ' ' .. whole(balance)
  end
  if held then
    redis.call('ZADD', KEYS[k + 2], whole(now() + tonumber(ARGV[a + 3])), ARGV[a])
    holdShare(KEYS[k + 3], sharer, held, from, length)
  end
  redis.call('HSET', KEYS[k], 'gra', whole(quota), 'bal', whole(balance - (held or 0)), 'rsv',
    whole(heldBefore + (held or 0)), 'n', whole(count + (held and 1 or 0)), 'sq', '0', 'wl', whole(length),
    unpack(fields))
  if not held then
    if onlyHeld(KEYS[k + 3], sharer, quota, balance, heldBefore, math.max(1, least), from, length, rolling) then
      return 'busy'
    end
    local ofShare = affordable(balance, wanted, least) and ' share' or ''
    return 'insufficient ' .. whole(balance) .. ' ' .. resets(math.max(1, least - balance)) .. ofShare
  end
  return 'held ' .. whole(held) .. ' ' .. whole(balance - held)
end

-- quota(account, hold, leases, shares; lease's name, amount, least amount, lease ms, quota, beginning and end of the
-- window, key whose share it is or '', bucket, notes)
-- Holds an amount of an upstream account's quota, which is granted anew in each window. Holds that are still running
-- count towards the new window. Returns 'window' if the window is not the current one. If only the key's share is used
-- up, the last word of the answer is 'share'.
operations['quota'] = { 4, 10, function(k, a)
  local quota, from = amount(ARGV[a + 4]), tonumber(ARGV[a + 5])
  local found = redis.call('HMGET', KEYS[k], 'win', 'gra', 'bal', 'rsv', 'n')
  if now() >= tonumber(ARGV[a + 6]) or tonumber(found[1] or '0') > from then return 'window' end
  local held, count = tonumber(found[4] or '0'), tonumber(found[5] or '0')
  -- What was used in a window is granted - balance - held.
  local balance = tonumber(found[3] or '0') + quota - tonumber(found[2] or '0')
  if found[1] ~= ARGV[a + 5] then balance = quota - held end
  local ends = tonumber(ARGV[a + 6])
  local function resets() return ARGV[a + 6] end
  return holdQuota(k, a, quota, balance, held, count, resets, { 'win', ARGV[a + 5] }, from, ends - from, false)
end }

-- rolling(account, hold, leases, shares; lease's name, amount, least amount, lease ms, quota, length of a part in ms,
-- number of parts, key whose share it is or '', bucket, notes)
-- Like quota, for what was used in the last parts. The charges of each part are kept, and come back when it is over.
operations['rolling'] = { 4, 10, function(k, a)
  local quota, length, parts = amount(ARGV[a + 4]), tonumber(ARGV[a + 5]), tonumber(ARGV[a + 6])
  local part = math.floor(now() / length)
  local found = redis.call('HMGET', KEYS[k], 'gra', 'bal', 'rsv', 'n', 'lo', 'part')
  local held, count = tonumber(found[3] or '0'), tonumber(found[4] or '0')
  local balance = tonumber(found[2] or '0') + quota - tonumber(found[1] or '0')
  local first = part - parts + 1
  -- Parts of another length say nothing about this window.
  local low = found[6] == ARGV[a + 5] and tonumber(found[5]) or first
  if found[6] and found[6] ~= ARGV[a + 5] then balance = quota - held end
  local over = {}
  if first - low <= parts then
    for at = low, first - 1 do over[#over + 1] = 's' .. whole(at) end
  else
    -- Nothing was asked for a long time.
    for _, name in ipairs(redis.call('HKEYS', KEYS[k])) do
      local at = tonumber(string.match(name, '^s(%d+)$'))
      if at and at < first then over[#over + 1] = name end
    end
  end
  if #over > 0 then
    for _, used in ipairs(redis.call('HMGET', KEYS[k], unpack(over))) do balance = balance + tonumber(used or '0') end
    redis.call('HDEL', KEYS[k], unpack(over))
  end
  local window = length * parts
  -- When enough of what was charged has come back. If that is not enough, what is held now must be charged first.
  local function resets(missing)
    local names = {}
    for at = math.max(low, first), part do names[#names + 1] = 's' .. whole(at) end
    for index, used in ipairs(redis.call('HMGET', KEYS[k], unpack(names))) do
      missing = missing - tonumber(used or '0')
      if missing <= 0 then return whole((math.max(low, first) + index - 1 + parts) * length) end
    end
    return whole((part + parts) * length)
  end
  return holdQuota(k, a, quota, balance, held, count, resets,
    { 'lo', whole(math.max(low, first)), 'part', ARGV[a + 5] }, math.floor(now() / window) * window, window, true)
end }

-- Notes what was charged to a quota with a rolling window.
local function noteUse(account, charge)
  local length = tonumber(redis.call('HGET', account, 'part') or '0')
  if length > 0 then redis.call('HINCRBY', account, 's' .. whole(math.floor(now() / length)), whole(charge)) end
end
