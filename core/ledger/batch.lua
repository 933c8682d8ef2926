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
