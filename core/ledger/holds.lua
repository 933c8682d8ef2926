-- Operations on holds.

-- hold(id, amount, least amount, lease ms, version, maximum holds or 0, notes, quota amount or '', window ms or 0, '1'
-- for half)
-- Holds an amount if the key may be used and its balance covers at least the least amount. Repeating an id changes
-- nothing. Abandoned requests do not count towards the maximum.
operations['hold'] = function(args)
  local id, wanted, least, lease = args[1], amount(args[2]), amount(args[3]), tonumber(args[4])
  local version, most, notes, quota, window = args[5], tonumber(args[6]), args[7], args[8], tonumber(args[9])
  local done = redis.call('GET', OUTCOME)
  if done then return { 'done', done } end
  local already = redis.call('HGET', HOLDS, id)
  if already then return { 'held', string.match(already, '^%d+'), balance() } end
  local time = now()
  reap(time, 16)
  local resets = '0'
  if quota ~= '' then
    -- A quota is granted anew in each window. Holds that are still running count towards the new window.
    -- Weeks begin on Monday. The epoch was a Thursday, three days into its week.
    local shift = window == 604800000 and 259200000 or 0
    local current = math.floor((time + shift) / window)
    resets = whole((current + 1) * window - shift)
    local rolled = get('win') ~= whole(current)
    if rolled then redis.call('HSET', ACCOUNT, 'win', whole(current), 'base', number('set')) end
    if rolled or get('quota') ~= quota then
      -- Used in this window is set - base. The grant is chosen so that gra = bal + rsv + set still holds.
      redis.call('HSET', ACCOUNT, 'quota', quota, 'bal', quota, 'gra', quota)
      subtract('bal', number('rsv'))
      subtract('bal', number('set'))
      add('bal', number('base'))
      add('gra', number('base'))
    end
  else
    if get('v') ~= '1' then return { 'stale' } end
    local reason = barred()
    if reason then return { reason } end
    if get('ver') ~= version then return { 'stale' } end
  end
  if most > 0 and redis.call('HLEN', HOLDS) - redis.call('ZCARD', ABANDONED) >= most then return { 'busy' } end
  local held = take(wanted, least, args[10] == '1')
  if not held then return { 'insufficient', balance(), resets } end
  redis.call('ZADD', LEASES, whole(time + lease), id)
  redis.call('HSET', HOLDS, id, held .. ':0:' .. notes)
  return { 'held', held, balance() }
end

-- extend(id, amount, lease ms, notes, rotation, floor): extends a live hold to an amount, or as far as the balance
-- allows. A hold that was reaped, or lost with a failed store, is restored. Repeating it changes nothing. A disabled
-- key gets nothing more.
operations['extend'] = function(args)
  local id, wanted, lease, notes = args[1], amount(args[2]), tonumber(args[3]), args[4]
  local reason = off(args[5])
  if reason then return { 'off', reason } end
  local hold = redis.call('HGET', HOLDS, id)
  if not hold then
    if redis.call('EXISTS', OUTCOME) == 1 then return { 'gone' } end
    local revived = wanted ~= '0' and take(wanted, '1')
    if not revived then return { 'held', '0', balance() } end
    local floor = string.match(redis.call('HGET', TOMBS, id) or '', '^%d+') or '0'
    -- The notes describe the floor.
    if args[6] then floor = amount(args[6]) end
    redis.call('ZADD', LEASES, whole(now() + lease), id)
    redis.call('HSET', HOLDS, id, revived .. ':' .. floor .. ':' .. notes)
    return { 'held', revived, balance() }
  end
  local held, rest = string.match(hold, '^(%d+)(:.*)$')
  -- Amounts of holds have at most 15 digits, so Lua numbers are exact here.
  local more = tonumber(wanted) - tonumber(held)
  local taken = more > 0 and take(whole(more), '1') or '0'
  if taken ~= '0' then
    held = whole(tonumber(held) + tonumber(taken))
    redis.call('HSET', HOLDS, id, held .. rest)
  end
  return { 'held', held, balance() }
end

-- renew(id, floor, lease ms, rotation, '1' if it is abandoned, notes): renews the lease of a live hold. What its
-- customer has received so far becomes its floor, with the notes that describe it. Reports if its key is disabled, or
-- if it has lost its abandoned place.
operations['renew'] = function(args)
  local id, floor, lease = args[1], amount(args[2]), tonumber(args[3])
  local hold = redis.call('HGET', HOLDS, id)
  if not hold then return { 'gone' } end
  local held, before, notes = string.match(hold, '^(%d+):(%d+):(.*)$')
  -- Both have at most 15 digits, which a Lua number represents exactly. Comparing is safe where adding would not be.
  if tonumber(floor) > tonumber(before) then
    redis.call('HSET', HOLDS, id, held .. ':' .. floor .. ':' .. (args[6] or notes))
  end
  redis.call('ZADD', LEASES, 'XX', whole(now() + lease), id)
  local reason = off(args[4])
  if reason then return { 'off', reason } end
  if args[5] == '1' and not redis.call('ZSCORE', ABANDONED, id) then return { 'crowded' } end
  return { 'ok' }
end

