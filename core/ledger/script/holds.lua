-- Operations on holds.

-- Milliseconds. A request that has waited for a place at least this long leaves a note, and later requests of other
-- processes leave one place to it. The note holds for this long after the request has asked.
local LONG_WAIT, WAIT_KNOWN = 200, 600

-- Returns whether a request gets no place: all are taken, or the last one is left to the request of the note.
-- since, till: since when that request waits, and how long the note holds.
local function crowded(account, taken, most, waited, since, till)
  local other = till and tonumber(till) > now() and tonumber(since)
  local began = now() - waited
  local later = other and began > other + LONG_WAIT / 2
  if taken < (later and most - 1 or most) then
    if other and not later then redis.call('HDEL', account, 'wf', 'wu') end
    return false
  end
  if waited >= LONG_WAIT and not later then
    redis.call('HSET', account, 'wf', whole(began), 'wu', whole(now() + WAIT_KNOWN))
  end
  return true
end

-- hold(account, hold, leases; lease's name, amount, least amount, lease ms, version, maximum holds or 0, '1' for half,
-- bucket, notes, for how many ms the request has waited for a place)
-- Holds an amount if the key may be used and its balance covers at least the least amount. With half, an amount above
-- half of the balance is reduced to that half, but not below the least amount. Repeating it changes nothing. Replies
-- whose clients left do not count towards the maximum.
operations['hold'] = { 3, 10, function(k, a)
  local wanted, least, most = amount(ARGV[a + 1]), amount(ARGV[a + 2]), tonumber(ARGV[a + 5])
  local key = redis.call('HMGET', KEYS[k], 'st', 'ex', 've', 'bal', 'rsv', 'n', 'ab', 'wf', 'wu')
  if not key[1] then return 'stale' end
  local reason = barred(key[1], key[2])
  if reason then return reason end
  if key[3] ~= ARGV[a + 4] then return 'stale' end
  local balance, count = tonumber(key[4]), tonumber(key[6])
  local taken = count - tonumber(key[7])
  -- With places to spare, nobody waits.
  if most > 0 and taken >= most - 1 and redis.call('EXISTS', KEYS[k + 1]) == 0 and
    crowded(KEYS[k], taken, most, tonumber(ARGV[a + 9]), key[8], key[9]) then return 'busy' end
  if ARGV[a + 6] == '1' and balance >= 0 then
    wanted = math.min(wanted, math.max(math.floor(balance / 2), least))
  end
  local held = affordable(balance, wanted, least)
  if not held then
    local earlier = redis.call('GET', KEYS[k + 1])
    if earlier then return 'held ' .. string.match(earlier, '^%d+') .. ' ' .. whole(balance) end
    return 'insufficient ' .. whole(balance) .. ' 0'
  end
  if not writeHold(KEYS[k + 1], held, 0, ARGV[a + 7], '-', '0', ARGV[a + 8], 'NX') then
    return 'held ' .. string.match(redis.call('GET', KEYS[k + 1]), '^%d+') .. ' ' .. whole(balance)
  end
  balance = balance - held
  redis.call('HSET', KEYS[k], 'bal', whole(balance), 'rsv', whole(tonumber(key[5]) + held), 'n', whole(count + 1))
  redis.call('ZADD', KEYS[k + 2], whole(now() + tonumber(ARGV[a + 3])), ARGV[a])
  return 'held ' .. whole(held) .. ' ' .. whole(balance)
end }

-- Returns whether it is unknown how an exchange ended that has no outcome here. Its sender may not have noticed that the
-- account was filled from the records, in the hour `fh`. Or the store lacks the end that the records know: it fell back.
local function isUnknown(account, verdict, lease)
  if verdict == '?' then return true end
  local known = redis.call('HMGET', account, 'fh', 'sq')
  if verdict == '' then return known[1] and tonumber(string.match(lease, '(%d+)%.%d+$')) <= tonumber(known[1]) end
  return tonumber(string.match(verdict, ':(%d+)$') or '0') > tonumber(known[2])
end

