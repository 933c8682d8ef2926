import { fileURLToPath } from 'node:url'
import t from 'tap'
import { API, type Checker, type Type } from 'typescript/unstable/sync'
import { decisionOn, PASSING, PROVIDER_MEMBERS, TOOL_MEMBERS } from '../../core/formats/members.ts'
import { BETAS, betaName } from '../../core/formats/messages/betas.ts'
import { isProviderTool } from '../../core/formats/provider-tools.ts'
import { FORMAT_NAMES } from '../../core/formats/terms.ts'
import { keepsTable } from '../tables.ts'

/** Every member, tool, part and beta that the SDKs know has a decision, so that an update of an SDK shows what is new. */

/** Parameters that the SDKs send as headers. */
const HEADERS = ['betas', 'user_profile_id', 'workspace_id']

/**
 * Items and blocks of a conversation. Nothing is dropped inside a conversation. What can cost money there has a decision
 * of its own: `reads` counts or checks it, `text` counts as text, and `tools` declares tools.
 */
const PARTS: Readonly<Record<string, 'text' | 'reads' | 'tools'>> = {
  additional_tools: 'tools',
  advisor_tool_result: 'text',
  apply_patch_call: 'text',
  apply_patch_call_output: 'text',
  bash_code_execution_tool_result: 'text',
  code_execution_tool_result: 'text',
  code_interpreter_call: 'reads',
  compaction: 'text',
  compaction_trigger: 'text',
  computer_call: 'text',
  computer_call_output: 'reads',
  configuration_update: 'text',
  container_upload: 'reads',
  custom_tool_call: 'text',
  custom_tool_call_output: 'reads',
  document: 'reads',
  fallback: 'text',
  file: 'reads',
  file_search_call: 'text',
  function_call: 'text',
  function_call_output: 'reads',
  image: 'reads',
  image_generation_call: 'reads',
  image_url: 'reads',
  input_audio: 'reads',
  input_file: 'reads',
  input_image: 'reads',
  input_text: 'text',
  item_reference: 'reads',
  local_shell_call: 'text',
  local_shell_call_output: 'text',
  mcp_approval_request: 'text',
  mcp_approval_response: 'text',
  mcp_call: 'text',
  mcp_list_tools: 'text',
  mcp_tool_listing: 'text',
  mcp_tool_result: 'text',
  mcp_tool_use: 'text',
  message: 'reads',
  output_text: 'text',
  program: 'text',
  program_output: 'text',
  reasoning: 'text',
  reasoning_text: 'text',
  redacted_thinking: 'text',
  refusal: 'text',
  search_result: 'text',
  server_tool_use: 'text',
  shell_call: 'text',
  shell_call_output: 'text',
  text: 'text',
  text_editor_code_execution_tool_result: 'text',
  thinking: 'text',
  tool_addition: 'text',
  tool_removal: 'text',
  tool_result: 'reads',
  tool_search_call: 'text',
  tool_search_output: 'tools',
  tool_search_tool_result: 'text',
  tool_use: 'text',
  web_fetch_tool_result: 'text',
  web_search_call: 'text',
  web_search_tool_result: 'text',
}

/** Reads types as the compiler sees them. */
class Types {
  readonly #checker: Checker

  constructor(checker: Checker) {
    this.#checker = checker
  }

  /** The types of a union. */
  parts(type: Type | undefined): readonly Type[] {
    if (!type) return []
    return type.isUnionType() ? (type.getTypes() ?? []).flatMap(part => this.parts(part)) : [type]
  }

