-- Operations on holds.

-- Milliseconds. A request that has waited for a slot at least this long leaves a note, and later requests of other
-- processes leave one slot to it. The note is valid for this long after the request has asked.
local LONG_WAIT, NOTED = 200, 600

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

-- The fields of a key's record that a hold needs, and those of its account.
local RECORD = { field.status, field.expiresAt, field.version, field.cap, field.longestWaitSince, field.longestWaitUntil,
  field.lifetime, field.elsewhere, field.home, field.keyWindows, field.rates }
local OF_ACCOUNT = { field.planVersion, field.windows }
local OF_BOTH = { field.planVersion, field.windows, unpack(RECORD) }

-- Returns the sums of an account, two fields of its plan, and the fields of a key's record, which is a part of its account if
-- that has its name.
local function readKey(account, record, owner)
  if record == account then return readSums(account, owner, OF_BOTH) end
  local sums, planVersion, windows = readSums(account, owner, OF_ACCOUNT)
  return sums, planVersion, windows, unpack(redis.call('HMGET', record, unpack(RECORD)))
end

-- Returns what a balance and the caps of a key and of its type have, as a window: its place is 'cap' if a cap has less.
local function creditsOf(sums, cap, typeCap, elsewhere)
  local room = roomOf(sums, cap, elsewhere)
  if typeCap ~= '' then room = math.min(room, roomOf(sums, typeCap, elsewhere)) end
  return { place = room < sums.balance and 'cap' or 'balance', unit = 'c', amount = room, used = 0, held = 0 }
end

-- Chooses the purse of a hold: the windows of the plan if all of them have enough, else the credits. The windows of the key must
-- have enough in any case.
-- Returns the nano-credits and the tokens, and whether they are the plan's; otherwise nil, a window that has too little, whether
-- it would have enough if nothing were held, and when it has enough.
local function choose(ofPlan, ofKey, credits, mayUseCredits, ask)
  if #ofPlan > 0 then
    local given, other, isHeld, lackUntil = offered(joined(ofPlan, ofKey), ask)
    if given then return given, other, true end
    if not mayUseCredits then return nil, other, isHeld, lackUntil end
    local ofCredits, tokens = offered(joined({ credits }, ofKey), ask)
    if ofCredits then return ofCredits, tokens, false end
    return nil, other, isHeld, lackUntil
  end
  local given, other, isHeld, lackUntil = offered(joined({ credits }, ofKey), ask)
  return given, other, not given and isHeld, lackUntil
end

-- Says why a hold gets nothing.
local function lackOf(window, isHeld, lackUntil, credits)
  if window == credits then return (window.place == 'cap' and 'capped ' or 'insufficient ') .. whole(window.amount) .. ' 0' end
  local words = (window.isOfKey and 'k' or 'w') .. window.place .. ' ' .. whole(lackUntil)
  return (isHeld and 'filled ' or 'used ') .. words .. ' ' .. whole(credits.amount) .. ' ' ..
    whole(math.max(0, roomIn(window)))
end

-- Answers a hold that is here already.
local function repeated(text, left)
  local _, _, _, _, _, claims = readHold(text)
  local answer = 'held ' .. whole(heldInAll(text)) .. ' ' .. whole(left)
  return claims == '-' and answer or answer .. ' - ' .. claims .. ' - - - -'
end

