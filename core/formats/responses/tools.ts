/** Tools of the responses format, which alone has namespaces. */
import { arrayAt, objectAt, providerTools, textAt } from '../decoding.ts'
import type { Losses } from '../losses.ts'
import type { Tool } from '../neutral.ts'
import { text } from '../reading.ts'
import { freeformTool, functionTool } from '../tools.ts'

/** The name of a namespace's tool where there are no namespaces. */
export function flatName(space: string | undefined, name: string): string {
  return space === undefined ? name : `${space}__${name}`
}

/** How a call of a tool is named to the client that declared it. */
export function homeName(name: string, tool: Tool | undefined): { name: string; namespace?: string } {
  const home = tool?.home
  return home ? { name: home.name, namespace: home.space } : { name }
}

/** The tools a model can be told of; what only the provider can run is dropped, or refused where it is all there is. */
export function decodeTools(value: readonly unknown[], losses: Losses): Tool[] {
  const dropped: { type: string; param: string }[] = []
  const tools = value.flatMap((entry, index) => decodeTool(entry, `tools[${index}]`, undefined, dropped, losses))
  providerTools(dropped, tools, losses)
  return tools
}

function decodeTool(entry: unknown, at: string, space: string | undefined, dropped: { type: string; param: string }[], losses: Losses): Tool[] {
  const tool = objectAt(entry, at)
  const type = text(tool['type']) ?? ''
  switch (type) {
    case 'function':
      return [placed(functionTool(tool, tool['parameters'], at), space)]
    case 'custom':
      return [placed(freeformTool(tool, at), space)]
    case 'namespace': {
      const name = textAt(tool['name'], `${at}.name`)
      // What a namespace is for is told nowhere else: each of its tools must speak for itself.
      if (tool['description']) losses.add('tools.namespace.description')
      return arrayAt(tool['tools'], `${at}.tools`).flatMap((inner, index) => decodeTool(inner, `${at}.tools[${index}]`, name, dropped, losses))
    }
    default:
      dropped.push({ type, param: at })
      return []
  }
}

function placed(tool: Tool, space: string | undefined): Tool {
  return space === undefined ? tool : { ...tool, name: flatName(space, tool.name), home: { space, name: tool.name } }
}
