import t from 'tap'
import { UsageTally } from '../../core/formats/index.ts'
import { format, MESSAGES, RESPONSES } from '../plugins/facts.ts'

/** How replies show the calls of tools that the provider runs, each of which a further pass of the model follows. */

/** Returns the rounds that events of a format show. */
function rounds(path: string, events: readonly object[]): readonly unknown[] {
  const tally = new UsageTally(format(path))
  for (const event of events) {
    const reading = format(path).read(event)
    tally.observe(reading)
    if (reading.usage) tally.addUsage(reading.usage)
  }
  return tally.rounds.map(({ kind, resultBytes, ifAsked }) => {
    if (resultBytes !== undefined) return [kind, resultBytes]
    return ifAsked ? `${kind} if asked` : kind
  })
}

/** Returns the calls of a responses stream of which only the end shows whether they are billed. */
function open(events: readonly object[]): unknown {
  const tally = new UsageTally(format(RESPONSES))
  for (const event of events) tally.observe(format(RESPONSES).read(event))
  return tally.openCalls
}

const block = (content_block: object, index = 0): object => ({ type: 'content_block_start', index, content_block })
const call = (id: string, name = 'web_search'): object => block({ type: 'server_tool_use', id, name, input: {} })
const added = (item: object, output_index = 0): object => ({ type: 'response.output_item.added', output_index, item })
const done = (item: object, output_index = 0): object => ({ type: 'response.output_item.done', output_index, item })

t.test('a messages stream shows a call when it begins, and its results when they arrive', t => {
  const content = [{ type: 'web_search_result', url: 'https://example.com', encrypted_content: 'x'.repeat(100) }]
  const result = block({ type: 'web_search_tool_result', tool_use_id: 'a', content })
  t.same(rounds(MESSAGES, [call('a')]), ['webSearch'])
  t.same(rounds(MESSAGES, [call('a'), result]), [['webSearch', JSON.stringify(content).length]])
  t.same(rounds(MESSAGES, [call('a'), call('b')]), ['webSearch', 'webSearch'])
  t.equal(rounds(MESSAGES, [call(''), result, call(''), call('')]).length, 4, 'whatever ids an upstream gives them')
  t.same(rounds(MESSAGES, [result]), [['webSearch', JSON.stringify(content).length]], 'a result without a call')
  t.same(rounds(MESSAGES, [call('a', 'web_fetch'), call('b', 'bash_code_execution')]), ['webFetch', 'codeExecution'])
  t.same(rounds(MESSAGES, [block({ type: 'mcp_tool_use', id: 'm', name: 'f', server_name: 's' })]), ['mcp'])
  t.same(rounds(MESSAGES, [call('a', 'advisor')]), ['advisor'])
  t.same(rounds(MESSAGES, [call('a', 'tool_search_tool_bm25'), block({ type: 'compaction' }, 1)]), ['reread', 'reread'])
  t.same(rounds(MESSAGES, [block({ type: 'tool_use', id: 't', name: 'f' })]), [])
  const usage = { type: 'message_delta', delta: {}, usage: { input_tokens: 9000, output_tokens: 5 } }
  t.same(rounds(MESSAGES, [call('a'), usage]), [], 'the reported input contains it')
  t.same(rounds(MESSAGES, [call('a'), usage, call('b'), usage]), ['webSearch'], 'which has not grown since')
  t.end()
})

t.test('a responses stream shows a call when it begins, whether it will be billed or not', t => {
  const search = { type: 'web_search_call', id: 'w', status: 'in_progress' }
  t.same(rounds(RESPONSES, [added(search)]), ['webSearch'])
  const opened = { ...search, status: 'completed', action: { type: 'open_page', url: 'https://example.com' } }
  t.same(rounds(RESPONSES, [added(search), done(opened)]), ['webSearch'])
  t.same(rounds(RESPONSES, [added(search), done({ ...search, id: 'other' })]), ['webSearch'], 'its id may change')
  t.same(rounds(RESPONSES, [added(search, 0), added(search, 1)]), ['webSearch', 'webSearch'])
  const mcp = { type: 'mcp_call', id: 'm', output: 'x'.repeat(98) }
  t.same(rounds(RESPONSES, [added({ type: 'mcp_call', id: 'm' }), done(mcp)]), [['mcp', 100]])
  const listed = { ...search, results: [{ url: 'https://example.com' }] }
  t.same(rounds(RESPONSES, [done(listed)]), ['webSearch'], 'the model reads more than a search lists')
  const disguised = { type: 'custom_tool_call', id: 'x', name: 'x_keyword_search', input: '{}' }
  t.same(rounds(RESPONSES, [added(disguised)]), ['webSearch if asked'])
  t.same(rounds(RESPONSES, [added({ ...disguised, name: 'apply_patch' })]), [])
  t.same(rounds(RESPONSES, [added({ type: 'tool_search_call' })]), ['reread'])
  t.same(rounds(RESPONSES, [added({ type: 'tool_search_call', execution: 'client' })]), [])
  const files = { type: 'file_search_call', id: 'f', results: [{ text: 'found' }] }
  t.same(rounds(RESPONSES, [done(files)]), [['fileSearch', JSON.stringify(files.results).length]])
  t.same(rounds(RESPONSES, [done({ type: 'code_interpreter_call', id: 'c', outputs: null })]), ['codeExecution'])
  const ofClients = ['function_call', 'custom_tool_call', 'local_shell_call', 'apply_patch_call', 'computer_call']
  t.same(
    rounds(
      RESPONSES,
      ofClients.map((type, nth) => added({ type, id: type }, nth)),
    ),
    [],
  )
  t.same(rounds(RESPONSES, [added({ type: 'shell_call', environment: { type: 'local' } })]), [])
  t.same(rounds(RESPONSES, [added({ type: 'shell_call', environment: { type: 'container' } })]), ['codeExecution'])
  t.same(rounds(RESPONSES, [added({ type: 'shell_call', id: 's' })]), ['codeExecution if asked'])
  t.same(open([added(search)]), { webSearch: 1 }, 'it is not known yet whether it is billed')
  t.equal(open([added(search), done(opened)]), undefined)
  t.equal(open([added({ type: 'mcp_call', id: 'm' })]), undefined, 'it is billed')
  const whole = { type: 'response.completed', response: { output: [search] } }
  t.same(rounds(RESPONSES, [added(search), whole]), ['webSearch'], 'the last event lists it again')
  t.same(
    rounds(RESPONSES, [{ object: 'response', output: [search, mcp] }]),
    ['webSearch', ['mcp', 100]],
    'a JSON reply',
  )
  t.end()
})
