/** Tools in the responses format, the only one with namespaces. */
import { arrayAt, cacheMark, objectAt, textAt } from '../translate/decoding.ts'
import type { DroppedFields } from '../translate/dropped-fields.ts'
import type { CacheMark, Tool } from '../translate/neutral.ts'
import { text } from '../json.ts'
import { freeformTool, functionTool, providerTools, type SkippedTool, skipTool } from '../translate/tools.ts'

/** The name of a tool in formats without namespaces. */
export function flatName(space: string | undefined, name: string): string {
  return space === undefined ? name : `${space}__${name}`
}

/** The name and the namespace of a tool, as the client declared them. */
export function homeName(name: string, tool: Pick<Tool, 'home'> | undefined): { name: string; namespace?: string } {
  const home = tool?.home
  return home ? { name: home.name, namespace: home.space } : { name }
}

/**
 * The tools that can be translated. Tools that only the provider can run are dropped, or refused if there are no
 * others.
 */
export function decodeTools(value: readonly unknown[], dropped: DroppedFields): Tool[] {
  const skippedTools: SkippedTool[] = []
  const tools = value.flatMap((entry, index) => decodeTool(entry, `tools[${index}]`, { skippedTools, dropped }))
  providerTools(skippedTools, tools, dropped)
  return tools
}

/** What is noted of tools that cannot be translated, and the namespace that the tools are in. */
interface ToolPlace {
  readonly skippedTools: SkippedTool[]
  readonly dropped: DroppedFields
  readonly space?: string
}

function decodeTool(entry: unknown, at: string, place: ToolPlace): Tool[] {
  const { skippedTools, dropped, space } = place
  const tool = objectAt(entry, at)
  const type = text(tool['type']) ?? ''
  switch (type) {
    case 'function':
      return [placed(functionTool(tool, 'parameters', at, dropped), cacheMark(tool, dropped), space)]
    case 'custom':
      return [placed(freeformTool(tool, at, dropped), cacheMark(tool, dropped), space)]
    case 'namespace': {
      const name = textAt(tool['name'], `${at}.name`)
      // The description of a namespace has no counterpart.
      if (tool['description']) dropped.add('tools.namespace.description')
      return arrayAt(tool['tools'], `${at}.tools`).flatMap((inner, index) =>
        decodeTool(inner, `${at}.tools[${index}]`, { ...place, space: name }),
      )
    }
    default:
      skipTool(tool, at, skippedTools, dropped)
      return []
  }
}

function placed(tool: Tool, cache: CacheMark | undefined, space: string | undefined): Tool {
  const whole = cache ? { ...tool, cache } : tool
  return space === undefined ? whole : { ...whole, name: flatName(space, tool.name), home: { space, name: tool.name } }
}
