-- Operations on holds.

-- Milliseconds. A request that has waited for a slot at least this long leaves a note, and later requests of other
-- processes leave one slot to it. The note is valid for this long after the request has asked.
local LONG_WAIT, NOTED = 200, 600

-- How long the store remembers the outcomes of quotas, in seconds. Nothing else lets them expire.
local QUOTA_OUTCOMES = 7200

-- Returns whether a request gets no slot: all are taken, or the last one is left to the request of the note.
-- since, untilMs: since when that request waits, and how long the note is valid.
local function crowded(record, taken, slots, waitedMs, since, untilMs)
  local other = untilMs and tonumber(untilMs) > now() and tonumber(since)
  local began = now() - waitedMs
  local isLater = other and began > other + LONG_WAIT / 2
  if taken < (isLater and slots - 1 or slots) then
    if other and not isLater then redis.call('HDEL', record, field.longestWaitSince, field.longestWaitUntil) end
    return false
  end
  if waitedMs >= LONG_WAIT and not isLater then
    redis.call('HSET', record, field.longestWaitSince, whole(began), field.longestWaitUntil, whole(now() + NOTED))
  end
  return true
end

-- The fields of a key's record that a hold needs.
local RECORD = { field.status, field.expiresAt, field.version, field.cap, field.longestWaitSince, field.longestWaitUntil,
  field.lifetime, field.elsewhere, field.home }

-- Returns the sums of an account and the fields of a key's record, which is a part of its account if that has its name.
local function readKey(account, record, owner)
  if record == account then return readSums(account, owner, RECORD) end
  return readSums(account, owner), unpack(redis.call('HMGET', record, unpack(RECORD)))
end

-- hold: holds an amount if the key may be used, and if its balance and its cap cover at least the least amount. owner is the
-- key, or '' if it has the name of its account. With half = '1', an amount above half of what is left is reduced to that
-- half, but not below the least amount. concurrency is the maximum of running requests of the key, or 0; replies whose
-- clients left do not count. Repeating it changes nothing.
operations.hold = function(key, arg)
  local wanted, least, concurrency = amount(arg.amount), amount(arg.least), tonumber(arg.concurrency)
  local sums, status, expiresAt, version, cap, since, untilMs, lifetime, elsewhere, home =
    readKey(key.account, key.record, arg.owner)
  if not sums or not status then return 'stale' end
  local reason = barred(status, expiresAt)
  if reason then return reason end
  -- A key that was moved leaves a record behind, for the requests that run.
  local isHome = (home or '') == '' or home == string.match(arg.lease, '^%S+')
  if version ~= arg.version or not isHome then return 'stale' end
  local holds = (sums.part or sums).holds
  -- While there are slots to spare, nobody waits.
  if concurrency > 0 and holds >= concurrency - 1 and redis.call('EXISTS', key.hold) == 0 then
    local taken = holds - redis.call('ZCARD', key.slots)
    if taken >= concurrency - 1 and
      crowded(key.record, taken, concurrency, tonumber(arg.waitedMs), since, untilMs) then return 'busy' end
  end
  local room = roomOf(sums, cap, elsewhere)
  if arg.half == '1' and room >= 0 then wanted = math.min(wanted, math.max(math.floor(room / 2), least)) end
  local given = affordable(room, wanted, least)
  if not given or not writeHold(key.hold, given, 0, arg.bucket, '-', slotText('0', arg.owner), arg.notes, 'NX') then
    local before = redis.call('GET', key.hold)
    if before then return 'held ' .. string.match(before, '^%d+') .. ' ' .. whole(room) end
    return (room < sums.balance and 'capped ' or 'insufficient ') .. whole(room) .. ' 0'
  end
  book(sums, 0, given, 1)
  redis.call('ZADD', key.leases, whole(now() + tonumber(arg.leaseMs)), arg.lease)
  writeSums(key.account, arg.owner, sums)
  local answer = 'held ' .. whole(given) .. ' ' .. whole(room - given)
  if (lifetime or '') == '' then return answer end
  -- The first use of a key sets its expiry. Its record has no lifetime any more when that is recorded.
  if expiresAt == '' then redis.call('HSET', key.record, field.expiresAt, whole(now() + tonumber(lifetime))) end
  return answer .. ' begun'
end

-- Returns whether this store may lack the outcome of an exchange that has none here: nobody has asked the records; or the
-- account was filled from the records in the hour of the outcome's bucket or later; or the records know a later ordinal than
-- the account has.
local function isUnknown(account, verdict, lease)
  if verdict == '?' then return true end
  local found = redis.call('HMGET', account, field.filledHour, field.ordinal)
  if verdict == '' then return found[1] and tonumber(string.match(lease, '(%d+)%.%d+$')) <= tonumber(found[1]) end
  return tonumber(string.match(verdict, ':(%d+)$') or '0') > tonumber(found[2])
