/** A model's name in a reply's own text: replaced where it stands, all other bytes as they came. */
import type { Format } from './format.ts'

/**
 * The data of an event, or a whole JSON reply, in which the model bears another name.
 * @param told the name that it bears now
 */
export function renamed(format: Pick<Format, 'modelOf'>, data: string, told: string, name: string): string {
  const places = [...data.matchAll(new RegExp(`"model"\\s*:\\s*${escaped(JSON.stringify(told))}`, 'g'))]
  for (const { index, 0: found } of places) {
    const member = found.slice(0, found.length - JSON.stringify(told).length) + JSON.stringify(name)
    const changed = data.slice(0, index) + member + data.slice(index + found.length)
    // A tool's input may have a member of that name and value, too.
    if (places.length === 1 || format.modelOf(JSON.parse(changed)) === name) return changed
  }
  return data
}

function escaped(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|/]/g, String.raw`\$&`)
}
