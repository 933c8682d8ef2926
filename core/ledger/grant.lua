-- grant(id, amount, remember ms, notes): adds to the allocation. Repeating an id changes nothing. KEYS[4] is the stream of grants.
local id, granted, remember, notes = ARGV[1], amount(ARGV[2]), ARGV[3], ARGV[4]
local done = redis.call('GET', OUTCOME)
if done then return { 'done', done } end
if redis.call('EXISTS', ACCOUNT) == 0 then return { 'unknown' } end
add('bal', granted)
add('gra', granted)
record('grant', id, granted, '0', notes)
redis.call('SET', OUTCOME, 'grant:' .. granted, 'PX', remember)
return { 'ok', balance() }
