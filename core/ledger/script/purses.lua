-- Purses: what a hold is taken from. That is the windows of a plan, or the credits of the balance. The windows of a key's
-- limits count whatever its requests cost, from either purse.

-- The claims of a hold are one text of words between slashes, or '-' without any:
--   pSHAPE:NANO:BEYOND  it is taken from a plan, and so many nano-credits of it; BEYOND is '1' if credits may follow
--   wWINDOW:NUMBER      what it has taken of a window of the plan; WINDOW is PLACE, unit, kind, @FROM-ENDS
--   kWINDOW:NUMBER      what it has taken of a window of its key
--   tMS                 what it has reserved of the key's tokens a minute, as time
--   fTOKENS             the tokens of its floor
--   lPLACE:NUMBER       of an entry: what was left of a window of the plan after it
local function readClaims(text)
  local claims = { plan = 0, windows = {}, ofKey = {} }
  for kind, rest in string.gmatch(text, '(%a)([^/]+)') do
    if kind == 'p' then
      local nano, beyond
      claims.shape, nano, beyond = string.match(rest, '^(%S+):(%d+):([01])$')
      claims.plan, claims.beyond = tonumber(nano), beyond == '1'
    elseif kind == 't' or kind == 'f' then
      claims[kind == 't' and 'reserved' or 'floor'] = tonumber(rest)
    elseif kind ~= 'l' then
      local place, unit, window, from, ends, taken = string.match(rest, '^(%d+)(%a)(%a)@(%d+)-(%d+):(%d+)$')
      local list = kind == 'w' and claims.windows or claims.ofKey
      list[#list + 1] = { place = place, unit = unit, kind = window, from = tonumber(from), ends = tonumber(ends),
        taken = tonumber(taken) }
    end
  end
  return claims
end

