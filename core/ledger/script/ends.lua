-- How holds end: settled with a charge, or reaped.

-- How long the store remembers the outcomes of quotas, in seconds. Nothing else lets them expire.
local QUOTA_OUTCOMES = 7200

-- Subtracts the charge of a request that delivered nothing from the charge of the resend that succeeded, whichever is
-- settled first. Each of them counts once, and a key has a maximum of waivers per hour. Returns the waived amount. One
-- without a counterpart notes itself for `keepMs`.
local function waive(account, resends, part, charge, keepMs, most)
  local other, otherCharge = string.match(redis.call('LINDEX', resends, 0) or '', '^(%a+):(%d+)$')
  if other and other ~= part then
    redis.call('LPOP', resends)
    local hour = whole(math.floor(now() / HOUR))
    if redis.call('HGET', account, field.waiverHour) ~= hour then
      redis.call('HSET', account, field.waiverHour, hour, field.waivers, '0')
    end
    if redis.call('HINCRBY', account, field.waivers, 1) > tonumber(most) then return 0 end
    return math.min(charge, tonumber(otherCharge))
  end
  redis.call('LPUSH', resends, part .. ':' .. whole(charge))
  redis.call('LTRIM', resends, 0, 127)
  -- A resend that delivered waits for its undelivered counterpart for one minute at most. If it waited longer, the next
  -- undelivered request would cost nothing.
  redis.call('PEXPIRE', resends, part == 'retry' and math.min(tonumber(keepMs), MINUTE) or keepMs)
  return 0
end

-- Counts a request that cost nothing. Returns true if its account has used up its free entries for this minute, so that
-- this one gets none.
local function unlisted(account, most)
  local minute = whole(math.floor(now() / MINUTE))
  if redis.call('HGET', account, field.freeMinute) ~= minute then
    redis.call('HSET', account, field.freeMinute, minute, field.freeEntries, '0')
  end
  if redis.call('HINCRBY', account, field.freeEntries, 1) <= tonumber(most) then return false end
  redis.call('HINCRBY', account, field.unlisted, 1)
  return true
end

-- settle: ends an exchange with its charge in any case, even if its hold was reaped or lost. Repeating it changes nothing.
-- kind is 'settle' or 'void'. The verdict says what the records know of an exchange whose outcome may no longer be here: ''
-- if it cannot be older than the outcomes, '?' if nobody has looked, 'N' for nothing, and as an outcome if it was reaped. part is 'lost' or 'retry' among the resends of a request, or ''; it counts for partMs. tokens
-- are what it has used; claims are those that the gateway knows.
operations.settle = function(key, arg)
  -- Everything is checked before anything is changed, since a script that stops half-way is not undone.
  local account, id, verdict, charge, owner = key.account, arg.id, arg.verdict, amount(arg.charge), arg.owner
  local quota, tokens = isQuota(arg.name), amount(arg.tokens)
  local sums, windows, keyWindows, rates = readSums(account, owner, arg.claims ~= '-' and PURSES or nil)
  if not sums then
    -- A store that was filled from the records knows no quotas yet.
    if quota then return 'ok 0' end
    error('the account is missing')
  end
  local text = redis.call('GETDEL', key.hold)
  -- A hold with an outcome is one that was restored after it was reaped, or that a torn file has brought back.
  local outcome = (not text or verdict == '?') and redis.call('HGET', key.outcomes, id)
  local isOver = isForGood(outcome)
  local held, before, slotOrSharer, isForgotten, claims = 0, outcome and string.sub(outcome, 2) or nil, '0', false, arg.claims
  if text then
    local _, earlier
    held, _, _, earlier, slotOrSharer, claims = readHold(text)
    if earlier ~= '-' then before = earlier end
    book(sums, 0, -held, -1)
    redis.call('ZREM', key.leases, arg.lease)
    if readSlot(slotOrSharer) == '1' then redis.call('ZREM', key.slotsOrShares, id) end
  elseif not outcome then
    if isUnknown(account, verdict, arg.lease) then return 'unknown' end
    if verdict ~= '' then
      before = verdict ~= 'N' and string.sub(verdict, 2) or nil
      isForgotten = true
    end
  end
  -- A hold that is lost may have begun before somebody asked for the windows of its key.
  if not text and not isOver and not quota then
    local lost, own = readClaims(claims), redis.call('HGET', recordOf(account, owner), field.keyWindows)
    if own and #lost.ofKey == 0 then
      -- It counts in the windows of its first end.
      local _, firstEnd = reapedAt(outcome or verdict)
      takeAll(open(readWindows(own), firstEnd), lost.ofKey, 0, 0, 0)
      claims = claimsText(lost)
    end
  end
  local earlier = before and readParts(before) or NOTHING
  local wasCounted = earlier.charge + earlier.covered > 0
  if claims ~= '-' and arg.claims == '-' then windows, keyWindows, rates = unpack(redis.call('HMGET', account, unpack(PURSES))) end
  -- Ends what the hold has claimed, with a charge.
  local function ended(all, isCounted, ofBefore)
    if claims == '-' then return { charge = all, covered = 0, tokens = 0 }, {}, {} end
    return endClaims(account, owner, claims, { windows, keyWindows, rates }, { charge = all, tokens = isCounted and tokens or 0,
      isCounted = isCounted, before = ofBefore, wasCounted = ofBefore ~= NOTHING and wasCounted, isHeld = text ~= false,
      held = held, spare = sums.balance + ofBefore.charge })
  end
  if isOver then
    if text then
      local _, fields = ended(0, false, NOTHING)
      if quota then fields = noteUse(account, key.slotsOrShares, slotOrSharer, 0, held) end
      writeSums(account, owner, sums, fields)
    end
    return 'done ' .. string.sub(outcome, 2)
  end
  local waived = 0
  if arg.part ~= '' and charge > 0 then
    waived = waive(account, key.resends, arg.part, charge, arg.resendsMs, arg.waiversMax)
    charge = charge - waived
  end
  local parts, fields, plan = ended(charge, arg.kind == 'settle', earlier)
  book(sums, parts.charge - earlier.charge, 0, 0)
  -- What was waived must be remembered: a repetition would find nothing to waive it for.
  local isSilent = charge == 0 and waived == 0 and not before and
    (not text or (arg.kind == 'void' and (quota or unlisted(account, arg.freeEntriesMax))))
  local isListed = not isSilent and not quota
  if isListed then sums.ordinal = sums.ordinal + 1 end
  if quota then fields = noteUse(account, key.slotsOrShares, slotOrSharer, parts.charge - earlier.charge, held) end
  writeSums(account, owner, sums, fields)
  if isSilent then return 'ok ' .. whole(sums.balance) end
  -- Nothing that is not recorded yet may expire.
  if isForgotten then redis.call('PERSIST', key.outcomes) end
  redis.call('HSET', key.outcomes, id, 'F' .. whole(parts.charge))
  if not isListed then
    redis.call('EXPIRE', key.outcomes, QUOTA_OUTCOMES)
    return 'ok ' .. whole(sums.balance)
  end
  record(key.stream, key.outcomes, sums, {
    -- Without a hold and without an earlier end, the hold was lost with a failed store.
    kind = before and 'late' or (text and arg.kind or 'orphan'),
    name = arg.name, owner = owner, id = id, charge = parts.charge, before = partsText(earlier), waived = waived,
    plan = planOf(claims, parts, plan), notes = arg.notes,
  })
  return 'ok ' .. whole(sums.balance)
