/** Replaces a string in the text of a reply. All other bytes stay the same. */

/**
 * The data of an event, or a JSON reply, in which the string at a path is another one.
 * @param path names of members, from the root on. If no string stands there, the data is returned unchanged
 */
export function renamed(data: string, path: readonly string[], name: string): string {
  const span = spanOf(data, path)
  return span ? data.slice(0, span.start) + JSON.stringify(name) + data.slice(span.end) : data
}

/** Where the string at a path stands, quotes included. One pass over the text. */
function spanOf(json: string, path: readonly string[]): { start: number; end: number } | undefined {
  let depth = 0
  /** How many members of the path have been entered. */
  let inside = 0
  let entering = false
  let found: { start: number; end: number } | undefined
  for (let at = 0; at < json.length; at++) {
    switch (json[at]) {
      case '{':
      case '[':
        depth++
        if (entering && json[at] === '{') inside++
        entering = false
        break
      case '}':
      case ']':
        depth--
        inside = Math.min(inside, Math.max(depth - 1, 0))
        break
      case '"': {
        entering = false
        const end = stringEnd(json, at)
        const value = depth === inside + 1 ? valueAfter(json, end) : undefined
        if (value !== undefined && JSON.parse(json.slice(at, end)) === path[inside]) {
          // If several members have the name, the last one counts.
          if (inside < path.length - 1) entering = true
          else if (json[value] === '"') found = { start: value, end: stringEnd(json, value) }
        }
        at = end - 1
        break
      }
      default:
        // Only an object can be entered.
        if (entering && !/[\s:]/.test(json[at] as string)) entering = false
    }
  }
  return found
}

/** The index after the quote that ends the string which begins at `start`. */
function stringEnd(json: string, start: number): number {
  for (let at = json.indexOf('"', start + 1); at !== -1; at = json.indexOf('"', at + 1)) {
    let slashes = 0
    while (json[at - 1 - slashes] === '\\') slashes++
    if (slashes % 2 === 0) return at + 1
  }
  return json.length
}

/** The index of a member's value, if a name ends at `end`; undefined otherwise. */
function valueAfter(json: string, end: number): number | undefined {
  let at = end
  while (/\s/.test(json[at] ?? '')) at++
  if (json[at] !== ':') return undefined
  at++
  while (/\s/.test(json[at] ?? '')) at++
  return at
}
