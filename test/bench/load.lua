-- Sends the body in the first file, with the keys in the second one in turn: wrk -s load.lua URL -- BODY KEYS
-- Prints the requests, the failures and the median time in microseconds as JSON.
local requests, last = {}, 0

function init(args)
  local body = io.open(args[1]):read('*a')
  for key in io.lines(args[2]) do
    local headers = { authorization = 'Bearer ' .. key, ['content-type'] = 'application/json' }
    for name, value in pairs(wrk.headers) do headers[name] = value end
    requests[#requests + 1] = wrk.format('POST', nil, headers, body)
  end
end

function request()
  last = last % #requests + 1
  return requests[last]
end

function done(summary, latency)
  local e = summary.errors
  local failed = e.connect + e.read + e.write + e.status + e.timeout
  print(string.format('{"requests":%d,"failed":%d,"p50":%d}', summary.requests, failed, latency:percentile(50)))
end
