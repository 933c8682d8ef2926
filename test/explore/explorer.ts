/**
 * Explores everything that can happen to one or two requests: each order of their steps, with faults between them, on
 * the real scripts, Settler, Restorer, recorder and recovery. The steps themselves are those of test/explore/actions.ts. It
 * visits the states breadth-first, checks each of them, and ends when it has visited all.
 */
import { hash } from 'node:crypto'
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

/** The last step of the way to a state. */
interface Way {
  readonly from: Way | undefined
  readonly by: string
}

/** A state that is visited next. States that were visited are forgotten, except for their keys. */
interface Visited {
  readonly state: State
  readonly way: Way | undefined
}

/**
 * Visits all states of a scope.
 * @throws Error with the broken rule and the steps that lead to it
 */
export async function explore(world: World, scope: Scope, mutation?: Mutation): Promise<Explored> {
  const actions = new Actions(world, scope, mutation)
  const first: Visited = { state: begin(scope, world.at.store, world.at.records), way: undefined }
  const seen = new Set([hash('sha1', keyOf(first.state), 'base64')])
  const tally = new Map<string, number>()
  let [transitions, ends] = [0, 0]
  for (let frontier = [first]; frontier.length > 0;) {
    const next: Visited[] = []
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
          const to = { state, way: { from: at.way, by } }
          const key = hash('sha1', keyOf(state), 'base64')
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
    world.to(draft.store, draft.records)
    await guarded(at, action.name, async () => {
      await action.run(draft, fate)
      Object.assign(draft, world.at)
    })
    if (!isDeepStrictEqual(draft, at.state)) yield [draft, fates]
  }
}

async function guarded({ way }: Visited, then: string, work: () => void | Promise<void>): Promise<void> {
  try {
    await work()
  } catch (cause) {
    const steps = then === '' ? [] : [then]
    for (let step = way; step; step = step.from) steps.unshift(step.by)
    throw new Error(`${(cause as Error).message}\nafter: ${steps.join('; ')}`, { cause })
  }
}
