-- renew(id, floor, lease ms): a live hold lives on, and what its customer has received so far becomes its floor.
local id, floor, lease = ARGV[1], amount(ARGV[2]), tonumber(ARGV[3])
local hold = redis.call('HGET', HOLDS, id)
if not hold then return { 'gone' } end
local held, before, notes = string.match(hold, '^(%d+):(%d+):(.*)$')
-- Both have at most 15 digits, which a Lua number holds exactly: comparing is safe where adding is not needed.
if tonumber(floor) > tonumber(before) then
  redis.call('HSET', HOLDS, id, held .. ':' .. floor .. ':' .. notes)
end
redis.call('ZADD', LEASES, 'XX', whole(now() + lease), id)
return { 'ok' }
