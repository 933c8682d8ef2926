/**
 * Explores everything that can happen to one or two requests: each order of their steps, with faults between them, on
 * the real scripts, Settler, Restorer, recorder and recovery. The steps themselves are those of test/explore/actions.ts. It
 * visits the states breadth-first, checks each of them, and ends when it has visited all.
 */
import { isDeepStrictEqual } from 'node:util'
import { Actions, type Mutation } from './actions.ts'
import { type Action, begin, type Fate, keyOf, type Scope, type State } from './state.ts'
import type { World } from './world.ts'

/** What an exploration has visited. */
export interface Explored {
  readonly states: number
  readonly transitions: number
  /** States in which everything has ended. */
  readonly ends: number
  /** How often each action was tried. */
  readonly tally: ReadonlyMap<string, number>
}

/** A state with the way that led to it. */
interface Visited {
  readonly state: State
  readonly from: Visited | undefined
  readonly by: string
}

/**
 * Visits all states of a scope.
 * @throws Error with the broken rule and the steps that lead to it
 */
export async function explore(world: World, scope: Scope, mutation?: Mutation): Promise<Explored> {
  const actions = new Actions(world, scope, mutation)
  const first: Visited = { state: begin(scope, await world.saveStore(), world.saveRecords()), from: undefined, by: '' }
  const seen = new Set([keyOf(first.state)])
  const tally = new Map<string, number>()
  let [transitions, ends] = [0, 0]
  for (let frontier = [first]; frontier.length > 0;) {
    const next: Visited[] = []
    // The records are put back as rarely as possible.
    frontier.sort((one, other) => one.state.records - other.state.records || one.state.store - other.state.store)
    for (const at of frontier) {
      const enabled = actions.enabled(at.state)
      if (!enabled.some(({ isFault }) => !isFault)) {
        ends++
        await guarded(at, 'the end', () => actions.checkEnd(at.state))
      }
      for (const action of enabled) {
        for await (const [state, fates] of outcomes(world, action, at, scope)) {
          transitions++
          const by = fates.every(fate => fate === 'arrives') ? action.name : `${action.name} (${fates.join(', ')})`
          tally.set(action.name, (tally.get(action.name) ?? 0) + 1)
          const to = { state, from: at, by }
          const key = keyOf(state)
          if (seen.has(key)) continue
          seen.add(key)
          await guarded(to, '', () => actions.check(state))
          next.push(to)
        }
      }
    }
    frontier = next
  }
  return { states: seen.size, transitions, ends, tally }
}

/** Runs an action once for each fate that its messages may have. */
async function* outcomes(
  world: World,
  action: Action,
  at: Visited,
  scope: Scope,
): AsyncGenerator<readonly [State, readonly Fate[]]> {
  const paths: Fate[][] = [[]]
  for (let path = paths.pop(); path; path = paths.pop()) {
    const draft = structuredClone(at.state)
    const fates = path.slice()
    let sent = 0
    const fate = (): Fate => {
      const known = fates[sent++]
      if (known !== undefined) return known
      for (const other of ['is lost', 'is late', 'is not answered'] as const)
        if (scope.allows(draft, other)) paths.push([...fates, other])
      fates.push('arrives')
      return 'arrives'
    }
    await world.to(draft.store, draft.records)
    await guarded(at, action.name, async () => {
      await action.run(draft, fate)
      draft.store = await world.saveStore()
      if (action.changesRecords) draft.records = world.saveRecords()
    })
    if (!isDeepStrictEqual(draft, at.state)) yield [draft, fates]
  }
}

async function guarded(at: Visited, then: string, work: () => void | Promise<void>): Promise<void> {
  try {
    await work()
  } catch (cause) {
    const steps = then === '' ? [] : [then]
    for (let step: Visited | undefined = at; step?.from; step = step.from) steps.unshift(step.by)
    throw new Error(`${(cause as Error).message}\nafter: ${steps.join('; ')}`, { cause })
  }
}
