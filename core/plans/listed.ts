/** Lists of models: ids, and groups of them. */

/**
 * Whether a list has a model.
 * @param names ids and groups
 * @param ids by which the model may be listed
 */
export function isListed(
  names: readonly string[],
  ids: readonly string[],
  groups: ReadonlyMap<string, ReadonlySet<string>>,
): boolean {
  return names.some(name => ids.includes(name) || ids.some(id => groups.get(name)?.has(id) === true))
}
