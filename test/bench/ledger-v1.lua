-- The operations of the ledger. One call of the script runs a batch of them, each on the keys of one account.
-- KEYS: eight for each account: its hash, holds by end of lease, holds by id, history, grants, tombstones, counters,
-- abandoned holds; then two for each operation: the result of its id, and the attempts at the same request.
-- ARGV: for each operation one line with the index of its account, one with its name, and one for each argument.
-- Amounts are strings of at most 15 digits. They are only added by HINCRBY, since a Lua number would round them.
local ACCOUNT, LEASES, HOLDS, HISTORY, GRANTS, TOMBS, COUNTERS, ABANDONED, OUTCOME, ATTEMPTS

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function whole(number)
  return string.format('%.0f', number)
end

local function amount(text)
  if not string.match(text, '^%d+$') or #text > 15 then error('amount out of range') end
  return text
end

local function add(field, text)
  if text ~= '0' then redis.call('HINCRBY', ACCOUNT, field, text) end
end

local function subtract(field, text)
  if text ~= '0' then redis.call('HINCRBY', ACCOUNT, field, '-' .. text) end
end

local function get(field)
  return redis.call('HGET', ACCOUNT, field) or ''
end

local function number(field)
  return redis.call('HGET', ACCOUNT, field) or '0'
end

local function balance()
  return number('bal')
end

-- Writes one entry to the history or to the grants: kind, id, charge, earlier charge for the id, balance after it, and
-- the gateway's notes.
local function record(stream, kind, id, charge, before, notes, waived)
  if waived and waived ~= '0' then
    redis.call('XADD', stream, '*', 'k', kind, 'id', id, 'c', charge, 'p', before, 'b', balance(), 'm', notes, 'w', waived)
  else
    redis.call('XADD', stream, '*', 'k', kind, 'id', id, 'c', charge, 'p', before, 'b', balance(), 'm', notes)
  end
end

-- Updates the counters for summaries: in total, by UTC day, and by model. The counters of a day are deleted after 90
-- days.
local function count(charge, model, input, output)
  local day = math.floor(now() / 86400000)
  local today = 'd:' .. whole(day)
  if redis.call('HEXISTS', COUNTERS, today .. ':n') == 0 then
    for _, part in ipairs({ ':n', ':i', ':o', ':c' }) do
      redis.call('HDEL', COUNTERS, 'd:' .. whole(day - 90) .. part)
    end
  end
  for _, scope in ipairs({ 'all', today, 'm:' .. model }) do
    redis.call('HINCRBY', COUNTERS, scope .. ':n', 1)
    if input ~= '0' then redis.call('HINCRBY', COUNTERS, scope .. ':i', input) end
    if output ~= '0' then redis.call('HINCRBY', COUNTERS, scope .. ':o', output) end
    if charge ~= '0' then redis.call('HINCRBY', COUNTERS, scope .. ':c', charge) end
  end
end

-- Ends a hold and charges for it. Returns false if there is no such hold.
local function close(id, charge)
  local hold = redis.call('HGET', HOLDS, id)
  if not hold then return false end
  local held = string.match(hold, '^(%d+):')
  add('bal', held)
  subtract('bal', charge)
  subtract('rsv', held)
  add('set', charge)
  redis.call('HDEL', HOLDS, id)
  redis.call('ZREM', LEASES, id)
  redis.call('ZREM', ABANDONED, id)
  return true
end

-- Returns what was charged for a hold when it was reaped, which its final settlement corrects. False if it was not
-- reaped.
local function reaped(id)
  local floor = string.match(redis.call('HGET', TOMBS, id) or '', '^%d+')
  if not floor then return false end
  add('bal', floor)
  subtract('set', floor)
  redis.call('HDEL', TOMBS, id)
  return floor
end

