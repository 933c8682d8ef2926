/**
 * A model of a balance with a plan and of a key with a limit a day, which a simulation compares with the script. It is written
 * from docs/plans.md, without the script's texts.
 */

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const WEEK_MS = 7 * DAY_MS

/** The windows of the model, by their places in the plan. The last one is of the key. */
export const WINDOWS = [
  { name: 'credits a day', unit: 'credits', amount: 20_000 },
  { name: 'credits of 5h', unit: 'credits', amount: 15_000 },
  { name: 'requests a week', unit: 'requests', amount: 25, model: 'a' },
  { name: 'tokens of 6h from the first use', unit: 'tokens', amount: 6_000, model: 'b' },
  { name: "the key's credits a day", unit: 'credits', amount: 22_000 },
] as const
const [DAY, ROLLING, , FIRST_USE, OF_KEY] = [0, 1, 2, 3, 4]
const PART_MS = (5 * HOUR_MS) / 60

/** A charge with its parts. */
export interface Parts {
  readonly charge: number
  readonly covered: number
  readonly tokens: number
}

const NOTHING: Parts = { charge: 0, covered: 0, tokens: 0 }

/** What a hold has taken of a window, and in which one. */
interface Claim {
  readonly place: number
  readonly begin: number
  taken: number
}

/** A hold of the model. */
export interface ModelHold {
  credits: number
  plan: number
  isOfPlan: boolean
  claims: Claim[]
  floor: number
  floorTokens: number
  before: Parts | undefined
}

/** What is asked for. */
export interface Wish {
  readonly model: string
  readonly wanted: number
  readonly least: number
  readonly tokens: number
  readonly leastTokens: number
  readonly half: boolean
}

class Window {
  used = 0
  held = 0
  /** What requests have used beyond what they had held and beyond the amount. */
  over = 0
  /** When it began. -1 before its first use. */
  begin = -1
  end = 0
  readonly parts = new Map<number, number>()

  sum(place: number): number {
    return place === ROLLING ? [...this.parts.values()].reduce((all, used) => all + used, 0) : this.used
  }
}

type Saved = readonly Pick<Window, 'used' | 'held' | 'over' | 'begin' | 'end' | 'parts'>[]

/** The model. */
export class PlanModel {
  now: number
  balance = 0
  held = 0
  readonly holds = new Map<string, ModelHold>()
  readonly ends = new Map<string, { isFinal: boolean; parts: Parts }>()
  readonly windows = WINDOWS.map(() => new Window())
  readonly #at: number
  readonly #mayUseCredits: boolean

  constructor(at: number, mayUseCredits: boolean) {
    this.#at = at
    this.now = at
    this.#mayUseCredits = mayUseCredits
  }

  /** The windows that count a model, as far as they are of the plan. */
  places(model: string): number[] {
    return WINDOWS.flatMap((window, place) =>
      place !== OF_KEY && (!('model' in window) || window.model === model) ? [place] : [],
    )
  }

