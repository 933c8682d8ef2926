/**
 * The endpoints of a configuration, fixed by its chain before any request runs. Each is a method and an exact raw path,
 * or everything below a path. Paths are not decoded or normalised, so the path that is routed is the one that is
 * authorised.
 */
import { FORMATS, pathsOf } from '../formats/index.ts'
import type { Scope } from './stage.ts'

/** An endpoint as scopes name it, such as `POST /v1/messages` or `GET /v1/models/*`. */
export type Endpoint = `${string} /${string}`

/** The endpoints of the scopes that stand for several. */
const GROUPS: ReadonlyMap<Scope, ReadonlySet<string>> = new Map([
  ['inference', new Set(Object.values(FORMATS).flatMap(format => pathsOf(format).map(path => `POST ${path}`)))],
  [
    'counting',
    new Set(Object.values(FORMATS).flatMap(({ counting }) => (counting === undefined ? [] : [`POST ${counting}`]))),
  ],
])

/** Whether a stage with this scope takes part in exchanges at the endpoint. */
export function covers(scope: Scope, endpoint: Endpoint): boolean {
  if (typeof scope !== 'string') return scope.some(part => covers(part, endpoint))
  return scope === 'all' || (GROUPS.get(scope)?.has(endpoint) ?? scope === endpoint)
}

/**
 * The endpoints that scopes name. `inference` and `counting` name the endpoints of every format. `all` names no endpoint
 * of its own.
 */
export function endpointsOf(scopes: readonly Scope[]): Set<Endpoint> {
  const named = scopes.flatMap(function flat(scope): string[] {
    if (typeof scope !== 'string') return scope.flatMap(flat)
    return scope === 'all' ? [] : [...(GROUPS.get(scope) ?? [scope])]
  })
  return new Set(named as Endpoint[])
}

/** Finds the target of a request by its method and path. */
export class RouteTable<T> {
  readonly #exact = new Map<string, Map<string, T>>()
  /** By method, for all paths. */
  readonly #everywhere = new Map<string, T>()
  readonly #below: { prefix: string; methods: Map<string, T> }[] = []

  add(endpoint: Endpoint, target: T): void {
    const space = endpoint.indexOf(' ')
    const method = endpoint.slice(0, space)
    const path = endpoint.slice(space + 1)
    this.#methodsOf(path).set(method, target)
  }

  /** Returns the target. Without one, returns the methods that the path accepts; an unknown path accepts none. */
  find(method: string, path: string): { target: T } | { allow: readonly string[] } {
    const methods = this.#exact.get(path) ?? this.#under(path)
    // HEAD is answered like GET; the HTTP server omits the body.
    const target = methods?.get(method) ?? (method === 'HEAD' ? methods?.get('GET') : undefined)
    if (target !== undefined) return { target }
    // An answer to OPTIONS on all paths does not make a path known.
    const asked = method === 'OPTIONS' ? this.#everywhere.get(method) : undefined
    return asked === undefined ? { allow: [...(methods?.keys() ?? [])] } : { target: asked }
  }

  #under(path: string): Map<string, T> | undefined {
    return this.#below.find(({ prefix }) => path.startsWith(prefix) && path !== prefix)?.methods
  }

  #methodsOf(path: string): Map<string, T> {
    if (path === '/*') return this.#everywhere
    if (path.endsWith('/*')) {
      const prefix = path.slice(0, -1)
      let entry = this.#below.find(below => below.prefix === prefix)
      if (!entry) this.#below.push((entry = { prefix, methods: new Map() }))
      return entry.methods
    }
    let methods = this.#exact.get(path)
    if (!methods) this.#exact.set(path, (methods = new Map()))
    return methods
  }
}