-- Subtracts the charge of an attempt that delivered nothing from the charge of the retry that succeeded, whichever is
-- settled first. Each of them counts once, and a key has a maximum of waivers per hour. Returns the waived amount. An
-- attempt without a counterpart records itself.
local function waive(role, charge, keep, most)
  local other, amount = string.match(redis.call('LINDEX', ATTEMPTS, 0) or '', '^(%a+):(%d+)$')
  if other and other ~= role then
    redis.call('LPOP', ATTEMPTS)
    local hour = whole(math.floor(now() / 3600000))
    if get('waiver_hour') ~= hour then redis.call('HSET', ACCOUNT, 'waiver_hour', hour, 'waivers', '0') end
    if redis.call('HINCRBY', ACCOUNT, 'waivers', 1) > tonumber(most) then return '0' end
    return whole(math.min(tonumber(charge), tonumber(amount)))
  end
  redis.call('LPUSH', ATTEMPTS, role .. ':' .. charge)
  redis.call('LTRIM', ATTEMPTS, 0, 127)
  -- A delivered retry only waits for attempts that are still being read, otherwise the next one would be free.
  redis.call('PEXPIRE', ATTEMPTS, role == 'retry' and math.min(tonumber(keep), 60000) or keep)
  return '0'
end

-- Counts a request that cost nothing. Returns true if its account has used up its entries for this minute, so this one
-- gets none.
local function unlisted(most)
  if not most or most == '' then return false end
  local minute = whole(math.floor(now() / 60000))
  if get('free_minute') ~= minute then redis.call('HSET', ACCOUNT, 'free_minute', minute, 'free', '0') end
  if redis.call('HINCRBY', ACCOUNT, 'free', 1) <= tonumber(most) then return false end
  redis.call('HINCRBY', COUNTERS, 'all:f', 1)
  return true
end

-- settle(id, charge, kind, notes, remember ms, model, input tokens, output tokens, 1 if its usage was quarantined, ''
-- or its role among the attempts at a request ('lost', 'retry'), for how many ms that counts, maximum waivers of a key
-- per hour, maximum entries of an account per minute for requests that cost nothing)
-- Ends an exchange with its charge in any case, even if its hold was reaped or lost. Repeating an id changes nothing.
operations['settle'] = function(args)
  -- Everything is checked before anything is changed, since a script that stops half-way is not undone.
  local id, charge, kind, notes, remember = args[1], amount(args[2]), args[3], args[4], args[5]
  local model, input, output = args[6], amount(args[7]), amount(args[8])
  local done = redis.call('GET', OUTCOME)
  if done then return { 'done', done } end
  local role = args[10] or ''
  local waived = '0'
  if role ~= '' and charge ~= '0' then
    waived = waive(role, charge, args[11], args[12])
    charge = whole(tonumber(charge) - tonumber(waived))
  end
  -- It was reaped before, and perhaps restored. Only the difference is charged.
  local floor = reaped(id)
  if kind == 'void' and charge == '0' and not floor and redis.call('HEXISTS', HOLDS, id) == 1 and unlisted(args[13]) then
    close(id, charge)
    -- Nothing was charged and nothing was written, so it need not be recognised for long.
    redis.call('SET', OUTCOME, 'void:0', 'PX', math.min(tonumber(remember), 120000))
    return { 'ok', balance() }
  end
  if close(id, charge) then
    record(HISTORY, floor and 'late' or kind, id, charge, floor or '0', notes, waived)
  elseif floor then
    subtract('bal', charge)
    add('set', charge)
    record(HISTORY, 'late', id, charge, floor, notes, waived)
  elseif charge ~= '0' then
    -- The hold was lost with a failed store. What was used is still charged.
    subtract('bal', charge)
    add('set', charge)
    record(HISTORY, 'orphan', id, charge, '0', notes, waived)
  end
  if kind ~= 'void' then count(charge, model, input, output) end
  if args[9] == '1' then redis.call('HINCRBY', COUNTERS, 'all:q', 1) end
  redis.call('SET', OUTCOME, kind .. ':' .. charge, 'PX', remember)
  return { 'ok', balance() }
end

-- reap(limit): ends expired holds of one account. Returns how many, and how many remain.
operations['reap'] = function(args)
  local ended = reap(now(), tonumber(args[1]))
  return { 'ok', whole(ended), whole(redis.call('HLEN', HOLDS)) }
end

-- abandon(id, most, '1' if the reply is read to its end in any case): marks a hold whose client has left while its
-- reply is still read. Beyond the maximum, the hold that was abandoned first loses its place. Returns 'full' if all
-- places belong to replies that must be read to their end; then the hold gets no place.
operations['abandon'] = function(args)
  local id, most, whole_reply = args[1], tonumber(args[2]), args[3] == '1'
  if redis.call('HEXISTS', HOLDS, id) == 0 then return { 'gone' } end
  redis.call('ZADD', ABANDONED, whole_reply and '+inf' or whole(now()), id)
  if redis.call('ZCARD', ABANDONED) <= most then return { 'ok' } end
  local first = redis.call('ZRANGE', ABANDONED, 0, 0, 'WITHSCORES')
  if first[2] == 'inf' then
    redis.call('ZREM', ABANDONED, id)
    return { 'full' }
  end
  redis.call('ZREM', ABANDONED, first[1])
  return { 'ok', first[1] }
end

-- rejoin(id): a client receives the reply again.
operations['rejoin'] = function(args)
  redis.call('ZREM', ABANDONED, args[1])
  return { 'ok' }
end
