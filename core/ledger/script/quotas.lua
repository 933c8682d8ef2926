-- Operations on the quotas of upstream accounts, and the shares of keys in them.

-- A quota has one window, which windows.lua reads and writes. What it holds are the sums of its account, so that holds which
-- still run count in the next window, too. It says when it began, its length and whether it is rolling; for a rolling quota,
-- that is a fixed window of the length, in which shares are counted.
local function shareWindow(state)
  local window = state[1]
  if not window then return nil end
  local isRolling, from, length = window.kind == 'r', window.from, window.ends - window.from
  if isRolling then
    length = window.ends * PARTS
    from = math.floor(now() / length) * length
  end
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
local function noteShare(state, shares, slotOrSharer, charge, more)
  local window = not readSlot(slotOrSharer) and shareWindow(state)
  if not window then return end
  local used, before, held = readShare(redis.call('HGET', shares, slotOrSharer), window.from, window.length)
  writeShare(shares, slotOrSharer, window.from, window.length, math.max(0, (used or 0) + charge), before or 0,
    math.max(0, (held or 0) + more))
end

-- Notes what was charged to a quota, and what is not held any more. Returns the fields of the account that change.
local function noteUse(account, shares, slotOrSharer, charge, heldBefore)
  local state = readWindows(redis.call('HGET', account, field.windows))
  noteShare(state, shares, slotOrSharer, charge, -heldBefore)
  local window = state[1]
  if charge == 0 or not window then return {} end
  use(window, window.parts and math.floor(now() / window.ends), charge)
  return { field.windows, windowsText(state) }
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

-- quota: holds an amount of an upstream account's quota, which is granted anew in each window, or comes back part by part.
-- windows is its window, as windows.lua says. sharer is the key whose share it is, or ''. Answers 'window' if the window is not
-- the current one. If only the key's share is used up, the last word of the answer is 'share'.
operations.quota = function(key, arg)
  local found = redis.call('HMGET', key.account, field.windows, field.held, field.holds)
  local windows, state = askedWindows(found[1], arg.windows)
  if not windows then return 'window' end
  local window, held, holds = windows[1], tonumber(found[2] or '0'), tonumber(found[3] or '0')
  window.held = held
  local ask = { account = key.account, shares = key.shares, sharer = arg.sharer, wanted = amount(arg.amount),
    quota = window.amount, window = shareWindow(state) }
  local balance, least = roomIn(window), amount(arg.least)
  local given = affordable(fairly(ask, balance), ask.wanted, least)
  local slotOrSharer = ask.sharer == '' and '0' or ask.sharer
  if given and not writeHold(key.hold, given, 0, arg.bucket, '-', slotOrSharer, '-', arg.notes, 'NX') then
    return 'held ' .. heldBy(key.hold) .. ' ' .. whole(balance)
  end
  if given then
    redis.call('ZADD', key.leases, whole(now() + tonumber(arg.leaseMs)), arg.lease)
    noteShare(state, key.shares, slotOrSharer, 0, given)
  end
  window.held = 0
  writeSums(key.account, '', { balance = balance - (given or 0), held = held + (given or 0),
    holds = holds + (given and 1 or 0), ordinal = 0 }, { field.windows, windowsText(state) })
  if given then return 'held ' .. whole(given) .. ' ' .. whole(balance - given) end
  if isOnlyHeld(ask, balance, held, math.max(1, least)) then return 'busy' end
  local ofShare = affordable(balance, ask.wanted, least) and ' share' or ''
  return 'insufficient ' .. whole(balance) .. ' ' .. whole(resetsAt(window, math.max(1, least - balance))) .. ofShare
end
