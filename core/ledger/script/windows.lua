-- The arithmetic of windows. In each window a number of nano-credits, requests or tokens may be used. Whoever has windows
-- keeps them as one text, so that all of them together are one field:
--   SHAPE PLACE:UNIT:KIND:AMOUNT:FROM:ENDS:HELD:USED ...
-- The shape changes with what the windows count and when they begin; windows of another shape say nothing. The unit is 'c'
-- (nano-credits), 'r' (requests) or 't' (tokens). The kind is 'c' (of a calendar), 'u' (begins with a use) or 'r' (the last
-- hours). USED may have '+' and what requests have used beyond what they had held and beyond the amount, which counts in the window
-- that follows. Of the last hours, FROM is when they were reset, ENDS is the length of a part, and USED has what was used in each
-- part that counts: PART=NUMBER,...
-- A caller asks with the same text without HELD and USED. The calendar is the gateway's: the script gets from and until.
local WINDOW = '(%d+):(%a):(%a):(%d+):(%d+):(%d+)'

-- The parts of the last hours (ROLLING_PARTS in calendar.ts).
local PARTS = 60

local function readWindows(text)
  local state = { shape = string.match(text or '', '^%S*') }
  for place, unit, kind, amount, from, ends, held, used in string.gmatch(text or '', WINDOW .. ':(%d+):(%S*)') do
    local window = { place = place, unit = unit, kind = kind, amount = tonumber(amount), from = tonumber(from),
      ends = tonumber(ends), held = tonumber(held), used = tonumber(string.match(used, '^%d*')) or 0,
      over = tonumber(string.match(used, '%+(%d+)')) or 0 }
    if kind == 'r' then
      window.used, window.parts = 0, {}
      for part, number in string.gmatch(used, '(%d+)=(%d+)') do
        window.parts[#window.parts + 1] = { at = tonumber(part), used = tonumber(number) }
        window.used = window.used + tonumber(number)
      end
    end
    state[#state + 1] = window
    state[place] = window
  end
  return state
end

local function windowsText(state)
  local words = { state.shape }
  for _, window in ipairs(state) do
    local used = whole(math.max(0, window.used))
    if (window.over or 0) > 0 then used = used .. '+' .. whole(window.over) end
    if window.parts then
      local parts = {}
      for _, part in ipairs(window.parts) do parts[#parts + 1] = whole(part.at) .. '=' .. whole(math.max(0, part.used)) end
      used = table.concat(parts, ',')
    end
    words[#words + 1] = string.format('%s:%s:%s:%.0f:%.0f:%.0f:%.0f:%s', window.place, window.unit, window.kind,
      window.amount, window.from, window.ends, math.max(0, window.held), used)
  end
  return table.concat(words, ' ')
end

-- The first part of the last hours that still counts.
local function firstPart(window)
  return math.floor(now() / window.ends) - PARTS + 1
end

-- Lets a window begin anew, since it is over or was reset. What was used beyond it counts if the new one follows at once.
local function renew(window, from, ends, isReset)
  local isNext = from == window.ends
  window.used = isNext and not isReset and window.over or 0
  window.from, window.ends, window.held, window.over = from, ends, 0, 0
end

-- Forgets what was used before the last hours, or in parts that had begun when they were reset.
local function age(window, from, ends)
  local kept, used = {}, 0
  local parts = window.ends == ends and window.parts or {}
  local since = window.from < from and from or 0
  window.from, window.ends = math.max(window.from, from), ends
  for _, part in ipairs(parts) do
    if part.at >= firstPart(window) and part.at * ends >= since then
      kept[#kept + 1] = part
      used = used + part.used
    end
  end
  window.parts, window.used = kept, used
end

-- Brings windows up to now. Returns them as a list, and all of the state; nil if a window of the caller is over.
local function askedWindows(text, asked)
  local state, found = readWindows(text), {}
  local shape = string.match(asked, '^%S*')
  if state.shape ~= shape then state = { shape = shape } end
  for place, unit, kind, amount, from, ends in string.gmatch(asked, WINDOW) do
    local window = state[place]
    from, ends = tonumber(from), tonumber(ends)
    if kind ~= 'r' and now() >= ends then return nil end
    if not window then
      window = { place = place, unit = unit, kind = kind, from = kind == 'u' and now() or from, ends = ends, held = 0,
        used = 0, over = 0, parts = kind == 'r' and {} or nil }
      state[#state + 1] = window
      state[place] = window
    elseif kind == 'r' then
      age(window, from, ends)
    elseif kind == 'u' then
      local isReset = window.from < from
      -- What was used beyond a window begins the next one at once.
      local follows = not isReset and window.over > 0 and now() < 2 * window.ends - window.from
      if now() >= window.ends and follows then renew(window, window.ends, 2 * window.ends - window.from)
      elseif now() >= window.ends or isReset then renew(window, now(), ends, isReset) end
    elseif from > window.from then
      -- A window that began later than the caller knows stays: an operator has reset it.
      renew(window, from, ends)
    end
    window.amount = tonumber(amount)
    found[#found + 1] = window
  end
  return found, state
end

-- Returns the windows that are not over, and that had begun at a time if it is given.
local function open(state, at)
  local found = {}
  for _, window in ipairs(state) do
    if window.kind == 'r' or (now() < window.ends and (at or now()) >= window.from) then found[#found + 1] = window end
  end
  return found
end

local function roomIn(window)
  return window.amount - window.used - window.held
end

-- What a hold takes of a window is a claim, since it counts only in the window in which the hold was taken.
-- Takes a number, and adds it to the claims.
local function take(window, claims, number)
  local from = window.kind == 'r' and math.floor(now() / window.ends) or window.from
  window.held = window.held + number
  for _, claim in ipairs(claims) do
    if claim.place == window.place and claim.from == from then
      claim.taken = claim.taken + number
      return
    end
  end
  claims[#claims + 1] = { place = window.place, unit = window.unit, kind = window.kind, from = from, ends = window.ends,
    taken = number }
end

-- The amount of a window until it is asked for again.
local UNKNOWN = 999999999999999

-- Brings windows up to when claims were made: a store that fell back may lack them, or have those before.
local function bringUp(state, claims)
  for _, claim in ipairs(claims) do
    local window = state[claim.place]
    if not window then
      local isRolling = claim.kind == 'r'
      window = { place = claim.place, unit = claim.unit, kind = claim.kind, amount = UNKNOWN, from = isRolling and 0 or claim.from,
        ends = claim.ends, held = 0, used = 0, over = 0, parts = isRolling and {} or nil }
      state[#state + 1] = window
      state[claim.place] = window
    elseif window.kind ~= 'r' and claim.from > window.from then
      renew(window, claim.from, claim.ends)
    end
  end
end

-- Whether a claim was made in a window as it is now.
local function isCurrent(window, claim)
  if window.kind == 'r' then return claim.from >= firstPart(window) and (claim.from + 1) * window.ends > window.from end
  return claim.from == window.from
end

-- Returns the windows that are not over and in which a claim was made.
local function openOf(state, claims)
  local found = {}
  for _, window in ipairs(open(state)) do
    local isClaimed = false
    for _, claim in ipairs(claims) do
      isClaimed = isClaimed or (claim.place == window.place and isCurrent(window, claim))
    end
    if isClaimed then found[#found + 1] = window end
  end
  return found
end

local function use(window, at, number)
  window.used = window.used + number
  if not window.parts then return end
  for _, part in ipairs(window.parts) do
    if part.at == at then
      part.used = part.used + number
      return
    end
  end
  window.parts[#window.parts + 1] = { at = at, used = number }
end

-- Gives back what a hold has claimed of a window.
local function giveBack(window, claims)
  for _, claim in ipairs(claims) do
    if claim.place == window.place and (window.kind == 'r' or isCurrent(window, claim)) then
      window.held = math.max(0, window.held - claim.taken)
    end
  end
end

-- Charges a number to the window in which it was claimed, as far as that is not over, in the place of the number of an earlier
-- end. Claims of several windows of one place are charged in their order, and the last one gets the rest.
local function chargeTo(window, claims, number, before)
  local last
  local function charge(part, partBefore)
    if isCurrent(window, last) then
      use(window, last.from, part - partBefore)
      -- What was held when somebody lowered the amount is not beyond it.
      local beyond = math.max(0, part - math.max(partBefore, last.taken))
      if not window.parts then window.over = math.max(0, math.min(window.over + beyond, window.used - window.amount)) end
    end
    number, before = number - part, before - partBefore
  end
  for _, claim in ipairs(claims) do
    if claim.place == window.place then
      if last then charge(math.min(number, last.taken), math.min(before, last.taken)) end
      last = claim
    end
  end
  if last then charge(number, before) end
end

-- What is left of a window when nothing runs.
local function leftIn(window)
  local used = window.used
  for _, part in ipairs(window.parts or {}) do
    if part.at < firstPart(window) then used = used - part.used end
  end
  return math.max(0, window.amount - used)
end

-- Returns when a window has so much more room, if nothing is used meanwhile.
local function resetsAt(window, missing)
  if not window.parts then return window.ends end
  table.sort(window.parts, function(one, other) return one.at < other.at end)
  for _, part in ipairs(window.parts) do
    missing = missing - part.used
    if missing <= 0 then return (part.at + PARTS) * window.ends end
  end
  return (math.floor(now() / window.ends) + PARTS) * window.ends
end