end

-- reap: ends a hold whose lease is over and charges its floor: what the customer is known to have received.
operations.reap = function(key, arg)
  local account, id, quota = key.account, arg.id, isQuota(arg.name)
  local leaseEnd = redis.call('ZSCORE', key.leases, arg.lease)
  if not leaseEnd or tonumber(leaseEnd) > now() then return 'live' end
  redis.call('ZREM', key.leases, arg.lease)
  local text = redis.call('GETDEL', key.hold)
  if not text then return 'gone' end
  local held, floor, _, earlier, slotOrSharer, claims, notes = readHold(text)
  local slot, owner = readSlot(slotOrSharer)
  owner = owner or ''
  local sums, windows, keyWindows, rates = readSums(account, owner, claims ~= '-' and PURSES or nil)
  if not sums then return 'gone' end
  local outcome = redis.call('HGET', key.outcomes, id)
  -- A hold that arrived after its exchange had ended is released.
  local isOver = isForGood(outcome)
  local known = earlier ~= '-' and earlier or (outcome and string.sub(outcome, 2))
  local before = (not isOver and known) and readParts(known) or NOTHING
  -- A hold that a torn file has brought back knows less than the one that was reaped before.
  floor = isOver and 0 or math.max(floor, before.charge + before.covered)
  if slot == '1' then redis.call('ZREM', slotsOf(key.slotsOrShares, owner), id) end
  book(sums, 0, -held, -1)
  local parts, fields, plan = { charge = floor, covered = 0, tokens = 0 }, {}, {}
  if claims ~= '-' then
    parts, fields, plan = endClaims(account, owner, claims, { windows, keyWindows, rates }, { charge = floor,
      tokens = floor > 0 and readClaims(claims).floor or 0, isCounted = floor > 0, before = before,
      wasCounted = before.charge + before.covered > 0, isHeld = true, held = held, spare = sums.balance + before.charge })
  end
  book(sums, parts.charge - before.charge, 0, 0)
  if not isOver and not quota then sums.ordinal = sums.ordinal + 1 end
  if quota then fields = noteUse(account, key.slotsOrShares, slotOrSharer, parts.charge - before.charge, held) end
  writeSums(account, owner, sums, fields)
  if isOver then return 'released' end
  local _, firstEnd = reapedAt(outcome)
  redis.call('HSET', key.outcomes, id, 'R' .. partsText(parts) .. ':' .. whole(sums.ordinal) .. ':' .. whole(firstEnd or now()))
  if quota then
    redis.call('EXPIRE', key.outcomes, QUOTA_OUTCOMES)
  else
    record(key.stream, key.outcomes, sums, {
      kind = 'reaped', name = arg.name, owner = owner, id = id, charge = parts.charge, before = partsText(before), waived = 0,
      plan = planOf(claims, parts, plan), notes = notes,
    })
  end
  return 'reaped'
end