-- extend(account, hold, leases, outcomes, places; lease's name, id, amount, lease ms, rotation, floor, bucket, notes,
-- verdict as for settle)
-- Extends a live hold to an amount, or as far as the balance allows. A hold that was reaped, or lost with a failed
-- store, is restored. Repeating it changes nothing. A disabled key gets nothing more.
operations['extend'] = { 5, 9, function(k, a)
  local wanted, verdict = amount(ARGV[a + 2]), ARGV[a + 8]
  local reason = off(KEYS[k], ARGV[a + 4])
  if reason then return 'off ' .. reason end
  local hold = redis.call('GET', KEYS[k + 1])
  local balance, reserved, count = sums(KEYS[k])
  if not balance then error('the account is missing') end
  if hold then
    local held, floor, bucket, before, placed, notes = readHold(hold)
    local more = wanted > held and affordable(balance, wanted - held, 1) or 0
    local wasReaped = false
    if before == '-' and verdict ~= '' then
      -- A hold that a torn file has brought back does not know that it was reaped.
      local outcome = redis.call('HGET', KEYS[k + 3], ARGV[a + 1]) or
        (isUnknown(KEYS[k], verdict, ARGV[a]) and '' or verdict)
      wasReaped = string.sub(outcome, 1, 1) == 'R'
      if wasReaped then before = whole(chargeIn(outcome)) end
    end
    if more > 0 or wasReaped then
      writeHold(KEYS[k + 1], held + more, floor, bucket, before, placed, notes)
      redis.call('HSET', KEYS[k], 'bal', whole(balance - more), 'rsv', whole(reserved + more))
      noteShare(KEYS[k], KEYS[k + 4], placed, 0, more)
    end
    return 'held ' .. whole(held + more) .. ' ' .. whole(balance - more)
  end
  local outcome = redis.call('HGET', KEYS[k + 3], ARGV[a + 1])
  if outcome and string.sub(outcome, 1, 1) == 'F' then return 'gone' end
  if not outcome then
    if isUnknown(KEYS[k], verdict, ARGV[a]) then return 'unknown' end
    if verdict ~= '' and verdict ~= 'N' then outcome = verdict end
  end
  local held = wanted > 0 and affordable(balance, wanted, 1)
  if not held then return 'held 0 ' .. whole(balance) end
  writeHold(KEYS[k + 1], held, amount(ARGV[a + 5]), ARGV[a + 6], outcome and whole(chargeIn(outcome)) or '-', '0',
    ARGV[a + 7])
  redis.call('HSET', KEYS[k], 'bal', whole(balance - held), 'rsv', whole(reserved + held), 'n', whole(count + 1))
  redis.call('ZADD', KEYS[k + 2], whole(now() + tonumber(ARGV[a + 3])), ARGV[a])
  return 'held ' .. whole(held) .. ' ' .. whole(balance - held)
end }

