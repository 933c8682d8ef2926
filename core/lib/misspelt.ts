/** Objects that throw when an unknown member is read or assigned. */
import { suggest } from './suggest.ts'

/** Members that engines and libraries look for on any object. */
const PROBED: ReadonlySet<string> = new Set(
  [
    // Promises and JSON.
    ['then', 'toJSON'],
    // util.inspect.
    ['href', 'protocol'],
    // pino.
    ['socket', 'setHeader'],
    // Test frameworks.
    ['asymmetricMatch', 'nodeType', 'tagName', '$$typeof'],
  ].flat(),
)

/**
 * Returns a prototype whose unknown members throw when they are read or assigned. It stands at the end of a prototype chain, so that only misses reach it:
 * the members of the object itself stay as fast as they are, and private fields work.
 * @param what what the object is called in the error, such as `x.body`
 * @param names the names that are suggested
 * @param isOptional whether a name is a fact, which may be missing; symbols, and what engines look for, may be missing too
 */
export function reportingMisspelt(
  what: string,
  names: readonly string[],
  isOptional: (name: string) => boolean = () => false,
): object {
  return new Proxy(Object.prototype, {
    get(objects, name, receiver) {
      if (typeof name === 'symbol' || name in objects || PROBED.has(name) || isOptional(name))
        return Reflect.get(objects, name, receiver)
      throw new TypeError(`${what} has no member "${name}"; ${suggest(name, names) ?? 'docs/plugins.md lists them'}`)
    },
    set(objects, name, value, receiver) {
      if (typeof name === 'symbol' || name in objects) return Reflect.set(objects, name, value, receiver)
      throw new TypeError(
        isOptional(name)
          ? `"${name}" is a fact: return it from \`request\`, and list it in \`gives\``
          : `${what} has no member "${name}" to assign; keep your own state in a WeakMap or a fact`,
      )
    },
  })
}