  /** Lets windows begin anew that are over. */
  #bringUp(places: readonly number[]): void {
    for (const place of places) {
      const window = this.windows[place] as Window
      if (place === ROLLING) {
        const first = Math.floor(this.now / PART_MS) - 59
        for (const part of window.parts.keys()) if (part < first) window.parts.delete(part)
        continue
      }
      if (place === FIRST_USE && window.begin >= 0 && this.now < window.end) continue
      // What was used beyond a window that begins with a use begins the next one at once.
      const next = 2 * window.end - window.begin
      const follows = place === FIRST_USE && window.begin >= 0 && window.over > 0 && this.now < next
      const [begin, end] = follows ? [window.end, next] : this.#span(place)
      if (begin === window.begin) continue
      const isNext = begin === window.end
      window.used = window.begin >= 0 && isNext ? window.over : 0
      window.held = 0
      window.over = 0
      window.begin = begin
      window.end = end
    }
  }

  #span(place: number): [begin: number, end: number] {
    if (place === FIRST_USE) return [this.now, this.now + 6 * HOUR_MS]
    if (place === DAY || place === OF_KEY) {
      const day = Math.floor(this.now / DAY_MS) * DAY_MS
      return [day, day + DAY_MS]
    }
    const week = this.#at + Math.floor((this.now - this.#at) / WEEK_MS) * WEEK_MS
    return [week, week + WEEK_MS]
  }

  #room(place: number): number {
    const window = this.windows[place] as Window
    return (WINDOWS[place] as { amount: number }).amount - window.sum(place) - window.held
  }

  #begin(place: number): number {
    return place === ROLLING ? Math.floor(this.now / PART_MS) : (this.windows[place] as Window).begin
  }

  /** Returns what a purse gives. Undefined if it does not have the least amount. */
  #offer(places: readonly number[], credits: number | undefined, wish: Wish, requests: number) {
    const limits: { wanted: number; least: number; room: number; unit: string }[] = places.map(place => {
      const { unit } = WINDOWS[place] as { unit: string }
      const room = this.#room(place)
      if (unit === 'requests') return { unit, room, wanted: requests, least: requests }
      if (unit === 'tokens') return { unit, room, wanted: wish.tokens, least: wish.leastTokens }
      return { unit, room, wanted: wish.wanted, least: wish.least }
    })
    if (credits !== undefined) limits.push({ unit: 'credits', room: credits, wanted: wish.wanted, least: wish.least })
    let given = wish.wanted
    let share = 1
    for (const { unit, room, wanted, least } of limits) {
      const half = wish.half && room >= 0 ? Math.min(wanted, Math.max(Math.floor(room / 2), least)) : wanted
      const part = room >= half ? half : room > 0 && room >= least ? room : undefined
      if (part === undefined) return undefined
      if (unit === 'credits') given = Math.min(given, part)
      else if (unit === 'tokens' && wanted > least) share = Math.min(share, (part - least) / (wanted - least))
    }
    // Whichever has less decides: the nano-credits or the tokens.
    const byTokens = wish.least + Math.floor((wish.wanted - wish.least) * share)
    const at = given < byTokens ? (given - wish.least) / (wish.wanted - wish.least) : share
    return {
      given: Math.min(given, byTokens),
      tokens: wish.leastTokens + Math.round((wish.tokens - wish.leastTokens) * at),
    }
  }

  #take(places: readonly number[], hold: ModelHold, given: number, tokens: number, requests: number): void {
    for (const place of places) {
      const { unit } = WINDOWS[place] as { unit: string }
      const number = unit === 'credits' ? given : unit === 'tokens' ? tokens : requests
      ;(this.windows[place] as Window).held += number
      const begin = this.#begin(place)
      const known = hold.claims.find(claim => claim.place === place && claim.begin === begin)
      if (known) known.taken += number
      else hold.claims.push({ place, begin, taken: number })
    }
  }

  /** Holds. @returns the amount; undefined if it is refused */
  hold(id: string, wish: Wish): number | undefined {
    const known = this.holds.get(id)
    if (known) return known.credits + known.plan
    const ofPlan = this.places(wish.model)
    const saved = this.#save()
    this.#bringUp([...ofPlan, OF_KEY])
    let offer = this.#offer([...ofPlan, OF_KEY], undefined, wish, 1)
    const isOfPlan = offer !== undefined
    if (!offer && this.#mayUseCredits) offer = this.#offer([OF_KEY], this.balance, wish, 1)
    if (!offer) {
      this.#restore(saved)
      return undefined
    }
    if (!isOfPlan) this.#restore(saved)
    if (!isOfPlan) this.#bringUp([OF_KEY])
    const hold: ModelHold = {
      credits: isOfPlan ? 0 : offer.given,
      plan: isOfPlan ? offer.given : 0,
      isOfPlan,
      claims: [],
      floor: 0,
      floorTokens: 0,
      before: undefined,
    }
    this.#take(isOfPlan ? [...ofPlan, OF_KEY] : [OF_KEY], hold, offer.given, offer.tokens, 1)
    this.balance -= hold.credits
    this.held += hold.credits
    this.holds.set(id, hold)
    return offer.given
  }

  /** Extends to an amount. @returns the amount then */
  extend(id: string, { model, wanted, tokens }: { model: string; wanted: number; tokens: number }): number | undefined {
    const hold = this.holds.get(id)
    if (!hold) return undefined
    const all = hold.credits + hold.plan
    if (wanted <= all) return all
    const ofPlan = this.places(model)
    const taken = Math.max(
      0,
      ...ofPlan.map(place =>
        (WINDOWS[place] as { unit: string }).unit === 'tokens'
          ? hold.claims.filter(claim => claim.place === place).reduce((sum, claim) => sum + claim.taken, 0)
          : 0,
      ),
    )
    const more = wanted - all
    const moreTokens = Math.max(0, tokens - taken)
    const wish = {
      model,
      wanted: more,
      least: 1,
      tokens: moreTokens,
      leastTokens: Math.min(1, moreTokens),
      half: false,
    }
    const saved = this.#save()
    this.#bringUp([...ofPlan, OF_KEY])
    const offer = hold.isOfPlan ? this.#offer([...ofPlan, OF_KEY], undefined, wish, 0) : undefined
    if (offer) {
      this.#take([...ofPlan, OF_KEY], hold, offer.given, offer.tokens, 0)
      hold.plan += offer.given
    } else this.#restore(saved)
    const rest = more - (offer?.given ?? 0)
    if (rest === 0 || (hold.isOfPlan && !this.#mayUseCredits)) return all + more - rest
    const before = this.#save()
    this.#bringUp([OF_KEY])
    const bare = { ...wish, wanted: rest, tokens: 0, leastTokens: 0 }
    const { given = 0 } = this.#offer([OF_KEY], this.balance, bare, 0) ?? {}
    if (given === 0) {
      this.#restore(before)
      return all + more - rest
    }
    this.#take([OF_KEY], hold, given, 0, 0)
    hold.credits += given
    this.balance -= given
    this.held += given
    return all + more - rest + given
  }

  renew(id: string, floor: number, tokens: number): void {
    const hold = this.holds.get(id)
    if (!hold || floor <= hold.floor) return
    hold.floor = floor
    hold.floorTokens = tokens
  }

  #isCurrent({ place, begin }: Claim): boolean {
    if (place === ROLLING) return begin >= Math.floor(this.now / PART_MS) - 59
    return begin === (this.windows[place] as Window).begin
  }

  /** Charges a number in the place of that of an earlier end, each to the windows in which it was taken. */
  #charge(hold: ModelHold, place: number, number: number, before: number): void {
    const own = hold.claims.filter(claim => claim.place === place)
    const { amount } = WINDOWS[place] as { amount: number }
    for (const [index, claim] of own.entries()) {
      const isLast = index === own.length - 1
      const [part, earlier] = isLast ? [number, before] : [Math.min(number, claim.taken), Math.min(before, claim.taken)]
      number -= part
      before -= earlier
      if (!this.#isCurrent(claim)) continue
      const window = this.windows[place] as Window
      if (place === ROLLING) {
        window.parts.set(claim.begin, (window.parts.get(claim.begin) ?? 0) + part - earlier)
        continue
      }
      window.used += part - earlier
      const beyond = Math.max(0, part - Math.max(earlier, claim.taken))
      window.over = Math.max(0, Math.min(window.over + beyond, window.used - amount))
    }
  }

  /** Ends a hold with a charge. @param isHeld whether the windows have what it has taken */
  #end(hold: ModelHold, isHeld: boolean, all: number, tokens: number, isCounted: boolean, before: Parts): Parts {
    if (isHeld)
      for (const claim of hold.claims)
        if (claim.place === ROLLING || this.#isCurrent(claim)) (this.windows[claim.place] as Window).held -= claim.taken
    let parts: Parts = { charge: all, covered: 0, tokens }
    if (hold.isOfPlan) {
      let most = isHeld && hold.credits > 0 ? hold.plan : all
      for (const place of [DAY, ROLLING]) {
        const own = hold.claims.filter(claim => claim.place === place)
        const last = own.at(-1)
        if (!last) continue
        const taken = own.reduce((sum, claim) => sum + claim.taken, 0)
        const isOver = !this.#isCurrent(last) || (place === DAY && this.now >= (this.windows[DAY] as Window).end)
        most = Math.min(most, isOver ? taken : Math.max(taken, this.#room(place) + before.covered))
      }
      const spare = this.balance + before.charge
      const credits = this.#mayUseCredits ? Math.min(Math.max(0, all - most), Math.max(0, spare)) : 0
      const covered = all - credits
      parts = { charge: credits, covered, tokens: credits > 0 ? Math.ceil((tokens * covered) / all) : tokens }
    }
    // What is not more than before is split as before.
    if (before.covered > 0 && before.charge + before.covered === all) parts = before
    const wasCounted = before.charge + before.covered > 0
    for (const place of new Set(hold.claims.map(claim => claim.place))) {
      const { unit } = WINDOWS[place] as { unit: string }
      const now = unit === 'tokens' ? parts.tokens : unit === 'requests' ? Number(isCounted) : parts.covered
      const then = unit === 'tokens' ? before.tokens : unit === 'requests' ? Number(wasCounted) : before.covered
      if (place === OF_KEY) this.#charge(hold, place, all, before.charge + before.covered)
      else this.#charge(hold, place, now, then)
    }
    return parts
  }

  /** Settles. @param claims of a hold that is not here any more */
  settle(id: string, lost: ModelHold | undefined, all: number, tokens: number): void {
    if (this.ends.get(id)?.isFinal === true) return
    const live = this.holds.get(id)
    const hold = live ?? lost
    if (!hold) return
    const before = (live ? live.before : this.ends.get(id)?.parts) ?? NOTHING
    if (live) {
      this.balance += live.credits
      this.held -= live.credits
    }
    this.holds.delete(id)
    const parts = this.#end(hold, live !== undefined, all, all === 0 ? 0 : tokens, all > 0, before)
    this.balance -= parts.charge - before.charge
    // What cost nothing and never was here leaves nothing behind.
    if (live || all > 0 || this.ends.has(id)) this.ends.set(id, { isFinal: true, parts })
  }

  reap(id: string): void {
    const hold = this.holds.get(id)
    if (!hold) return
    const before = hold.before ?? NOTHING
    const floor = Math.max(hold.floor, before.charge + before.covered)
    this.balance += hold.credits
    this.held -= hold.credits
    this.holds.delete(id)
    const parts = this.#end(hold, true, floor, floor > 0 ? hold.floorTokens : 0, floor > 0, before)
    this.balance -= parts.charge - before.charge
    this.ends.set(id, { isFinal: false, parts })
  }

  #save(): Saved {
    return this.windows.map(({ parts, ...window }) => ({ ...window, parts: new Map(parts) }))
  }

  #restore(saved: Saved): void {
    for (const [place, { parts, ...rest }] of saved.entries()) {
      const window = this.windows[place] as Window
      Object.assign(window, rest)
      window.parts.clear()
      for (const [part, used] of parts) window.parts.set(part, used)
    }
  }
}