end

-- extend: extends a live hold to an amount, or as far as the balance allows. A hold that was reaped, or lost with a failed
-- store, is restored. A disabled key gets nothing more. The verdict is as for settle. Repeating it changes nothing.
operations.extend = function(key, arg)
  local wanted, verdict = amount(arg.amount), arg.verdict
  local reason, cap, elsewhere = off(key.record, arg.rotation)
  if reason then return 'off ' .. reason end
  local text = redis.call('GET', key.hold)
  local sums = readSums(key.account, arg.owner)
  if not sums then error('the account is missing') end
  local room = roomOf(sums, cap, elsewhere)
  if text then
    local held, floor, bucket, before, slotOrSharer, notes = readHold(text)
    local more = wanted > held and affordable(room, wanted - held, 1) or 0
    local wasReaped = false
    if before == '-' and verdict ~= '' then
      -- A hold that a torn file has brought back does not know that it was reaped.
      local outcome = redis.call('HGET', key.outcomes, arg.id) or
        (isUnknown(key.account, verdict, arg.lease) and '' or verdict)
      wasReaped = string.sub(outcome, 1, 1) == 'R'
      if wasReaped then before = whole(chargeIn(outcome)) end
    end
    if more > 0 or wasReaped then
      writeHold(key.hold, held + more, floor, bucket, before, slotOrSharer, notes)
      book(sums, 0, more, 0)
      writeSums(key.account, arg.owner, sums)
      noteShare(key.account, key.slotsOrShares, slotOrSharer, 0, more)
    end
    return 'held ' .. whole(held + more) .. ' ' .. whole(room - more)
  end
  local outcome = redis.call('HGET', key.outcomes, arg.id)
  if isForGood(outcome) then return 'gone' end
  if not outcome then
    if isUnknown(key.account, verdict, arg.lease) then return 'unknown' end
    if verdict ~= '' and verdict ~= 'N' then outcome = verdict end
  end
  local held = wanted > 0 and affordable(room, wanted, 1)
  if not held then return 'held 0 ' .. whole(room) end
  local before = outcome and whole(chargeIn(outcome)) or '-'
  writeHold(key.hold, held, amount(arg.floor), arg.bucket, before, slotText('0', arg.owner), arg.notes)
  book(sums, 0, held, 1)
  writeSums(key.account, arg.owner, sums)
  redis.call('ZADD', key.leases, whole(now() + tonumber(arg.leaseMs)), arg.lease)
  return 'held ' .. whole(held) .. ' ' .. whole(room - held)
end

-- renew: renews the lease of a live hold. What its customer has received so far becomes its floor, with the notes that
-- describe it. abandoned is '1' if its client left. Answers 'off' if its key is disabled, 'crowded' if it lost its slot.
operations.renew = function(key, arg)
  local floor = amount(arg.floor)
  local text = redis.call('GET', key.hold)
  if not text then return 'gone' end
  local held, earlier, bucket, before, slotOrSharer = readHold(text)
  if floor > earlier then writeHold(key.hold, held, floor, bucket, before, slotOrSharer, arg.notes) end
  redis.call('ZADD', key.leases, whole(now() + tonumber(arg.leaseMs)), arg.lease)
  local reason = off(key.record, arg.rotation)
  if reason then return 'off ' .. reason end
  if arg.abandoned == '1' and not redis.call('ZSCORE', key.slots, arg.id) then return 'crowded' end
  return 'ok'
