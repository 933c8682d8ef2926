-- snapshot(): an account and its holds at one moment, with the last entry of its history. KEYS[5] is the stream of grants here.
local function last(stream)
  local entry = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
  return entry[1] and entry[1][1] or '0-0'
end
return { redis.call('HGETALL', ACCOUNT), redis.call('HGETALL', HOLDS), redis.call('ZRANGE', LEASES, 0, -1, 'WITHSCORES'), last(HISTORY), last(TOMBS), whole(now()) }
