-- reap(limit): ends expired holds of one account; says how many, and how many live on.
local ended = reap(now(), tonumber(ARGV[1]))
return { 'ok', whole(ended), whole(redis.call('HLEN', HOLDS)) }
