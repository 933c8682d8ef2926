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
