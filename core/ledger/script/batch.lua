-- Runs the operations of one call. An operation that fails returns its error and does not affect the others.
local answers = {}
local k, a = 1, 1
while a <= #ARGV do
  local keys, args, run = unpack(operations[ARGV[a]])
  local fine, answer = pcall(run, k, a + 1)
  if not fine then answer = 'error ' .. (type(answer) == 'table' and answer.err or tostring(answer)) end
  answers[#answers + 1] = answer
  k = k + keys
  a = a + 1 + args
end
return answers
