-- Operations on accounts: keys, grants, refunds, and what is restored.

-- Returns the keys that have a part of an account. '' stands for the one with its name.
local function ownersIn(account)
  local owners = {}
  for _, name in ipairs(redis.call('HKEYS', account)) do
    if string.sub(name, 1, #PART) == PART then owners[#owners + 1] = string.sub(name, #PART + 1) end
  end
  return owners
end

local function less(one, other)
  return added(one, string.sub(other, 1, 1) == '-' and string.sub(other, 2) or '-' .. other)
end

-- open: creates an account from what the records know, unless it is here: the number of its grants, granted, settled, and the
-- ordinal of its last entry. shared is '1' if several keys may spend from it; parts has these keys and what each was charged.
-- With the parts '?' nothing is created: they are read only if they are needed. In an account that is here and was not shared
-- before, the key with its name gets what is no part of another.
operations.open = function(key, arg)
  local account = key.account
  local sums = readSums(account, '')
  if sums then
    if arg.shared ~= '1' or sums.part then return 'ok' end
    local charged = added(added(sums.granted, whole(-sums.balance)), whole(-sums.held))
    local rest = { charged = charged, held = sums.held, holds = sums.holds, ends = sums.ordinal }
    for _, owner in ipairs(ownersIn(account)) do
      local part = readSums(account, owner).part
      rest.charged = less(rest.charged, part.charged)
      rest.held, rest.holds = rest.held - part.held, rest.holds - part.holds
    end
    sums.part = rest
    writeSums(account, '', sums)
    return 'ok'
  end
  if arg.parts == '?' then return 'unknown' end
  redis.call('HSET', account, field.held, '0', field.holds, '0', field.grants, arg.grants, field.granted, arg.granted,
    field.ordinal, arg.ordinal, field.balance, less(arg.granted, arg.settled))
  if arg.shared == '1' then redis.call('HSET', account, PART, '0 0 0') end
  for owner, charged in string.gmatch(arg.parts, '(%S+) (%S+)') do
    redis.call('HSET', account, PART .. (owner == arg.name and '' or owner), charged .. ' 0 0')
  end
  -- The sums contain the entries up to here, whose outcomes are not here.
  if arg.ordinal ~= '0' then
    redis.call('HSET', account, field.filledUpTo, arg.ordinal, field.filledHour, whole(math.floor(now() / HOUR)))
  end
  return 'ok'
end

-- put: writes the record of a key, unless a newer one or another one of this version is here.
operations.put = function(key, arg)
  local found = redis.call('HMGET', key.record, field.version, field.status, field.digest, field.expiresAt,
    field.lifetime, field.ahead, field.home, field.elsewhere)
  local version, expiresAt = found[1], arg.expiresAt
  -- The store is the first to know when a key was first used.
  if expiresAt == '' and arg.lifetime ~= '' then
    expiresAt = found[4] or ''
    -- What its lifetime was extended by counts from there.
    local longer = tonumber(arg.lifetime) - tonumber(found[5] or arg.lifetime)
    if expiresAt ~= '' and longer ~= 0 then expiresAt = whole(tonumber(expiresAt) + longer) end
  end
  if version == arg.version and found[2] == arg.status and found[3] == arg.digest then
    -- What a key was charged elsewhere changes without another version.
    if arg.elsewhere ~= '' then redis.call('HSET', key.record, field.elsewhere, arg.elsewhere) end
    if (found[8] or '') ~= arg.elsewhere then redis.call('HDEL', key.record, field.keyWindows) end
    return 'ok'
  end
  if version and tonumber(version) >= tonumber(arg.version) then return 'old ' .. version end
  -- The records do not know yet that it is disabled.
  if found[6] and arg.status == 'active' then return 'old ' .. version end
  redis.call('HSET', key.record, field.version, arg.version, field.type, arg.type, field.status, arg.status,
    field.expiresAt, expiresAt, field.digest, arg.digest, field.label, arg.label, field.rotation, arg.rotation,
    field.createdAt, arg.createdAt)
  if arg.status == 'disabled' then redis.call('HDEL', key.record, field.ahead) end
  -- A key that was moved has used its windows elsewhere. They are filled again.
  if (found[7] or '') ~= arg.home or (found[8] or '') ~= arg.elsewhere then
    redis.call('HDEL', key.record, field.keyWindows)
  end
  -- Most keys have none of these.
  for name, value in pairs({ [field.cap] = arg.cap, [field.elsewhere] = arg.elsewhere, [field.lifetime] = arg.lifetime,
    [field.home] = arg.home, [field.limits] = arg.limits }) do
    if value ~= '' then
      redis.call('HSET', key.record, name, value)
    elseif version then
      redis.call('HDEL', key.record, name)
    end
  end
  return 'ok'
end

-- plan: writes the plan of an account, unless a newer one is here. windows is what was used in its windows, as the records
-- know it, for an account that was filled from them and has none; with '?' they are only read if they are needed. Answers
-- 'unknown' with the ordinal of the last entry that they must contain: later ones are replayed.
operations.plan = function(key, arg)
  local version, windows, filledUpTo =
    unpack(redis.call('HMGET', key.account, field.planVersion, field.windows, field.filledUpTo))
  if version and tonumber(version) > tonumber(arg.version) then return 'old ' .. version end
  if not windows and arg.windows == '?' and filledUpTo then return 'unknown ' .. filledUpTo end
  redis.call('HSET', key.account, field.planVersion, arg.version, field.plan, arg.plan)
  if not windows and arg.windows ~= '' and arg.windows ~= '?' then
    redis.call('HSET', key.account, field.windows, arg.windows)
  end
  return 'ok'
end

-- windows: corrects what was used in the windows of an account, unless they have changed since they were read.
operations.windows = function(key, arg)
  if (redis.call('HGET', key.account, field.windows) or '') ~= arg.before then return 'changed' end
  redis.call('HSET', key.account, field.windows, arg.windows)
  return 'ok'
end

-- Returns the holds of an account that have leases, each with its id, its lease and its text, which is false if it has ended.
local function leasedHolds(leases, account, prefix)
  local found, name = {}, account .. ' '
  for _, lease in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
    if string.sub(lease, 1, #name) == name then
      local id = string.match(lease, '^%S+', #name + 1)
      found[#found + 1] = { id = id, lease = lease, text = redis.call('GET', prefix .. id) }
    end
  end
  return found
end

-- fill: writes the windows of a key, if the store has none. windows has what its entries were charged; its running holds claim
-- what they hold. seen is the number of the key that grows with each end, or the ordinal of an account of its own, before the entries
-- were read. Answers 'changed' if that has changed, or what the key was charged elsewhere; otherwise its windows.
operations.fill = function(key, arg)
  local sums = readSums(key.account, arg.owner)
  local keyWindows, elsewhere = unpack(redis.call('HMGET', key.record, field.keyWindows, field.elsewhere))
  if keyWindows then return 'ok ' .. keyWindows end
  local seen = sums and whole(sums.part and sums.part.ends or sums.ordinal)
  if seen ~= arg.seen or (elsewhere or '') ~= arg.elsewhere then return 'changed' end
  local own = readWindows(arg.windows)
  -- Midnight has passed since the entries were added up.
  if #open(own) == 0 then return 'changed' end
  for _, hold in ipairs(sums.holds > 0 and leasedHolds(key.leases, arg.name, arg.holdPrefix) or {}) do
    local held, floor, bucket, ended, slotOrSharer, text, notes = readHold(hold.text or '')
    local _, owner = readSlot(slotOrSharer or '')
    if owner == arg.owner then
      local claims = readClaims(text)
      claimAll(own, claims, held + claims.plan)
      writeHold(arg.holdPrefix .. hold.id, held, floor, bucket, ended, slotOrSharer, claimsText(claims), notes)
    end
  end
  redis.call('HSET', key.record, field.keyWindows, windowsText(own))
  return 'ok ' .. windowsText(own)
end

-- disable: refuses a key from now on, also if a record comes that does not know it. Answers its new version.
operations.disable = function(key, arg)
  local version, status = unpack(redis.call('HMGET', key.record, field.version, field.status))
  if not version then return 'unknown' end
  if status ~= 'disabled' then version = whole(tonumber(version) + 1) end
  redis.call('HSET', key.record, field.status, 'disabled', field.version, version, field.ahead, '1')
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

-- credit: refunds an exchange: an amount of credits, and what a plan has paid of it, as its entry says, or '-'. Both count in
-- the windows of its key that had begun before it. Answers 'closed', and changes nothing, if each window that has paid is over.
-- The caller has looked in the records whether this was done before.
operations.credit = function(key, arg)
  local refund, covered, tokens, claims = amount(arg.amount), readPlanOf(arg.plan)
  local sums, windows = readSums(key.account, arg.owner, { field.windows })
  if not sums then return 'unknown' end
  if redis.call('HEXISTS', key.outcomes, arg.id) == 1 then return 'done' end
  local before, plan, fields = { charge = refund, covered = covered, tokens = tokens }, {}, {}
  if claims then
    fields, plan = undoClaims(key.account, claims, windows, before)
    if not fields then return 'closed' end
  end
  redis.call('PERSIST', key.outcomes)
  redis.call('HSET', key.outcomes, arg.id, 'F0')
  book(sums, -refund, 0, 0)
  sums.ordinal = sums.ordinal + 1
  writeSums(key.account, arg.owner, sums, fields)
  local keyWindows = redis.call('HGET', key.record, field.keyWindows)
  if keyWindows then
    local own, beganAt = readWindows(keyWindows), tonumber(arg.beganAt)
    for _, window in ipairs(own) do
      if beganAt >= window.from and beganAt < window.ends then window.used = window.used - refund - covered end
    end
    redis.call('HSET', key.record, field.keyWindows, windowsText(own))
  end
  record(key.stream, key.outcomes, sums, {
    kind = 'credit', name = arg.name, owner = arg.owner, id = arg.id, charge = 0, before = partsText(before), waived = 0,
    plan = planOf(claims or '-', before, plan), notes = arg.notes,
  })
  return 'ok'
end

-- replay: applies an exchange that the records know and that a store may have lost with its last writes. how is 'F' or 'R',
-- before is what an earlier end charged, and recent is '1' if its outcome cannot have been forgotten. reapedCharge is the
-- charge with what is waived because a sum of lost entries contains it. plan is what its entry says of its plan, or '-'.
-- A store that has counted others since has given them the same ordinals. Only the outcomes show then which exchanges it
-- knows.
operations.replay = function(key, arg)
  local account, ordinal, isReaped = key.account, tonumber(arg.ordinal), arg.how == 'R'
  local sums, filledUpTo, windows, keyWindows, rates = readSums(account, arg.owner, { field.filledUpTo, unpack(PURSES) })
  if not sums then return 'unknown' end
  local last = sums.ordinal
  local outcome = redis.call('HGET', key.outcomes, arg.id)
  local charge = tonumber(arg.charge)
  local covered, tokens, claims = readPlanOf(arg.plan)
  local isKnown = isForGood(outcome)
  if outcome and not isKnown and isReaped then
    -- An exchange may be reaped more than once. A store that fell back may have given the same ordinal to another charge.
    local of, ended = reapedAt(outcome) or ordinal, readParts(string.sub(outcome, 2))
    local isSame = ended.charge == charge or ended.charge == tonumber(arg.reapedCharge)
    isKnown = of > ordinal or (of == ordinal and isSame and ended.covered == covered)
  end
  if isKnown then
    -- The records have counted it with a later ordinal.
    if last < ordinal then redis.call('HSET', account, field.ordinal, whole(ordinal)) end
    return 'known'
  end
  if last >= ordinal and arg.recent ~= '1' then return 'known' end
  if ordinal <= tonumber(filledUpTo or '0') then return 'known' end
  local before = readParts(outcome and string.sub(outcome, 2) or arg.before)
  local text, held = redis.call('GETDEL', key.hold), 0
  if text then
    local _, earlier, slotOrSharer, ofHold
    held, _, _, earlier, slotOrSharer, ofHold = readHold(text)
    if earlier ~= '-' then before = readParts(earlier) end
    claims = ofHold ~= '-' and ofHold or claims
    book(sums, 0, -held, -1)
    redis.call('ZREM', key.leases, arg.lease)
    if readSlot(slotOrSharer) == '1' then redis.call('ZREM', key.slots, arg.id) end
  end
  local parts, fields = { charge = charge, covered = covered, tokens = tokens }, {}
  if arg.kind == 'credit' and claims then
    fields = undoClaims(account, claims, windows, { charge = -charge, covered = -covered, tokens = -tokens }) or {}
  elseif claims then
    fields = applyEntry(account, arg.owner, claims, { windows, keyWindows, rates }, {
      parts = parts, isCounted = charge + parts.covered > 0 or arg.kind == 'settle', before = before,
      wasCounted = before.charge + before.covered > 0, isHeld = text ~= false,
    })
  end
  -- A refund is a negative charge.
  book(sums, charge - before.charge, 0, 0)
  sums.ordinal = math.max(last, ordinal)
  writeSums(account, arg.owner, sums, fields)
  -- An entry does not say what its hold has claimed of the windows of its key. They are filled again.
  redis.call('HDEL', recordOf(account, arg.owner), field.keyWindows)
  parts.charge = math.max(charge, 0)
  redis.call('HSET', key.outcomes, arg.id,
    arg.how .. (isReaped and partsText(parts) .. ':' .. arg.ordinal .. ':' .. arg.endedAt or whole(parts.charge)))
  -- It is recorded, so nobody else lets it expire. Three hours are longer than an outcome is asked for.
  if redis.call('TTL', key.outcomes) < 0 then redis.call('EXPIRE', key.outcomes, 3 * HOUR / SECOND) end
  return 'ok'
end

-- recount: sets what is held, and the number of holds, from the holds that are here, so that what was settled stays the
-- same. seen has the ids of holds that were seen; one without a lease gets one. The slots of replies whose clients left, and
-- what a quota's shares hold, follow from the holds too. Answers what was corrected.
operations.recount = function(key, arg)
  local sums = readSums(key.account, '')
  if not sums then return 'unknown' end
  local isLeased, held, holds, isChanged, claimed = {}, 0, 0, false, {}
  -- What is held, and by how many holds, of each key of an account, or of each share of a quota.
  local by = {}
  -- Returns the bucket of the hold's outcome.
  local function add(text)
    local more, _, bucket, _, slotOrSharer, claims = readHold(text)
    local _, owner = readSlot(slotOrSharer)
    if claims ~= '-' then claimed[#claimed + 1] = { owner = owner, claims = readClaims(claims) } end
    local of = by[owner or slotOrSharer] or { held = 0, holds = 0 }
    by[owner or slotOrSharer] = { held = of.held + more, holds = of.holds + 1 }
    held, holds = held + more, holds + 1
    return bucket
  end
  for _, hold in ipairs(leasedHolds(key.leases, arg.name, arg.holdPrefix)) do
    if not hold.text then
      redis.call('ZREM', key.leases, hold.lease)
    elseif not isLeased[hold.id] then
      isLeased[hold.id] = true
      add(hold.text)
    end
  end
  for id in string.gmatch(arg.seen, '%S+') do
    local text = not isLeased[id] and redis.call('GET', arg.holdPrefix .. id)
    if text then
      local lease = arg.name .. ' ' .. id .. ' ' .. add(text)
      redis.call('ZADD', key.leases, whole(now() + tonumber(arg.leaseMs)), lease)
    end
  end
  if isQuota(arg.name) then
    local all = redis.call('HGETALL', key.slotsOrShares)
    for index = 1, #all, 2 do
      local share = string.match(all[index + 1], '^%d+ %d+ %d+ ') .. whole((by[all[index]] or { held = 0 }).held)
      isChanged = isChanged or share ~= all[index + 1]
      redis.call('HSET', key.slotsOrShares, all[index], share)
    end
  else
    local owners = { [''] = true }
    for _, owner in ipairs(ownersIn(key.account)) do owners[owner] = true end
    for owner in pairs(by) do owners[owner] = true end
    for owner in pairs(owners) do
      local slots = slotsOf(key.slotsOrShares, owner)
      for _, id in ipairs(redis.call('ZRANGE', slots, 0, -1)) do
        if redis.call('EXISTS', arg.holdPrefix .. id) == 0 then redis.call('ZREM', slots, id) end
      end
      local part = readSums(key.account, owner).part
      local of = by[owner] or { held = 0, holds = 0 }
      if part and (part.held ~= of.held or part.holds ~= of.holds) then
        isChanged = true
        part.held, part.holds = of.held, of.holds
        redis.call('HSET', key.account, PART .. owner, partText(part))
      end
      local record = recordOf(key.account, owner)
      isChanged = recountWindows(record, field.keyWindows, claimed, 'ofKey', owner) or isChanged
    end
    isChanged = recountWindows(key.account, field.windows, claimed, 'windows') or isChanged
  end
  if held == sums.held and holds == sums.holds and not isChanged then return 'same' end
  redis.call('HSET', key.account, field.balance, whole(sums.balance + sums.held - held), field.held, whole(held),
    field.holds, whole(holds))
  return 'corrected ' .. whole(sums.held) .. ' ' .. whole(held) .. ' ' .. whole(sums.holds) .. ' ' .. whole(holds)
end