  /** The names of the members of any part. */
  names(type: Type): Set<string> {
    return new Set(this.parts(type).flatMap(part => this.#checker.getPropertiesOfType(part).map(({ name }) => name)))
  }

  member(type: Type, name: string): readonly Type[] {
    return this.parts(type).flatMap(part => {
      const symbol = this.#checker.getPropertyOfType(part, name)
      return symbol ? this.parts(this.#checker.getTypeOfSymbol(symbol)) : []
    })
  }

  elements(types: readonly Type[]): readonly Type[] {
    return types
      .filter(type => this.#checker.isArrayType(type))
      .flatMap(type => this.#checker.getTypeArguments(type as never))
      .flatMap(type => this.parts(type))
  }

  literals(types: readonly Type[]): string[] {
    return types.flatMap(type => (type.isStringLiteralType() ? [type.value] : []))
  }
}

const api = new API({ cwd: fileURLToPath(new URL('../..', import.meta.url)) })
t.teardown(() => api.close())
const file = fileURLToPath(new URL('../sdk-requests.ts', import.meta.url))
const [project] = api
  .updateSnapshot({ openProject: fileURLToPath(new URL('../../tsconfig.json', import.meta.url)) })
  .getProjects()
if (!project) throw new Error('there is no project')
const { checker, program } = project
const types = new Types(checker)
const module_ = checker.getSymbolAtLocation(program.getSourceFile(file) as never)
const requests = checker.getDeclaredTypeOfSymbol(
  checker.getExportsOfModule(module_ as never).find(({ name }) => name === 'Requests') as never,
)
const requestOf = (name: string): Type => {
  const [first] = types.member(requests, name)
  if (!first) throw new Error(`there is no request of ${name}`)
  return checker.getTypeOfSymbol(checker.getPropertyOfType(requests, name) as never) as Type
}

for (const name of FORMAT_NAMES) {
  const request = requestOf(name)

  t.test(`${name}: every member of the SDKs has a decision`, t => {
    const members = [...types.names(request)].filter(member => !HEADERS.includes(member))
    t.ok(members.length > 20, 'the types are read')
    for (const member of members) t.not(decisionOn(name, member), 'unlisted', member)
    t.end()
  })

  t.test(`${name}: every member of a tool that the client runs passes`, t => {
    const tools = types.elements(types.member(request, 'tools'))
    t.ok(tools.length > 1, 'the types are read')
    for (const tool of tools) {
      const [type] = types.literals(types.member(tool, 'type'))
      const shown = { ...(type !== undefined && { type }), name: 'x' }
      if (isProviderTool(shown)) continue
      for (const each of [tool, ...types.member(tool, 'function'), ...types.member(tool, 'custom')])
        if (each.isObjectType())
          for (const member of types.names(each)) t.ok(TOOL_MEMBERS.has(member), `${type}: ${member}`)
    }
    t.end()
  })

  t.test(`${name}: every item and part of a conversation has a decision`, t => {
    const items = types.elements([...types.member(request, 'messages'), ...types.member(request, 'input')])
    const blocks = types.elements(
      items.flatMap(item => [...types.member(item, 'content'), ...types.member(item, 'output')]),
    )
    const found = new Set(types.literals([...items, ...blocks].flatMap(each => types.member(each, 'type'))))
    t.ok(found.size > 3, 'the types are read')
    for (const type of found) t.ok(PARTS[type], type)
    t.end()
  })
}

t.test('every beta of the SDKs has a decision', t => {
  const values = types.literals(types.elements(types.member(requestOf('messages'), 'betas')))
  t.ok(values.length > 40, 'the types are read')
  for (const value of values) t.ok(BETAS[betaName(value)], value)
  t.end()
})

const PROVIDERS = new URL('../../docs/providers.md', import.meta.url)
const spelled = (names: Iterable<string>): string => [...names].map(name => `\`${name}\``).join(', ')

t.test('docs/providers.md has the members and the betas', t => {
  const titles = { 'chat-completions': 'chat completions', responses: 'responses', messages: 'messages' }
  const rows = FORMAT_NAMES.map(name => [titles[name], spelled(PASSING[name].vendor), spelled(PASSING[name].others)])
  keepsTable(t, PROVIDERS, 'format', rows)
  keepsTable(t, PROVIDERS, 'members of tools', [[spelled(TOOL_MEMBERS)]])
  const known = PROVIDER_MEMBERS.map(({ provider, members, mayCost }) => [
    provider,
    spelled(members),
    mayCost ? 'yes' : 'no',
  ])
  keepsTable(t, PROVIDERS, 'provider', known)
  const removed = Object.keys(BETAS).filter(name => BETAS[name] === 'remove')
  keepsTable(t, PROVIDERS, 'removed', [[spelled(removed)]])
  for (const { members } of PROVIDER_MEMBERS)
    for (const member of members)
      t.equal(decisionOn('chat-completions', member), 'unlisted', `${member} needs \`passes\``)
  t.end()
})
