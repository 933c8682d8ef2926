-- Runs the operations of one call. An operation that fails returns its error and does not affect the others.
local answers = {}
local k, a = 1, 1
while a <= #ARGV do
  local operation = operations[ARGV[a]]
  local fine, answer = pcall(operation[3], k, a + 1)
  if not fine then answer = 'error ' .. (type(answer) == 'table' and answer.err or tostring(answer)) end
  answers[#answers + 1] = answer
  k = k + operation[1]
  a = a + 1 + operation[2]
end
return answers