-- renew(account, hold, leases, places; lease's name, id, floor, lease ms, rotation, '1' if its client left, notes)
-- Renews the lease of a live hold. What its customer has received so far becomes its floor, with the notes that
-- describe it. Reports if its key is disabled, or if it has lost its place.
operations['renew'] = { 4, 7, function(k, a)
  local floor = amount(ARGV[a + 2])
  local hold = redis.call('GET', KEYS[k + 1])
  if not hold then return 'gone' end
  local held, earlier, bucket, before, placed = readHold(hold)
  if floor > earlier then writeHold(KEYS[k + 1], held, floor, bucket, before, placed, ARGV[a + 6]) end
  redis.call('ZADD', KEYS[k + 2], whole(now() + tonumber(ARGV[a + 3])), ARGV[a])
  local reason = off(KEYS[k], ARGV[a + 4])
  if reason then return 'off ' .. reason end
  if ARGV[a + 5] == '1' and not redis.call('ZSCORE', KEYS[k + 3], ARGV[a + 1]) then return 'crowded' end
  return 'ok'
end }

-- Subtracts the charge of an attempt that delivered nothing from the charge of the retry that succeeded, whichever is
-- settled first. Each of them counts once, and a key has a maximum of waivers per hour. Returns the waived amount. An
-- attempt without a counterpart records itself.
local function waive(account, attempts, role, charge, keep, most)
  local other, other_charge = string.match(redis.call('LINDEX', attempts, 0) or '', '^(%a+):(%d+)$')
  if other and other ~= role then
    redis.call('LPOP', attempts)
    local hour = whole(math.floor(now() / 3600000))
    if redis.call('HGET', account, 'wh') ~= hour then redis.call('HSET', account, 'wh', hour, 'wn', '0') end
    if redis.call('HINCRBY', account, 'wn', 1) > tonumber(most) then return 0 end
    return math.min(charge, tonumber(other_charge))
  end
  redis.call('LPUSH', attempts, role .. ':' .. whole(charge))
  redis.call('LTRIM', attempts, 0, 127)
  -- A delivered retry only waits for attempts that are still being read, otherwise the next one would be free.
  redis.call('PEXPIRE', attempts, role == 'retry' and math.min(tonumber(keep), 60000) or keep)
  return 0
end

-- Counts a request that cost nothing. Returns true if its account has used up its entries for this minute, so this one
-- gets none.
local function unlisted(account, most)
  local minute = whole(math.floor(now() / 60000))
  if redis.call('HGET', account, 'fm') ~= minute then redis.call('HSET', account, 'fm', minute, 'fn', '0') end
  if redis.call('HINCRBY', account, 'fn', 1) <= tonumber(most) then return false end
  redis.call('HINCRBY', account, 'fu', 1)
  return true
end

-- settle(account, hold, leases, stream, outcomes, places, attempts; lease's name, id, account's name, charge, kind,
-- notes, verdict, role, for how many ms the role counts, maximum waivers per hour, maximum free entries per minute)
-- Ends an exchange with its charge in any case, even if its hold was reaped or lost. Repeating it changes nothing.
-- The verdict says what the records know of an exchange whose outcome may no longer be here: '' if it cannot be older
-- than the outcomes, '?' if nobody has looked, 'N' for nothing, 'R', a charge, ':' and an ordinal if it was reaped.
-- The role is 'lost' or 'retry' among the attempts at a request, or ''. An account without a stream of entries is a
-- quota.
operations['settle'] = { 7, 11, function(k, a)
  -- Everything is checked before anything is changed, since a script that stops half-way is not undone.
  local account, id, kind, role, verdict = KEYS[k], ARGV[a + 1], ARGV[a + 4], ARGV[a + 7], ARGV[a + 6]
  local charge = amount(ARGV[a + 3])
  local quota = string.sub(ARGV[a + 2], 1, 6) == 'quota:'
  local balance, reserved, count, ordinal = sums(account)
  if not balance then
    -- A store that was filled from the records knows no quotas yet.
    if quota then return 'ok 0' end
    error('the account is missing')
  end
  local hold = redis.call('GETDEL', KEYS[k + 1])
  -- A hold with an outcome is one that was restored after it was reaped, or that a torn file has brought back.
  local outcome = (not hold or verdict == '?') and redis.call('HGET', KEYS[k + 4], id)
  local over = outcome and string.sub(outcome, 1, 1) == 'F'
  local held, before, placed, forgotten = 0, outcome and chargeIn(outcome) or nil, '0', false
  if hold then
    local _, earlier
    held, _, _, earlier, placed = readHold(hold)
    before = tonumber(earlier) or before
    balance, reserved, count = balance + held, reserved - held, count - 1
    redis.call('ZREM', KEYS[k + 2], ARGV[a])
    if placed == '1' then leavePlace(account, KEYS[k + 5], id) end
    if over then
      redis.call('HSET', account, 'bal', whole(balance), 'rsv', whole(reserved), 'n', whole(count))
      if quota then noteShare(account, KEYS[k + 5], placed, 0, -held) end
    end
  elseif not outcome then
    if isUnknown(account, verdict, ARGV[a]) then return 'unknown' end
    if verdict ~= '' then
      before = chargeIn(verdict)
      forgotten = true
    end
  end
  if over then return 'done ' .. string.sub(outcome, 2) end
  local waived = 0
  if role ~= '' and charge > 0 then
    waived = waive(account, KEYS[k + 6], role, charge, ARGV[a + 8], ARGV[a + 9])
    charge = charge - waived
  end
  balance = balance + (before or 0) - charge
  -- What was waived must be remembered: a repetition would find no attempt to waive it for.
  local silent = charge == 0 and waived == 0 and not before and
    (not hold or (kind == 'void' and (quota or unlisted(account, ARGV[a + 10]))))
  local listed = not silent and not quota
  if listed then ordinal = ordinal + 1 end
  redis.call('HSET', account, 'bal', whole(balance), 'rsv', whole(reserved), 'n', whole(count), 'sq', whole(ordinal))
  if quota then
    noteShare(account, KEYS[k + 5], placed, charge - (before or 0), -held)
    if charge ~= (before or 0) then noteUse(account, charge - (before or 0)) end
  end
  if silent then return 'ok ' .. whole(balance) end
  -- Nothing that is not recorded yet may expire.
  if forgotten then redis.call('PERSIST', KEYS[k + 4]) end
  redis.call('HSET', KEYS[k + 4], id, 'F' .. whole(charge))
  if not listed then
    -- Nobody records a quota's outcomes, so they expire by themselves.
    redis.call('EXPIRE', KEYS[k + 4], 7200)
    return 'ok ' .. whole(balance)
  end
  -- An end without a hold and without an earlier end: the hold was lost with a failed store.
  local named = before and 'late' or (hold and kind or 'orphan')
  record(KEYS[k + 3], KEYS[k + 4], named, ARGV[a + 2], ordinal, id, charge, before or 0, balance + reserved, waived,
    ARGV[a + 5])
  return 'ok ' .. whole(balance)
end }

-- reap(account, hold, leases, stream, outcomes, places; lease's name, id, account's name)
-- Ends a hold whose lease is over and charges its floor: what the customer is known to have received.
operations['reap'] = { 6, 3, function(k, a)
  local account, id = KEYS[k], ARGV[a + 1]
  local lease = redis.call('ZSCORE', KEYS[k + 2], ARGV[a])
  if not lease or tonumber(lease) > now() then return 'live' end
  redis.call('ZREM', KEYS[k + 2], ARGV[a])
  local hold = redis.call('GETDEL', KEYS[k + 1])
  local balance, reserved, count, ordinal = sums(account)
  if not hold or not balance then return 'gone' end
  local held, floor, _, earlier, placed, notes = readHold(hold)
  local outcome = redis.call('HGET', KEYS[k + 4], id)
  -- A hold that arrived after its exchange had ended is released.
  local over = outcome and string.sub(outcome, 1, 1) == 'F'
  local before = over and floor or tonumber(earlier) or (outcome and chargeIn(outcome)) or 0
  -- A hold that a torn file has brought back knows less than the one that was reaped before.
  floor = math.max(floor, before)
  local quota = string.sub(ARGV[a + 2], 1, 6) == 'quota:'
  balance = balance + held + before - floor
  if placed == '1' then leavePlace(account, KEYS[k + 5], id) end
  if not over and not quota then ordinal = ordinal + 1 end
  redis.call('HSET', account, 'bal', whole(balance), 'rsv', whole(reserved - held), 'n', whole(count - 1), 'sq',
    whole(ordinal))
  if quota then
    noteShare(account, KEYS[k + 5], placed, floor - before, -held)
    if floor ~= before then noteUse(account, floor - before) end
  end
  if over then return 'released' end
  redis.call('HSET', KEYS[k + 4], id, 'R' .. whole(floor) .. ':' .. whole(ordinal))
  if quota then
    redis.call('EXPIRE', KEYS[k + 4], 7200)
  else
    record(KEYS[k + 3], KEYS[k + 4], 'reaped', ARGV[a + 2], ordinal, id, floor, before, balance + reserved - held, 0,
      notes)
  end
  return 'reaped'
end }

-- abandon(account, hold, places; id, maximum places, '1' if the reply is read to its end in any case)
-- Gives a place to a hold whose client has left while its reply is still read. Beyond the maximum, the hold that was
-- abandoned first loses its place. Returns 'full' if all places belong to replies that must be read to their end; then
-- the hold gets no place.
operations['abandon'] = { 3, 3, function(k, a)
  local id, most = ARGV[a], tonumber(ARGV[a + 1])
  local hold = redis.call('GET', KEYS[k + 1])
  if not hold then return 'gone' end
  local held, floor, bucket, before, _, notes = readHold(hold)
  writeHold(KEYS[k + 1], held, floor, bucket, before, '1', notes)
  redis.call('ZADD', KEYS[k + 2], ARGV[a + 2] == '1' and '+inf' or whole(now()), id)
  local answer = 'ok'
  if redis.call('ZCARD', KEYS[k + 2]) > most then
    local first = redis.call('ZRANGE', KEYS[k + 2], 0, 0, 'WITHSCORES')
    answer = first[2] == 'inf' and 'full' or ('ok ' .. first[1])
    redis.call('ZREM', KEYS[k + 2], first[2] == 'inf' and id or first[1])
  end
  redis.call('HSET', KEYS[k], 'ab', whole(redis.call('ZCARD', KEYS[k + 2])))
  return answer
end }

-- rejoin(account, places; id): a client receives the reply again.
operations['rejoin'] = { 2, 1, function(k, a)
  leavePlace(KEYS[k], KEYS[k + 1], ARGV[a])
  return 'ok'
end }
