-- Operations other than holding and settling: abandoned replies, credits, and claimed names.

-- abandon(id, most, '1' if the reply is read to its end in any case): marks a hold whose client has left while its reply is still
-- read. Beyond the maximum, the hold that was abandoned first loses its place. Returns 'full' if all places belong to replies that
-- must be read to their end; then the hold gets no place.
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

-- credit(id, entry, notes, model): refunds what an entry of the history charged. Repeating it changes nothing, however late.
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
    if redis.call('HEXISTS', COUNTERS, scope .. ':c') == 1 then redis.call('HINCRBY', COUNTERS, scope .. ':c', '-' .. given) end
  end
  redis.call('SET', OUTCOME, 'credit:' .. given)
  return { 'ok', given, balance() }
end

-- claim(id, value, ms): claims a name for a time, unless another value has claimed it. The same value extends its claim.
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
