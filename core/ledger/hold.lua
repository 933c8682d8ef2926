-- hold(id, amount, lease ms, version, most in flight or 0, notes, quota amount or '', window ms or 0)
-- Sets an amount aside, if the key may run and its balance covers it. Repeating an id changes nothing.
local id, wanted, lease, version, most, notes = ARGV[1], amount(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), ARGV[6]
local quota, window = ARGV[7], tonumber(ARGV[8])
local done = redis.call('GET', OUTCOME)
if done then return { 'done', done } end
if redis.call('HEXISTS', HOLDS, id) == 1 then return { 'held', balance() } end
local time = now()
reap(time, 16)
local resets = '0'
if quota ~= '' then
  -- An upstream account's quota is an allocation that is granted anew in each window; what still runs counts into the new one.
  -- Weeks begin on Monday: the epoch was a Thursday, three days into its week.
  local shift = window == 604800000 and 259200000 or 0
  local current = math.floor((time + shift) / window)
  resets = whole((current + 1) * window - shift)
  local rolled = get('win') ~= whole(current)
  if rolled then redis.call('HSET', ACCOUNT, 'win', whole(current), 'base', number('set')) end
  if rolled or get('quota') ~= quota then
    -- Used in this window is set - base; granted is chosen so that gra = bal + rsv + set holds on.
    redis.call('HSET', ACCOUNT, 'quota', quota, 'bal', quota, 'gra', quota)
    subtract('bal', number('rsv'))
    subtract('bal', number('set'))
    add('bal', number('base'))
    add('gra', number('base'))
  end
else
  if get('v') ~= '1' then return { 'stale' } end
  if get('status') ~= 'active' then return { 'disabled' } end
  local expires = get('expires')
  if expires ~= '' and tonumber(expires) <= time then return { 'expired' } end
  if get('ver') ~= version then return { 'stale' } end
end
if most > 0 and redis.call('HLEN', HOLDS) >= most then return { 'busy' } end
subtract('bal', wanted)
if string.sub(balance(), 1, 1) == '-' then
  add('bal', wanted)
  return { 'insufficient', balance(), resets }
end
add('rsv', wanted)
redis.call('ZADD', LEASES, whole(time + lease), id)
redis.call('HSET', HOLDS, id, wanted .. ':0:' .. notes)
return { 'held', balance() }
