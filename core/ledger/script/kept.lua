-- Operations on what is kept for a time: claimed names, and items of replies.

-- claim: claims a name for a time, unless another value has claimed it. The same value extends its claim.
operations.claim = function(key, arg)
  local taken = redis.call('GET', key.claim)
  if taken and taken ~= arg.value then return 'taken ' .. taken end
  redis.call('SET', key.claim, arg.value, 'PX', arg.ms)
  return 'ok'
end

-- release: releases a claimed name.
operations.release = function(key, arg)
  if redis.call('GET', key.claim) == arg.value then redis.call('DEL', key.claim) end
  return 'ok'
end

-- keep: keeps an item of a reply for a time. Beyond the most bytes of an account its oldest items go, and beyond the most of
-- the shard all items of the accounts that keep most.
operations.keep = function(key, arg)
  local account, id, accountMax, shardMax = arg.name, arg.id, tonumber(arg.accountMax), tonumber(arg.shardMax)
  if #id + #arg.value > accountMax then return 'large' end
  local function resize(other, by)
    redis.call('HINCRBY', key.sizes, other, by)
    return redis.call('HINCRBY', key.sizes, '', by)
  end
  local function drop(item)
    resize(account, -#item - redis.call('HSTRLEN', key.items, item))
    redis.call('HDEL', key.items, item)
    redis.call('ZREM', key.ends, item)
  end
  -- The items of an account that kept none for a time have expired.
  local before = redis.call('HGET', key.sizes, account)
  if before and before ~= '0' and redis.call('EXISTS', key.items) == 0 then resize(account, -before) end
  if redis.call('HEXISTS', key.items, id) == 1 then drop(id) end
  for _, item in ipairs(redis.call('ZRANGEBYSCORE', key.ends, '-inf', now())) do drop(item) end
  redis.call('HSET', key.items, id, arg.value)
  redis.call('ZADD', key.ends, now() + arg.ms, id)
  local all = resize(account, #id + #arg.value)
  for _, name in ipairs({ key.items, key.ends, key.sizes }) do redis.call('PEXPIRE', name, arg.ms) end
  while tonumber(redis.call('HGET', key.sizes, account)) > accountMax do
    local oldest = redis.call('ZRANGE', key.ends, 0, 0)[1]
    if not oldest then break end
    drop(oldest)
    all = tonumber(redis.call('HGET', key.sizes, ''))
  end
  if all <= shardMax then return 'ok' end
  local function forget(other, size)
    all = resize(other, -size)
    redis.call('HDEL', key.sizes, other)
  end
  -- Returns the same key of another account.
  local function keyOf(name, other) return string.sub(name, 1, -1 - #account) .. other end
  local others = {}
  local kept = redis.call('HGETALL', key.sizes)
  for index = 1, #kept, 2 do
    local other, size = kept[index], tonumber(kept[index + 1])
    if other ~= '' then
      -- The items of others may have expired as well.
      if redis.call('EXISTS', keyOf(key.items, other)) == 1 then
        others[#others + 1] = { name = other, size = size }
      else
        forget(other, size)
      end
    end
  end
  table.sort(others, function(one, other) return one.size > other.size end)
  for _, other in ipairs(others) do
    if all <= shardMax then break end
    redis.call('DEL', keyOf(key.items, other.name), keyOf(key.ends, other.name))
    forget(other.name, other.size)
  end
  return 'ok'
end