-- Ends expired holds and charges their floor: what the customer is known to have received.
local function reap(time, limit)
  local expired = redis.call('ZRANGEBYSCORE', LEASES, '-inf', '(' .. whole(time), 'LIMIT', 0, limit)
  for _, id in ipairs(expired) do
    local floor, notes = string.match(redis.call('HGET', HOLDS, id) or '', '^%d+:(%d+):(.*)$')
    if floor and close(id, floor) then
      local earlier = reaped(id)
      redis.call('HSET', TOMBS, id, floor .. ':' .. whole(time))
      record(HISTORY, earlier and 'late' or 'reaped', id, floor, earlier or '0', notes)
    else
      redis.call('ZREM', LEASES, id)
    end
  end
  return #expired
end

local operations = {}

-- Returns why a key may not be used: its status, or its expiry. Nil if it may.
local function barred()
  if get('status') ~= 'active' then return 'disabled' end
  local expires = get('expires')
  if expires ~= '' and tonumber(expires) <= now() then return 'expired' end
end

-- Returns the fields of a stream entry by name.
local function fields_of(entry)
  local fields = {}
  for at = 1, #entry[2], 2 do fields[entry[2][at]] = entry[2][at + 1] end
  return fields
end

-- Returns why the requests of a key must end: its status, its expiry, or a rotation since they began. Nil if they may
-- continue. The rotation is '' for a quota, which is not a key.
local function off(rotation)
  if not rotation or rotation == '' then return nil end
  local reason = barred()
  if reason then return reason end
  if get('rot') ~= (rotation == '0' and '' or rotation) then return 'rotated' end
end

-- Holds the requested amount, or what the balance covers if that is at least `least`. Returns false otherwise.
-- With `half`, an amount above half of the balance is reduced to that half, but not below `least`.
local function take(wanted, least, half)
  if half and string.sub(balance(), 1, 1) ~= '-' then
    local share = math.max(math.floor(tonumber(balance()) / 2), tonumber(least))
    if tonumber(wanted) > share then wanted = whole(share) end
  end
  subtract('bal', wanted)
  if string.sub(balance(), 1, 1) == '-' then
    add('bal', wanted)
    -- It is less than requested, so it has at most 15 digits, which a Lua number represents exactly.
    if balance() == '0' or string.sub(balance(), 1, 1) == '-' or tonumber(balance()) < tonumber(least) then
      return false
    end
    wanted = balance()
    subtract('bal', wanted)
  end
  add('rsv', wanted)
  return wanted
end
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
-- Operations on accounts: grants, refunds, claimed names, history.

-- grant(id, amount, notes): adds to the allocation. Repeating an id changes nothing, however late, since people repeat
-- payments.
operations['grant'] = function(args)
  local id, granted, notes = args[1], amount(args[2]), args[3]
  local done = redis.call('GET', OUTCOME)
  if done then return { 'done', done } end
  if redis.call('EXISTS', ACCOUNT) == 0 then return { 'unknown' } end
  add('bal', granted)
  add('gra', granted)
  record(GRANTS, 'grant', id, granted, '0', notes)
  redis.call('SET', OUTCOME, 'grant:' .. granted)
  return { 'ok', balance() }
end

-- credit(id, entry, notes, model): refunds what an entry of the history charged. Repeating it changes nothing, however
-- late.
operations['credit'] = function(args)
  local entry, notes, model = args[2], args[3], args[4]
  if redis.call('GET', OUTCOME) then return { 'done' } end
  local found = redis.call('XRANGE', HISTORY, entry, entry)[1]
  if not found then return { 'unknown' } end
  local fields = fields_of(found)
  -- Both have at most 15 digits, which a Lua number represents exactly.
  local given = tonumber(fields['c']) - tonumber(fields['p'])
  if fields['k'] == 'credit' or given <= 0 then return { 'nothing' } end
  given = whole(given)
  add('bal', given)
  subtract('set', given)
  record(HISTORY, 'credit', fields['id'], '0', given, notes)
  local day = 'd:' .. whole(math.floor(tonumber(string.match(entry, '^%d+')) / 86400000))
  for _, scope in ipairs({ 'all', 'm:' .. model, day }) do
    if redis.call('HEXISTS', COUNTERS, scope .. ':c') == 1 then
      redis.call('HINCRBY', COUNTERS, scope .. ':c', '-' .. given)
    end
  end
  redis.call('SET', OUTCOME, 'credit:' .. given)
  return { 'ok', given, balance() }
