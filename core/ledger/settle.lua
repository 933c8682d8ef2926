-- settle(id, charge, kind, notes, remember ms, model, input tokens, output tokens)
-- Ends an exchange with its charge, always: also when its hold was reaped meanwhile, or lost. Repeating an id changes nothing.
local id, charge, kind, notes, remember = ARGV[1], amount(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local done = redis.call('GET', OUTCOME)
if done then return { 'done', done } end
local floor = redis.call('HGET', TOMBS, id)
if close(id, charge) then
  record(kind, id, charge, '0', notes)
elseif floor then
  -- Reaped before we came back: the difference is made good.
  add('bal', floor)
  subtract('bal', charge)
  subtract('set', floor)
  add('set', charge)
  redis.call('HDEL', TOMBS, id)
  record('late', id, charge, floor, notes)
elseif charge ~= '0' then
  -- The hold was lost with a failed store: what was used is still owed.
  subtract('bal', charge)
  add('set', charge)
  record('orphan', id, charge, '0', notes)
end
if kind ~= 'void' then count(charge, ARGV[6], amount(ARGV[7]), amount(ARGV[8])) end
redis.call('SET', OUTCOME, kind .. ':' .. charge, 'PX', remember)
return { 'ok', balance() }