-- hold: holds an amount if the key may be used, and if a purse covers at least the least amount. owner is the key, or '' if it
-- has the name of its account. With half = '1', an amount above half of what is left is reduced to that half, but not below the
-- least amount. concurrency is the maximum of running requests of the key, or 0; replies whose clients left do not count.
-- planVersion is the version of the plan that the gateway knows, or ''. windows are those of the plan that count the request, as
-- windows.lua says, or ''; keyWindows those of the key. credits is '1' if the balance may be used beside the plan. typeCap is a cap of
-- the key's type, or ''. rates are
-- the requests and tokens that a minute allows, or ''. tokens and leastTokens are those of the two amounts.
-- A key that may have been used, and has no windows here, answers 'unfilled'. A hold that does not ask for them removes them, since what
-- it uses would be missing in them.
-- Everything is checked before anything is written. Repeating it changes nothing.
operations.hold = function(key, arg)
  local least, concurrency = amount(arg.least), tonumber(arg.concurrency)
  local ask = { wanted = amount(arg.amount), least = least, isHalf = arg.half == '1', requests = 1,
    tokens = tonumber(arg.tokens), leastTokens = tonumber(arg.leastTokens) }
  local sums, planVersion, windows, status, expiresAt, version, cap, since, untilMs, lifetime, elsewhere, home, keyWindows,
    rates = readKey(key.account, key.record, arg.owner)
  if not sums or not status then return 'stale' end
  local reason = barred(status, expiresAt)
  if reason then return reason end
  -- A key that was moved leaves a record behind, for the requests that run.
  local isHome = (home or '') == '' or home == string.match(arg.lease, '^%S+')
  if version ~= arg.version or not isHome or (planVersion or '') ~= arg.planVersion then return 'stale' end
  local credits = creditsOf(sums, cap, arg.typeCap, elsewhere)
  -- A hold that is here already may be what is in its own way.
  local function refused(answer)
    local known = redis.call('GET', key.hold)
    return known and repeated(known, credits.amount) or answer
  end
  local holds = (sums.part or sums).holds
  -- While there are slots to spare, nobody waits.
  if concurrency > 0 and holds >= concurrency - 1 and redis.call('EXISTS', key.hold) == 0 then
    local taken = holds - redis.call('ZCARD', key.slots)
    if taken >= concurrency - 1 and
      crowded(key.record, taken, concurrency, tonumber(arg.waitedMs), since, untilMs) then return 'busy' end
  end
  local ofPlan, ofKey, plan, own, reserved = {}, {}, nil, nil, nil
  if arg.rates ~= '' then
    local wait, fullIn
    rates, reserved, wait, fullIn = askRates(rates, arg.rates, ask.tokens)
    if not rates then return refused('limited ' .. reserved .. ' ' .. whole(wait) .. ' ' .. whole(fullIn)) end
  end
  if arg.windows ~= '' then ofPlan, plan = askedWindows(windows, arg.windows) end
  if arg.keyWindows ~= '' then
    local mayBeUsed = sums.ordinal > 0 or sums.holds > 0 or (elsewhere or '') ~= ''
    if not keyWindows and mayBeUsed then return refused('unfilled') end
    ofKey, own = askedWindows(keyWindows, arg.keyWindows)
  end
  if not ofPlan or not ofKey then return refused('window') end
  for _, window in ipairs(ofKey) do window.isOfKey = true end
  local given, tokens, isOfPlan, lackUntil = choose(ofPlan, ofKey, credits, arg.credits == '1', ask)
  if not given then return refused(lackOf(tokens, isOfPlan, lackUntil, credits)) end
  local claims, more, changed = '-', {}, {}
  if isOfPlan or own or reserved then
    local taken = { windows = {}, ofKey = {}, reserved = (reserved or 0) > 0 and reserved or nil }
    if isOfPlan then
      taken.shape, taken.plan, taken.beyond = plan.shape, given, arg.credits == '1'
      takeAll(ofPlan, taken.windows, given, tokens, 1)
      more = { field.windows, windowsText(plan) }
    end
    takeAll(ofKey, taken.ofKey, given, tokens, 1)
    claims = claimsText(taken)
    if own then changed = { field.keyWindows, windowsText(own) } end
    if reserved then
      changed[#changed + 1] = field.rates
      changed[#changed + 1] = ratesText(rates)
    end
  end
  local ofCredits = isOfPlan and 0 or given
  if not writeHold(key.hold, ofCredits, 0, arg.bucket, '-', slotText('0', arg.owner), claims, arg.notes, 'NX') then
    return repeated(redis.call('GET', key.hold), credits.amount)
  end
  if keyWindows and not own then redis.call('HDEL', key.record, field.keyWindows) end
  writeRecord(key.account, key.record, changed, more)
  book(sums, 0, ofCredits, 1)
  redis.call('ZADD', key.leases, whole(now() + tonumber(arg.leaseMs)), arg.lease)
  writeSums(key.account, arg.owner, sums, more)
  local answer = 'held ' .. whole(given) .. ' ' .. whole(credits.amount - ofCredits)
  local isBegun = (lifetime or '') ~= ''
  -- The first use of a key sets its expiry. Its record has no lifetime any more when that is recorded.
  if isBegun and expiresAt == '' then
    redis.call('HSET', key.record, field.expiresAt, whole(now() + tonumber(lifetime)))
  end
  if claims == '-' and arg.windows == '' and not reserved then return isBegun and answer .. ' begun' or answer end
  return answer .. (isBegun and ' begun ' or ' - ') .. claims .. ' ' .. (reserved and ratesText(rates) or '- - -') .. ' ' ..
    (plan and windowsText(plan) or '-')
end

-- Returns whether this store may lack the outcome of an exchange that has none here: nobody has asked the records; or the
-- account was filled from the records in the hour of the outcome's bucket or later; or the records know a later ordinal than
-- the account has.
local function isUnknown(account, verdict, lease)
  if verdict == '?' then return true end
  local found = redis.call('HMGET', account, field.filledHour, field.ordinal)
  if verdict == '' then return found[1] and tonumber(string.match(lease, '(%d+)%.%d+$')) <= tonumber(found[1]) end
  return (reapedAt(verdict) or 0) > tonumber(found[2])
end

-- What a hold gets more.
-- text: its claims. call: what the operation was asked. more: nano-credits. Returns the credits that it gets, what it gets of the
-- plan, its claims, and the fields of the account that change; nil if the gateway's calendar is behind.
local function extended(text, call, credits, more, found)
  if text == '-' then return affordable(credits.amount, more, 1) or 0, 0, text, {} end
  local claims, taken = readClaims(text), 0
  local ofPlan, plan, ofKey, own = {}, nil, {}, nil
  -- Another plan may have taken the place of that one.
  if claims.shape and call.windows ~= '' and string.match(found[1] or claims.shape, '^%S*') == claims.shape then
    ofPlan, plan = askedWindows(found[1], call.windows)
  end
  if call.keyWindows ~= '' and found[2] then
    ofKey, own = askedWindows(found[2], call.keyWindows)
  elseif #claims.ofKey > 0 and found[2] then
    -- The windows were filled while this hold ran.
    own = readWindows(found[2])
    ofKey = open(own)
  end
  if not ofPlan or not ofKey then return nil end
  for _, window in ipairs(ofPlan) do
    if window.unit == 't' then
      local already = 0
      for _, claim in ipairs(claims.windows) do
        if claim.place == window.place then already = already + claim.taken end
      end
      taken = math.max(taken, already)
    end
  end
  local tokens = math.max(0, tonumber(call.tokens) - taken)
  local ofWindows, ofTokens, ofCredits
  if #ofPlan > 0 then
    ofWindows, ofTokens = offered(joined(ofPlan, ofKey), { wanted = more, least = 1, requests = 0, tokens = tokens,
      leastTokens = math.min(1, tokens) })
  end
  if ofWindows then
    takeAll(ofPlan, claims.windows, ofWindows, ofTokens, 0)
    takeAll(ofKey, claims.ofKey, ofWindows, 0, 0)
    claims.plan = claims.plan + ofWindows
  else
    ofWindows = 0
  end
  -- The rest is taken from credits at once, so that a repetition finds nothing to do.
  if ofWindows < more and (not claims.shape or claims.beyond) then
    ofCredits = offered(joined({ credits }, ofKey), { wanted = more - ofWindows, least = 1, requests = 0, tokens = 0,
      leastTokens = 0 })
    if ofCredits then takeAll(ofKey, claims.ofKey, ofCredits, 0, 0) end
  end
  ofCredits = ofCredits or 0
  if ofWindows == 0 and ofCredits == 0 then return 0, 0, text, {} end
  local fields = ofWindows > 0 and { field.windows, windowsText(plan) } or {}
  writeRecord(call.account, call.record, own and { field.keyWindows, windowsText(own) } or {}, fields)
  return ofCredits, ofWindows, claimsText(claims), fields
end

-- Takes again what a hold has claimed, in a store that has lost it.
local function takeAgain(state, claims)
  for _, window in ipairs(state) do
    for _, claim in ipairs(claims) do
      if claim.place == window.place and isCurrent(window, claim) then window.held = window.held + claim.taken end
    end
  end
end

-- Restores a hold that was reaped, or lost with a failed store. Returns the credits that it gets, and the fields of the account
-- that change.
local function restored(claims, call, credits, wanted, found)
  local held = affordable(credits.amount, math.max(0, wanted - claims.plan), 1) or 0
  if held == 0 and claims.plan == 0 then return nil end
  local fields, plan = {}, readWindows(found[1] or claims.shape)
  if claims.shape and plan.shape == claims.shape then
    bringUp(plan, claims.windows)
    takeAgain(plan, claims.windows)
    fields = { field.windows, windowsText(plan) }
  end
  if not found[2] then return held, fields end
  local own = readWindows(found[2])
  bringUp(own, claims.ofKey)
  claimAll(own, claims, held + claims.plan)
  writeRecord(call.account, call.record, { field.keyWindows, windowsText(own) }, fields)
  return held, fields
end

-- extend: extends a live hold to an amount, or as far as its purse allows. A hold that was reaped, or lost with a failed
-- store, is restored, with the claims that the gateway knows. A disabled key gets nothing more. The verdict is as for settle,
-- and windows, keyWindows and tokens as for hold. Repeating it changes nothing.
operations.extend = function(key, arg)
  local wanted, verdict = amount(arg.amount), arg.verdict
  local reason, cap, elsewhere, ofKey = off(key.record, arg.rotation)
  if reason then return 'off ' .. reason end
  local text = redis.call('GET', key.hold)
  local hasClaims = arg.claims ~= '-'
  local sums, windows = readSums(key.account, arg.owner, hasClaims and { field.windows } or nil)
  if not sums then error('the account is missing') end
  local credits = creditsOf(sums, cap, arg.typeCap, elsewhere)
  local room, found = credits.amount, { windows, ofKey }
  local call = { account = key.account, record = key.record, windows = arg.windows, keyWindows = arg.keyWindows,
    tokens = arg.tokens }
  local function answer(all, ofCredits, claims)
    return 'held ' .. whole(all) .. ' ' .. whole(room - ofCredits) .. (claims ~= '-' and ' ' .. claims or '')
  end
  if text then
    local held, floor, bucket, before, slotOrSharer, claims, notes = readHold(text)
    local all = held + (claims == '-' and 0 or readClaims(claims).plan)
    local more, ofPlan, newClaims, fields = 0, 0, claims, {}
    if wanted > all then
      if arg.keyWindows ~= '' and not ofKey then return 'unfilled' end
      more, ofPlan, newClaims, fields = extended(claims, call, credits, wanted - all, found)
      if not more then return 'window' end
    end
    local wasReaped = false
    if before == '-' and verdict ~= '' then
      -- A hold that a torn file has brought back does not know that it was reaped.
      local outcome = redis.call('HGET', key.outcomes, arg.id) or
        (isUnknown(key.account, verdict, arg.lease) and '' or verdict)
      wasReaped = string.sub(outcome, 1, 1) == 'R'
      if wasReaped then before = partsText(readParts(string.sub(outcome, 2))) end
    end
    if newClaims ~= claims or more > 0 or wasReaped then
      writeHold(key.hold, held + more, floor, bucket, before, slotOrSharer, newClaims, notes)
      book(sums, 0, more, 0)
      writeSums(key.account, arg.owner, sums, fields)
      if not readSlot(slotOrSharer) then
        noteShare(readWindows(redis.call('HGET', key.account, field.windows)), key.slotsOrShares, slotOrSharer, 0, more)
      end
    end
    return answer(all + more + ofPlan, more, newClaims)
  end
  local outcome = redis.call('HGET', key.outcomes, arg.id)
  if isForGood(outcome) then return 'gone' end
  if not outcome then
    if isUnknown(key.account, verdict, arg.lease) then return 'unknown' end
    if verdict ~= '' and verdict ~= 'N' then outcome = verdict end
  end
  local claims = readClaims(arg.claims)
  local held, fields
  -- When it was reaped, its tokens took the place of those that it had reserved.
  if outcome then claims.reserved = claims.reserved and 0 end
  if wanted > 0 then held, fields = restored(claims, call, credits, wanted, found) end
  if not held then return answer(0, 0, arg.claims) end
  local before, newClaims = outcome and partsText(readParts(string.sub(outcome, 2))) or '-', claimsText(claims)
  writeHold(key.hold, held, amount(arg.floor), arg.bucket, before, slotText('0', arg.owner), newClaims, arg.notes)
  book(sums, 0, held, 1)
  writeSums(key.account, arg.owner, sums, fields)
  redis.call('ZADD', key.leases, whole(now() + tonumber(arg.leaseMs)), arg.lease)
  return answer(held + claims.plan, held, newClaims)
end

-- renew: renews the lease of a live hold. What its customer has received so far becomes its floor, with the notes that
-- describe it and its tokens. abandoned is '1' if its client left. Answers 'off' if its key is disabled, 'crowded' if it lost
-- its slot.
operations.renew = function(key, arg)
  local floor = amount(arg.floor)
  local text = redis.call('GET', key.hold)
  if not text then return 'gone' end
  local held, earlier, bucket, before, slotOrSharer, claims = readHold(text)
  if floor > earlier then
    if claims ~= '-' then
      claims = readClaims(claims)
      claims.floor = tonumber(arg.tokens)
      claims = claimsText(claims)
    end
    writeHold(key.hold, held, floor, bucket, before, slotOrSharer, claims, arg.notes)
  end
  redis.call('ZADD', key.leases, whole(now() + tonumber(arg.leaseMs)), arg.lease)
  local reason = off(key.record, arg.rotation)
  if reason then return 'off ' .. reason end
  if arg.abandoned == '1' and not redis.call('ZSCORE', key.slots, arg.id) then return 'crowded' end
  return 'ok'
end

-- abandon: gives a slot to a hold whose client has left while its reply is still read. Beyond the most slots, the hold that
-- was abandoned first loses its slot. readToEnd is '1' if the reply is read to its end in any case. Answers 'full' if all slots
-- belong to such replies; then the hold gets no slot.
operations.abandon = function(key, arg)
  local id = arg.id
  local text = redis.call('GET', key.hold)
  if not text then return 'gone' end
  local held, floor, bucket, before, slotOrSharer, claims, notes = readHold(text)
  local _, owner = readSlot(slotOrSharer)
  writeHold(key.hold, held, floor, bucket, before, slotText('1', owner), claims, notes)
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