end

-- claim(id, value, ms): claims a name for a time, unless another value has claimed it. The same value extends its
-- claim.
operations['claim'] = function(args)
  local value, keep = args[2], args[3]
  local taken = redis.call('GET', OUTCOME)
  if taken and taken ~= value then return { 'taken', taken } end
  redis.call('SET', OUTCOME, value, 'PX', keep)
  return { 'ok' }
end

-- release(id, value): releases a claimed name.
operations['release'] = function(args)
  if redis.call('GET', OUTCOME) == args[2] then redis.call('DEL', OUTCOME) end
  return { 'ok' }
end

-- trim(time ms, limit, remember ms): deletes history entries older than a time and keeps their sum. It also deletes the
-- traces of reaped holds that can no longer be settled. Returns the number of entries.
operations['trim'] = function(args)
  if (tonumber(get('whole')) or 0) > now() then return { 'ok', '0' } end
  local before, limit, forgotten = tonumber(args[1]), tonumber(args[2]), now() - tonumber(args[3])
  local entries = redis.call('XRANGE', HISTORY, '-', whole(before - 1), 'COUNT', limit)
  for _, entry in ipairs(entries) do
    local fields = fields_of(entry)
    add('arch', fields['c'])
    subtract('arch', fields['p'])
    redis.call('XDEL', HISTORY, entry[1])
  end
  local tombs = redis.call('HGETALL', TOMBS)
  for at = 1, #tombs, 2 do
    if (tonumber(string.match(tombs[at + 1], ':(%d+)$')) or 0) < forgotten then redis.call('HDEL', TOMBS, tombs[at]) end
  end
  return { 'ok', whole(#entries) }
end

-- snapshot(ms): returns an account and its holds at one moment, with the last entry of its history, which is not
-- trimmed for this time.
operations['snapshot'] = function(args)
  if args[1] ~= '0' and redis.call('EXISTS', ACCOUNT) == 1 then
    redis.call('HSET', ACCOUNT, 'whole', whole(now() + tonumber(args[1])))
  end
  local function last(stream)
    local entry = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
    return entry[1] and entry[1][1] or '0-0'
  end
  return {
    redis.call('HGETALL', ACCOUNT),
    redis.call('HGETALL', HOLDS),
    redis.call('ZRANGE', LEASES, 0, -1, 'WITHSCORES'),
    last(HISTORY),
    last(GRANTS),
    whole(now()),
  }
end
-- Runs the operations of one call.

-- An operation that fails returns its error and does not affect the others.
local answers = {}
for index, lines in ipairs(ARGV) do
  local place, name, rest = string.match(lines, '^(%d+)\n([^\n]*)\n(.*)$')
  local slot = tonumber(place) * 8
  ACCOUNT, LEASES, HOLDS, HISTORY = KEYS[slot + 1], KEYS[slot + 2], KEYS[slot + 3], KEYS[slot + 4]
  GRANTS, TOMBS, COUNTERS, ABANDONED = KEYS[slot + 5], KEYS[slot + 6], KEYS[slot + 7], KEYS[slot + 8]
  slot = #KEYS - 2 * (#ARGV - index + 1)
  OUTCOME, ATTEMPTS = KEYS[slot + 1], KEYS[slot + 2]
  local args = {}
  for arg in string.gmatch(rest .. '\n', '([^\n]*)\n') do args[#args + 1] = arg end
  local fine, answer = pcall(function()
    local parts = operations[name](args)
    -- One text is parsed faster than a list of texts.
    return name == 'snapshot' and parts or table.concat(parts, ' ')
  end)
  if not fine then
    answer = { 'error', type(answer) == 'table' and answer.err or tostring(answer) }
  end
  answers[index] = answer
end
return answers