local function claimsText(claims)
  local words = {}
  if claims.shape then
    words[1] = string.format('p%s:%.0f:%s', claims.shape, claims.plan, claims.beyond and '1' or '0')
  end
  for kind, list in pairs({ w = claims.windows, k = claims.ofKey }) do
    for _, claim in ipairs(list) do
      words[#words + 1] = string.format('%s%s%s%s@%.0f-%.0f:%.0f', kind, claim.place, claim.unit, claim.kind, claim.from,
        claim.ends, claim.taken)
    end
  end
  if claims.reserved then words[#words + 1] = string.format('t%.0f', claims.reserved) end
  if claims.floor then words[#words + 1] = string.format('f%.0f', claims.floor) end
  return #words == 0 and '-' or table.concat(words, '/')
end

-- The nano-credits that a hold has, from both purses.
local function heldInAll(text)
  local held, _, _, _, _, claims = readHold(text)
  return held + (claims == '-' and 0 or readClaims(claims).plan)
end

-- What windows and a balance give to a hold.
-- ask: wanted and least nano-credits; tokens and leastTokens, which grow with them; requests; and whether an amount above half
-- of what is left is reduced to that half.
-- Returns the nano-credits and the tokens. Otherwise nil, the window that has too little for the longest time, whether all that
-- have too little would have enough if nothing were held, and when that window has enough.
local function offered(windows, ask)
  local given, share, lacking, isHeld, lackUntil = ask.wanted, 1, nil, true, 0
  for _, window in ipairs(windows) do
    local wanted, least = ask.wanted, ask.least
    if window.unit == 't' then wanted, least = ask.tokens, ask.leastTokens end
    if window.unit == 'r' then wanted, least = ask.requests, ask.requests end
    local room = roomIn(window)
    local most = (ask.isHalf and room >= 0) and math.min(wanted, math.max(math.floor(room / 2), least)) or wanted
    -- What costs nothing needs nothing.
    local part = wanted == 0 and 0 or affordable(room, most, least)
    if part and window.unit == 'c' then
      given = math.min(given, part)
    elseif part and window.unit == 't' and wanted > least then
      share = math.min(share, (part - least) / (wanted - least))
    elseif not part then
      local isOnlyHeld = room + window.held >= math.max(1, least)
      -- A balance has no end.
      local enoughAt = window.ends and resetsAt(window, math.max(1, least) - room) or 0
      if not lacking or (isHeld and not isOnlyHeld) or (isHeld == isOnlyHeld and enoughAt > lackUntil) then
        lacking, lackUntil = window, enoughAt
      end
      isHeld = isHeld and isOnlyHeld
    end
  end
  if lacking then return nil, lacking, isHeld, lackUntil end
  local byTokens = ask.least + math.floor((ask.wanted - ask.least) * share)
  if given < byTokens then share = (given - ask.least) / (ask.wanted - ask.least) end
  given = math.min(given, byTokens)
  return given, ask.leastTokens + math.floor((ask.tokens - ask.leastTokens) * share + 0.5)
end

local function takeAll(windows, claims, nano, tokens, requests)
  for _, window in ipairs(windows) do
    take(window, claims, window.unit == 'c' and nano or (window.unit == 't' and tokens or requests))
  end
end

-- Lets a hold claim all that it has of the windows of its key. What it has claimed in windows that are over stays there.
local function claimAll(own, claims, nano)
  local over = {}
  for _, claim in ipairs(claims.ofKey) do
    if not own[claim.place] or not isCurrent(own[claim.place], claim) then
      over[#over + 1], nano = claim, nano - claim.taken
    end
  end
  claims.ofKey = over
  takeAll(open(own), claims.ofKey, math.max(0, nano), 0, 0)
end

local function joined(one, other)
  local all = {}
  for _, window in ipairs(one) do all[#all + 1] = window end
  for _, window in ipairs(other) do all[#all + 1] = window end
  return all
end

-- Rates are a generic cell rate algorithm: a theoretical arrival time, in milliseconds, up to a minute ahead. A text has those
-- of requests and of tokens, and how many tokens a minute allows. A request may reserve all tokens of a minute, and more are
-- charged at its end.
local function readRates(text)
  local requests, tokens, perMinute = string.match(text or '', '^(%S+) (%S+) (%d+)$')
  return { requests = tonumber(requests) or 0, tokens = tonumber(tokens) or 0, perMinute = tonumber(perMinute) or 0 }
end

local function ratesText(rates)
  return string.format('%.3f %.3f %.0f', rates.requests, rates.tokens, rates.perMinute)
end

-- Asks for a request and its tokens. asked: the requests and the tokens that a minute allows, 0 for any number.
-- Returns the rates with it, and the time that its tokens reserve; otherwise nil, what is used up, for how long, and until all of
-- it is there again, in milliseconds.
local function askRates(text, asked, tokens)
  local rates = readRates(text)
  local requests, perMinute = string.match(asked, '^(%d+) (%d+)$')
  local reserved = 0
  if requests ~= '0' then
    local due = math.max(rates.requests, now()) + MINUTE / tonumber(requests)
    if due - now() > MINUTE + 0.001 then return nil, 'requests', math.ceil(due - now() - MINUTE), rates.requests - now() end
    rates.requests = due
  end
  -- What was used at another rate counts at this one.
  if rates.perMinute > 0 and perMinute ~= '0' then
    rates.tokens = now() + math.max(0, rates.tokens - now()) * rates.perMinute / tonumber(perMinute)
  end
  rates.perMinute = tonumber(perMinute)
  if rates.perMinute > 0 then
    reserved = math.ceil(math.min(MINUTE, tokens * MINUTE / rates.perMinute))
    local due = math.max(rates.tokens, now()) + reserved
    if due - now() > MINUTE then return nil, 'tokens', math.ceil(due - now() - MINUTE), rates.tokens - now() end
    rates.tokens = due
  end
  return rates, reserved
end

-- Charges the tokens of a request in the place of those that it reserved.
local function correctRates(text, reserved, tokens)
  local rates = readRates(text)
  if rates.perMinute == 0 then return text end
  rates.tokens = rates.tokens - reserved + tokens * MINUTE / rates.perMinute
  return ratesText(rates)
end

-- A charge with its parts is one text: the nano-credits of the balance, those that a plan has covered, and the tokens.
local function readParts(text)
  local charge, covered, tokens = string.match(text, '^(%-?%d+),?(%d*),?(%d*)')
  return { charge = tonumber(charge) or 0, covered = tonumber(covered) or 0, tokens = tonumber(tokens) or 0 }
end

local function partsText(parts)
  if parts.covered == 0 and parts.tokens == 0 then return whole(parts.charge) end
  return string.format('%.0f,%.0f,%.0f', parts.charge, parts.covered, parts.tokens)
end

-- What an entry says of its plan: its parts beside the charge, the claims of its windows, and what is left of those that are
-- not over. '-' if it was taken from credits.
local function planOf(text, parts, plan)
  local claims = text ~= '-' and readClaims(text) or {}
  if not claims.shape then return '-' end
  claims.ofKey, claims.reserved, claims.floor = {}, nil, nil
  local words = { claimsText(claims) }
  for _, window in ipairs(openOf(plan, claims.windows)) do
    if window.amount ~= UNKNOWN then words[#words + 1] = string.format('l%s:%.0f', window.place, leftIn(window)) end
  end
  return string.format('%.0f,%.0f,%s', parts.covered, parts.tokens, table.concat(words, '/'))
end

-- Reads that: nano-credits, tokens and claims. A refund has negative numbers. Without a plan, the claims are nil.
local function readPlanOf(text)
  local covered, tokens, claims = string.match(text, '^(%-?%d+),(%-?%d+),(%S+)$')
  return tonumber(covered or '0'), tonumber(tokens or '0'), claims
end

local NOTHING = { charge = 0, covered = 0, tokens = 0 }

-- Splits a charge between a plan and credits. A plan covers what its windows have room for, and what was taken of those that are
-- over. The rest is taken from credits, if they may follow and there are any, else from the next window.
-- windows: those of the plan, without what the hold has claimed. before: what an earlier end charged. held: the credits that the
-- hold had. spare: those that there are.
local function split(charge, tokens, claims, windows, before, held, spare)
  local most = held > 0 and claims.plan or charge
  for _, window in ipairs(windows) do
    local taken, last = 0, nil
    for _, claim in ipairs(claims.windows) do
      if claim.place == window.place then taken, last = taken + claim.taken, claim end
    end
    if window.unit == 'c' and last then
      local isOpen = isCurrent(window, last) and (window.kind == 'r' or now() < window.ends)
      most = math.min(most, isOpen and math.max(taken, roomIn(window) + before.covered) or taken)
    end
  end
  local beyond = math.max(0, charge - most)
  local credits = claims.beyond and math.min(beyond, math.max(0, spare)) or 0
  if credits > 0 then tokens = math.ceil(tokens * (charge - credits) / charge) end
  return { charge = credits, covered = charge - credits, tokens = tokens }
end

-- What is charged to a window, in its unit. A request counts if it was billed, also at a price of 0.
local function numberIn(window, covered, parts, isCounted)
  if window.unit == 'c' then return covered end
  if window.unit == 't' then return parts.tokens end
  return isCounted and 1 or 0
end

-- The fields with the windows of a plan, and with the windows and the rates of a key.
local PURSES = { field.windows, field.keyWindows, field.rates }

-- Returns the key of the record of a key, given its account's.
local function recordOf(account, owner)
  if owner == '' then return account end
  local name = string.gsub(account, ':a:', ':k:', 1)
  return name .. ':' .. owner
end

-- Applies an end to the windows and the rates that a hold has claimed.
-- found: the PURSES of its account. ending: its parts, and isCounted; before and wasCounted of an earlier end; isHeld tells
-- whether the windows have the claims. Returns the fields of the account that change, with their values.
local function applyClaims(account, owner, claims, plan, found, ending)
  local parts, before, fields = ending.parts, ending.before, {}
  if #plan > 0 then
    for _, window in ipairs(plan) do
      chargeTo(window, claims.windows, numberIn(window, parts.covered, parts, ending.isCounted),
        numberIn(window, before.covered, before, ending.wasCounted))
    end
    fields = { field.windows, windowsText(plan) }
  end
  if #claims.ofKey == 0 and not claims.reserved then return fields end
  local record = recordOf(account, owner)
  local windows, rates = found[2], found[3]
  if record ~= account then windows, rates = unpack(redis.call('HMGET', record, field.keyWindows, field.rates)) end
  -- Windows that nobody asks for are not here.
  local ofKey, changed = readWindows(windows), {}
  if windows then bringUp(ofKey, claims.ofKey) end
  for _, window in ipairs(ofKey) do
    if ending.isHeld then giveBack(window, claims.ofKey) end
    chargeTo(window, claims.ofKey, parts.charge + parts.covered, before.charge + before.covered)
  end
  if #ofKey > 0 then changed = { field.keyWindows, windowsText(ofKey) } end
  if claims.reserved and ending.isHeld and rates then
    changed[#changed + 1] = field.rates
    -- The parts of an earlier end have only the tokens of the plan.
    local ofAll = before.covered > 0 and before.tokens * (before.charge + before.covered) / before.covered or before.tokens
    changed[#changed + 1] = correctRates(rates, claims.reserved, ending.tokens - math.floor(ofAll))
  end
  writeRecord(account, record, changed, fields)
  return fields
end

-- Returns the windows of the plan of a hold, without what the hold has claimed if isHeld. None if another plan has taken the
-- place of that one.
local function planFor(claims, text, isHeld)
  local plan = readWindows(claims.shape and (text or claims.shape) or '')
  if plan.shape ~= claims.shape then return {} end
  bringUp(plan, claims.windows)
  if isHeld then for _, window in ipairs(plan) do giveBack(window, claims.windows) end end
  return plan
end

-- Ends the claims of a hold: its windows get back what it has taken, and are charged instead.
-- ending: charge and tokens, and what applyClaims needs of an end; held and spare are credits, as for split.
-- Returns the charge with its parts, the fields of the account that change, with their values, and the windows of the plan.
local function endClaims(account, owner, text, found, ending)
  local claims = readClaims(text)
  local plan = planFor(claims, found[1], ending.isHeld)
  ending.parts = { charge = ending.charge, covered = 0, tokens = ending.tokens }
  local before = ending.before
  if before.covered > 0 and before.charge + before.covered == ending.charge then
    -- It was split when it ended before.
    ending.parts = before
  elseif claims.shape then
    ending.parts = split(ending.charge, ending.tokens, claims, plan, ending.before, ending.held, ending.spare)
  end
  return ending.parts, applyClaims(account, owner, claims, plan, found, ending), plan
end

-- Applies an entry that the records know. Its charge is split already.
local function applyEntry(account, owner, text, found, ending)
  local claims = readClaims(text)
  ending.tokens = ending.parts.tokens
  return applyClaims(account, owner, claims, planFor(claims, found[1], ending.isHeld), found, ending)
end

-- Gives back to the windows of a plan what an exchange has used of them. Returns the fields of the account that change, and the
-- windows; nil if each window is over.
local function undoClaims(account, text, windows, parts)
  local claims = readClaims(text)
  local plan = planFor(claims, windows, false)
  if #openOf(plan, claims.windows) == 0 then return nil end
  return applyClaims(account, '', claims, plan, {}, { parts = NOTHING, before = parts, isCounted = false, wasCounted = true,
    isHeld = false }), plan
end

-- Sets what is held of windows from the claims of the holds that are here. Returns whether that changes anything.
local function recountWindows(hash, name, claimed, list, owner)
  local text = redis.call('HGET', hash, name)
  if not text and list == 'ofKey' then return false end
  local shape = text and string.match(text, '^%S*')
  local own = {}
  for _, each in ipairs(claimed) do
    local isOwn = list == 'ofKey' and each.owner == owner
    if list == 'windows' and each.claims.shape then
      shape = shape or each.claims.shape
      isOwn = each.claims.shape == shape
    end
    if isOwn and #each.claims[list] > 0 then own[#own + 1] = each.claims[list] end
  end
  if not text and #own == 0 then return false end
  local state = readWindows(text or shape)
  for _, claims in ipairs(own) do bringUp(state, claims) end
  for _, window in ipairs(state) do
    window.held = 0
    for _, claims in ipairs(own) do
      for _, claim in ipairs(claims) do
        if claim.place == window.place and (window.kind == 'r' or isCurrent(window, claim)) then
          window.held = window.held + claim.taken
        end
      end
    end
  end
  local counted = windowsText(state)
  if counted == text then return false end
  redis.call('HSET', hash, name, counted)
  return true
end