end

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
-- if it cannot be older than the outcomes, '?' if nobody has looked, 'N' for nothing, 'R', a charge, ':' and an ordinal if
-- it was reaped. part is 'lost' or 'retry' among the resends of a request, or ''; it counts for partMs.
operations.settle = function(key, arg)
  -- Everything is checked before anything is changed, since a script that stops half-way is not undone.
  local account, id, verdict, charge, owner = key.account, arg.id, arg.verdict, amount(arg.charge), arg.owner
  local quota = isQuota(arg.name)
  local sums = readSums(account, owner)
  if not sums then
    -- A store that was filled from the records knows no quotas yet.
    if quota then return 'ok 0' end
    error('the account is missing')
  end
  local text = redis.call('GETDEL', key.hold)
  -- A hold with an outcome is one that was restored after it was reaped, or that a torn file has brought back.
  local outcome = (not text or verdict == '?') and redis.call('HGET', key.outcomes, id)
  local isOver = isForGood(outcome)
  local held, before, slotOrSharer, isForgotten = 0, outcome and chargeIn(outcome) or nil, '0', false
  if text then
    local _, earlier
    held, _, _, earlier, slotOrSharer = readHold(text)
    before = tonumber(earlier) or before
    book(sums, 0, -held, -1)
    redis.call('ZREM', key.leases, arg.lease)
    if readSlot(slotOrSharer) == '1' then redis.call('ZREM', key.slotsOrShares, id) end
    if isOver then
      writeSums(account, owner, sums)
      if quota then noteUse(account, key.slotsOrShares, slotOrSharer, 0, held) end
    end
  elseif not outcome then
    if isUnknown(account, verdict, arg.lease) then return 'unknown' end
    if verdict ~= '' then
      before = chargeIn(verdict)
      isForgotten = true
    end
  end
  if isOver then return 'done ' .. string.sub(outcome, 2) end
  local waived = 0
  if arg.part ~= '' and charge > 0 then
    waived = waive(account, key.resends, arg.part, charge, arg.resendsMs, arg.waiversMax)
    charge = charge - waived
  end
  book(sums, charge - (before or 0), 0, 0)
  -- What was waived must be remembered: a repetition would find nothing to waive it for.
  local isSilent = charge == 0 and waived == 0 and not before and
    (not text or (arg.kind == 'void' and (quota or unlisted(account, arg.freeEntriesMax))))
  local isListed = not isSilent and not quota
  if isListed then sums.ordinal = sums.ordinal + 1 end
  writeSums(account, owner, sums)
  if quota then noteUse(account, key.slotsOrShares, slotOrSharer, charge - (before or 0), held) end
  if isSilent then return 'ok ' .. whole(sums.balance) end
  -- Nothing that is not recorded yet may expire.
  if isForgotten then redis.call('PERSIST', key.outcomes) end
  redis.call('HSET', key.outcomes, id, 'F' .. whole(charge))
  if not isListed then
    redis.call('EXPIRE', key.outcomes, QUOTA_OUTCOMES)
    return 'ok ' .. whole(sums.balance)
  end
  record(key.stream, key.outcomes, sums, {
    -- Without a hold and without an earlier end, the hold was lost with a failed store.
    kind = before and 'late' or (text and arg.kind or 'orphan'),
    name = arg.name, owner = owner, id = id, charge = charge, before = before or 0, waived = waived, notes = arg.notes,
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
  local held, floor, _, earlier, slotOrSharer, notes = readHold(text)
  local slot, owner = readSlot(slotOrSharer)
  owner = owner or ''
  local sums = readSums(account, owner)
  if not sums then return 'gone' end
  local outcome = redis.call('HGET', key.outcomes, id)
  -- A hold that arrived after its exchange had ended is released.
  local isOver = isForGood(outcome)
  local before = isOver and floor or tonumber(earlier) or (outcome and chargeIn(outcome)) or 0
  -- A hold that a torn file has brought back knows less than the one that was reaped before.
  floor = math.max(floor, before)
  if slot == '1' then redis.call('ZREM', slotsOf(key.slotsOrShares, owner), id) end
  book(sums, floor - before, -held, -1)
  if not isOver and not quota then sums.ordinal = sums.ordinal + 1 end
  writeSums(account, owner, sums)
  if quota then noteUse(account, key.slotsOrShares, slotOrSharer, floor - before, held) end
  if isOver then return 'released' end
  redis.call('HSET', key.outcomes, id, 'R' .. whole(floor) .. ':' .. whole(sums.ordinal))
  if quota then
    redis.call('EXPIRE', key.outcomes, QUOTA_OUTCOMES)
  else
    record(key.stream, key.outcomes, sums, {
      kind = 'reaped', name = arg.name, owner = owner, id = id, charge = floor, before = before, waived = 0, notes = notes,
    })
  end
  return 'reaped'
end

-- abandon: gives a slot to a hold whose client has left while its reply is still read. Beyond the most slots, the hold that
-- was abandoned first loses its slot. readToEnd is '1' if the reply is read to its end in any case. Answers 'full' if all slots
-- belong to such replies; then the hold gets no slot.
operations.abandon = function(key, arg)
  local id = arg.id
  local text = redis.call('GET', key.hold)
  if not text then return 'gone' end
  local held, floor, bucket, before, slotOrSharer, notes = readHold(text)
  local _, owner = readSlot(slotOrSharer)
  writeHold(key.hold, held, floor, bucket, before, slotText('1', owner), notes)
  redis.call('ZADD', key.slots, arg.readToEnd == '1' and '+inf' or whole(now()), id)
  if redis.call('ZCARD', key.slots) <= tonumber(arg.most) then return 'ok' end
  local first = redis.call('ZRANGE', key.slots, 0, 0, 'WITHSCORES')
  local isFull = first[2] == 'inf'
  redis.call('ZREM', key.slots, isFull and id or first[1])
  return isFull and 'full' or ('ok ' .. first[1])
end

-- rejoin: a client receives the reply again.
operations.rejoin = function(key, arg)
  redis.call('ZREM', key.slots, arg.id)
  return 'ok'
end
