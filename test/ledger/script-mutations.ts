/**
 * The rules of the script that are broken on purpose, one by one. `npm run simulate` shows that a simulation finds each of
 * them.
 */

/** A part of the script, which occurs in it once, and what a mutation puts in its place. */
export type ScriptMutation = readonly [rule: string, part: string, instead: string]

/** The rules of balances that several keys share. */
export const SHARED: readonly ScriptMutation[] = [
  ['a charge counts to its key', 'added(part.charged, whole(charge)), part', 'part.charged, part'],
  ['what is held counts to its key', 'part.held + held, part', 'part.held, part'],
  ['a cap limits what a key may hold', 'tonumber(cap) - tonumber(elsewhere', '9e15 - tonumber(elsewhere'],
  ['what was used elsewhere counts to a cap', "- tonumber(elsewhere or '0') ", ''],
  ['what a key holds counts to its cap', 'added(part.charged, whole(part.held))', 'part.charged'],
  ['a reaped hold belongs to its key', "owner = owner or ''", "owner = ''"],
]

/** The rules of quotas. */
export const QUOTAS: readonly ScriptMutation[] = [
  ['a key beyond its share leaves what is kept for others', 'balance - kept))', 'balance))'],
  ['a key can always use its share', 'math.max(share - use, balance - kept)', 'balance - kept'],
  ['a share is kept for a new key', '(#uses + 1)', '#uses'],
  ['a rolling window keeps half', 'isRolling and 0.5', 'isRolling and 0'],
  ['a calendar window keeps what is left of it', '0.5 or left', '0.5 or 0'],
  ['what is charged counts to the share', '(used or 0) + charge', '(used or 0)'],
  ['what is no longer held leaves the share', '(held or 0) + more', '(held or 0)'],
  ['what a hold grows by counts to the share', 'slotOrSharer, 0, more)', 'slotOrSharer, 0, 0)'],
  [
    'a charge counts in the window that the quota knows',
    "isRolling, from, length = window.kind == 'r', window.from",
    "isRolling, from, length = window.kind == 'r', 0",
  ],
  ['holds count in the next window', 'window.held = held', 'window.held = window.isNew and 0 or held'],
  ['what was used beyond a quota does not count in the next window', 'if window.isNew then window.used = 0 end', ''],
  ['a calendar window begins anew', 'elseif from > window.from then', 'elseif false then'],
  ['what was used comes back', 'if part.at >= firstPart(window) and', 'if'],
  ['a charge counts in its part', 'math.floor(now() / window.ends), charge)', 'math.floor(now() / window.ends), 0)'],
  ['a quota that is used up is not busy', 'if balance + held < least then return false end', ''],
  ['a quota that only running holds fill is busy', 'if balance + held < least then', 'if balance < least then'],
  ['a quota that is used up holds nothing', 'if balance >= wanted then return wanted end', 'do return wanted end'],
]

/** The rules of plans. */
export const PLANS: readonly ScriptMutation[] = [
  [
    'a window has what is not used and not held',
    'return window.amount - window.used - window.held',
    'return window.amount - window.used',
  ],
  ['what was used beyond a window counts in the next one', 'math.max(0, window.used - window.amount) or 0', '0 or 0'],
  [
    'a new window has nothing held',
    'window.from, window.ends, window.held, window.isNew = from, ends, 0, true',
    'window.from, window.ends, window.isNew = from, ends, true',
  ],
  ['what is older than the last hours is forgotten', 'if part.at >= firstPart(window) and', 'if'],
  [
    'a window from the first use ends',
    'if now() >= window.ends or window.from < from then renew(window, now(), ends) end',
    '',
  ],
  ['a charge belongs to the window of its hold', 'if last and isCurrent(window, last) then', 'if last then'],
  ['a hold that ends gives back what it has claimed', 'math.max(0, window.held - claim.taken)', 'window.held'],
  ['all windows must have room', 'if lacking then return nil, lacking, isHeld, lackUntil end', ''],
  ['half of a window is kept', 'ask.isHalf and room >= 0', 'false'],
  ['tokens limit the amount', 'given = math.min(given, byTokens)', ''],
  ['what exceeds a window is taken from credits', 'claims.beyond and math.min(beyond', 'false and math.min(beyond'],
  [
    'a plan without credits never takes any',
    'claims.beyond and math.min(beyond, math.max(0, spare)) or 0',
    'math.min(beyond, math.max(0, spare))',
  ],
  ['only the credits that there are pay for it', 'math.min(beyond, math.max(0, spare))', 'beyond'],
  ['a refused request is given back', 'return isCounted and 1 or 0', 'return 1'],
  ['an earlier end of a request counts once', 'numberIn(window, before.covered, before, ending.wasCounted)', '0'],
  [
    "a key's window counts what a plan has covered",
    'parts.charge + parts.covered - before.charge',
    'parts.charge - before.charge',
  ],
  ['an extension goes on with credits', 'not claims.shape or claims.beyond', 'not claims.shape'],
  ['an extension takes from the plan first', 'if #ofPlan > 0 then\n    ofWindows', 'if false then\n    ofWindows'],
  ['tokens of the part that credits pay do not count', 'if credits > 0 then tokens', 'if false then tokens'],
  ['an extension counts in its window', 'takeAll(ofPlan, claims.windows, ofWindows, ofTokens, 0)', ''],
  ["an extension counts in the key's window", 'takeAll(ofKey, claims.ofKey, ofWindows, 0, 0)', ''],
  ['the floor of a dead gateway counts its tokens', 'readClaims(claims).floor or 0', '0 or 0'],
]
