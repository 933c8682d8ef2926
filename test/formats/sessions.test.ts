import t from 'tap'
import { FORMATS, type FormatName } from '../../core/formats/index.ts'
import { withoutOwn } from '../../core/formats/own-values.ts'
import type { ModelTraits } from '../../core/formats/translate/neutral.ts'
import { bodyOf } from 'tollgate/testing'
import { become } from './become.ts'
import { refusalOf } from './provider-rules.ts'

/**
 * What agents send after an hour, in the words of another format: each row is a request, and what must be true of what
 * its provider gets.
 */

const CHAT = 'chat-completions'
const PNG = 'iVBORw0KGgo='
const JPEG = '/9j/4AAQ'
const user = { role: 'user', content: 'go on' }
const named = (from: FormatName, to: FormatName): string => `${from} to ${to}`

interface Row {
  readonly about: string
  readonly from: FormatName
  /** All other formats by default. */
  readonly to?: readonly FormatName[]
  readonly body: object
  readonly traits?: Partial<ModelTraits>
  readonly headers?: Record<string, string>
  /** What the provider gets, by format or for all of them. */
  readonly sends?: RegExp | Partial<Record<FormatName, RegExp>>
  readonly lacks?: RegExp
  /** Names in `x-tollgate-dropped`. */
  readonly names?: readonly string[]
  /** Nothing else is named. */
  readonly only?: boolean
  readonly refuses?: RegExp
  readonly code?: string
}

const chat = (members: object): object => ({ messages: [user], ...members })
const responses = (members: object): object => ({ input: [user], ...members })
const messages = (members: object): object => ({ max_tokens: 100, messages: [user], ...members })
const history = (...items: object[]): object => ({ input: [{ role: 'user', content: 'begin' }, ...items, user] })
const blocks = (...content: object[]): object => ({
  max_tokens: 100,
  messages: [{ role: 'user', content: 'begin' }, { role: 'assistant', content }, user],
})
const said = { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'said' }] }
const tool = { name: 'f', input_schema: { type: 'object', properties: {} } }

const THINKING: Row[] = [
  {
    about: 'thinking that is disabled becomes no effort',
    from: 'messages',
    body: messages({ thinking: { type: 'disabled' } }),
    sends: { [CHAT]: /"reasoning_effort":"none"/, responses: /"reasoning":\{"effort":"none"\}/ },
  },
  {
    about: 'thinking that is disabled becomes the least effort of a model that always reasons',
    from: 'messages',
    body: messages({ thinking: { type: 'disabled' } }),
    traits: { thinkingOff: false },
    sends: { [CHAT]: /"reasoning_effort":"low"/, responses: /"effort":"low"/ },
    names: ['reasoning_effort'],
  },
  {
    about: 'an effort of none becomes the least effort of a model that always reasons',
    from: CHAT,
    to: ['messages'],
    body: chat({ reasoning_effort: 'none' }),
    traits: { thinkingOff: false },
    sends: /"output_config":\{"effort":"low"\}/,
    lacks: /"thinking"/,
    names: ['reasoning_effort'],
  },
  ...[{ reasoning: { enabled: false } }, { thinking: { type: 'disabled' } }, { enable_thinking: false }].map(
    (members): Row => ({
      about: `${Object.keys(members)[0]} of a compatible client turns reasoning off`,
      from: CHAT,
      to: ['messages'],
      body: chat(members),
      sends: /"thinking":\{"type":"disabled"\}/,
      only: true,
    }),
  ),
  ...[{ reasoning: 'high' }, { thinking: { type: 'sometimes' } }, { enable_thinking: 'no' }].map((members): Row => ({
    about: `${JSON.stringify(members)} is named: nobody can read it`,
    from: CHAT,
    to: ['messages'],
    body: chat(members),
    lacks: /"thinking"/,
    names: Object.keys(members),
  })),
  {
    about: 'a model that does not reason is not asked to stop it',
    from: 'messages',
    body: messages({ thinking: { type: 'disabled' } }),
    traits: { reasoning: 'none' },
    lacks: /effort/,
    only: true,
  },
  {
    about: 'a model that does not reason is not asked to reason',
    from: 'messages',
    body: messages({ thinking: { type: 'adaptive' }, output_config: { effort: 'high' } }),
    traits: { reasoning: 'none' },
    lacks: /effort|summary|encrypted/,
    names: ['reasoning_effort'],
  },
  {
    about: 'a forced tool leaves it to a model that always reasons',
    from: CHAT,
    to: ['messages'],
    body: chat({
      reasoning_effort: 'high',
      tool_choice: 'required',
      tools: [{ type: 'function', function: { name: 'f', parameters: {} } }],
    }),
    traits: { thinkingOff: false },
    sends: /"effort":"high"/,
    lacks: /"thinking"/,
    only: true,
  },
  {
    about: 'a budget that is too small leaves it to a model that always reasons',
    from: CHAT,
    to: ['messages'],
    body: chat({ reasoning_effort: 'high', max_tokens: 1000 }),
    traits: { thinkingOff: false, thinking: 'budget' },
    lacks: /"thinking"/,
  },
  {
    about: 'sampling is dropped for a model that refuses it',
    from: CHAT,
    body: chat({ temperature: 0.7, top_p: 0.9 }),
    traits: { sampling: false },
    lacks: /temperature|top_p/,
    names: ['temperature', 'top_p'],
  },
  {
    about: 'and so is top_k',
    from: 'messages',
    body: messages({ temperature: 0.7, top_p: 0.9, top_k: 3 }),
    traits: { sampling: false },
    lacks: /temperature|top_p|top_k/,
    names: ['temperature', 'top_p', 'top_k'],
  },
]

const EDGES: Row[] = [
  {
    about: 'an output limit below the least goes up, and is named',
    from: 'messages',
    to: ['responses'],
    body: messages({ max_tokens: 1 }),
    sends: /"max_output_tokens":16\}/,
    names: ['max_tokens'],
  },
  {
    about: 'in the words of the client',
    from: CHAT,
    to: ['responses'],
    body: chat({ max_completion_tokens: 3 }),
    sends: /"max_output_tokens":16}/,
    names: ['max_completion_tokens'],
  },
  { about: 'the least itself stays', from: CHAT, to: ['responses'], body: chat({ max_tokens: 16 }), only: true },
  {
    about: 'image/jpg is image/jpeg',
    from: CHAT,
    body: chat({
      messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: `data:image/jpg;base64,AAAA` } }] }],
    }),
    sends: /image\/jpeg/,
    lacks: /image\/jpg/,
  },
  {
    about: 'an image has the type that its data begins with',
    from: 'responses',
    body: {
      input: [{ role: 'user', content: [{ type: 'input_image', image_url: `data:image/png;base64,${JPEG}` }] }],
    },
    sends: /image\/jpeg/,
  },
  {
    about: 'whatever case its type is in',
    from: 'messages',
    body: messages({
      messages: [
        { role: 'user', content: [{ type: 'image', source: { type: 'base64', media_type: 'IMAGE/PNG', data: PNG } }] },
      ],
    }),
    sends: /image\/png/,
  },
  {
    about: 'arguments that are an object are the object',
    from: CHAT,
    body: {
      messages: [
        user,
        {
          role: 'assistant',
          tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: { a: 1 } } }],
        },
        { role: 'tool', tool_call_id: 'c', content: 'x' },
      ],
    },
    sends: { messages: /"input":\{"a":1\}/, responses: /"arguments":"\{\\"a\\":1\}"/ },
  },
  {
    about: 'input that is JSON text is the object',
    from: 'messages',
    to: [CHAT],
    body: {
      max_tokens: 20,
      messages: [
        user,
        { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'f', input: '{"a":1}' }] },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c' }] },
      ],
    },
    sends: /"arguments":"\{\\"a\\":1\}"/,
  },
]

const HISTORY: Row[] = [
  {
    about: 'a shell call with its output becomes a tool call with its result',
    from: 'responses',
    body: history(
      { type: 'local_shell_call', id: 'lsh_1', call_id: 'call_1', status: 'completed', action: { command: ['ls'] } },
      { type: 'local_shell_call_output', id: 'call_1', output: 'a.txt' },
    ),
    sends: {
      messages: /"name":"local_shell","input":\{"action".*"tool_result".*a\.txt/,
      [CHAT]: /"role":"tool".*a\.txt/,
    },
    only: true,
  },
  {
    about: 'an output that names the item of its call finds the call',
    from: 'responses',
    body: history(
      { type: 'local_shell_call', id: 'lsh_1', call_id: 'call_1', action: { command: ['ls'] } },
      { type: 'local_shell_call_output', id: 'lsh_1', output: 'a.txt' },
    ),
    sends: /a\.txt/,
    only: true,
  },
  {
    about: 'so do shells of the newer kind, patches, and tools that do not exist yet',
    from: 'responses',
    body: history(
      { type: 'shell_call', call_id: 'c1', action: { commands: ['ls'] } },
      { type: 'shell_call_output', call_id: 'c1', output: [{ stdout: 'out', stderr: '', outcome: { type: 'exit' } }] },
      { type: 'apply_patch_call', call_id: 'c2', status: 'completed', operation: { type: 'delete_file', path: 'p' } },
      { type: 'apply_patch_call_output', call_id: 'c2', status: 'failed', output: 'no file' },
      { type: 'teleport_call', call_id: 'c3', to: 'moon' },
      { type: 'teleport_call_output', call_id: 'c3', output: { landed: true } },
    ),
    sends: /shell.*out.*apply_patch.*no file.*teleport.*moon.*landed/,
    only: true,
  },
  {
    about: 'the screenshot of a computer call becomes an image',
    from: 'responses',
    to: ['messages'],
    body: history(
      { type: 'computer_call', id: 'cu_1', call_id: 'c1', action: { type: 'screenshot' }, pending_safety_checks: [] },
      {
        type: 'computer_call_output',
        call_id: 'c1',
        output: { type: 'computer_screenshot', image_url: `data:image/png;base64,${PNG}` },
      },
    ),
    sends: /"tool_result".*"type":"image"/,
  },
  {
    about: 'a screenshot that is stored at a provider is dropped',
    from: 'responses',
    body: history(
      { type: 'computer_call', id: 'cu_1', call_id: 'c1', action: { type: 'screenshot' } },
      { type: 'computer_call_output', call_id: 'c1', output: { type: 'computer_screenshot', file_id: 'file_1' } },
      said,
    ),
    names: ['computer_screenshot'],
  },
  {
    about: 'a configuration update is dropped',
    from: 'responses',
    body: history({ type: 'configuration_update', reasoning: { effort: 'low' } }),
    names: ['configuration_update'],
  },
  {
    about: 'an unknown item is carried as its text',
    from: 'responses',
    body: history({ type: 'agent_message', content: [{ type: 'input_text', text: 'from a friend' }] }),
    sends: /from a friend/,
    names: ['agent_message'],
  },
  {
    about: 'an unknown item without text is dropped from the past',
    from: 'responses',
    body: history({ type: 'riddle', x: 1 }, said),
    names: ['riddle'],
  },
  {
    about: 'and refused in the last turn',
    from: 'responses',
    body: { input: [user, { type: 'riddle', x: 1 }] },
    refuses: /^input\[1\]\.type: /,
  },
  {
    about: 'tools that a search has found are declared',
    from: 'responses',
    body: history({
      type: 'tool_search_output',
      call_id: 'c',
      tools: [{ type: 'function', name: 'found', parameters: { type: 'object', properties: {} } }],
    }),
    sends: /"name":"found"/,
  },
  {
    about: 'a fallback block is dropped',
    from: 'messages',
    body: blocks({ type: 'fallback', from: { model: 'a' }, to: { model: 'b' } }, { type: 'text', text: 'a' }),
    names: ['fallback'],
  },
  {
    about: 'an unknown block is carried as its text, or dropped from the past',
    from: 'messages',
    body: blocks({ type: 'poem', text: 'roses' }, { type: 'riddle' }, { type: 'tool_addition', tool: { name: 'x' } }),
    sends: /roses/,
    names: ['poem', 'riddle', 'tool_addition'],
  },
  {
    about: 'an unknown part is carried as its text, or dropped from the past',
    from: CHAT,
    body: {
      messages: [
        {
          role: 'user',
          content: [
            { type: 'poem', text: 'roses' },
            { type: 'video_url', video_url: { url: 'x' } },
          ],
        },
        { role: 'assistant', content: 'hm' },
        user,
      ],
    },
    sends: /roses/,
    names: ['poem', 'video_url'],
  },
  {
    about: 'sound is dropped from the past',
    from: CHAT,
    body: {
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'hear' },
            { type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } },
          ],
        },
        { role: 'assistant', content: 'hm' },
        user,
      ],
    },
    sends: /hear/,
    lacks: /AAAA/,
    names: ['audio'],
  },
  {
    about: 'and refused in the last turn',
    from: CHAT,
    body: chat({ messages: [{ role: 'user', content: [{ type: 'input_audio', input_audio: { data: 'AAAA' } }] }] }),
    refuses: /sound/,
  },
  {
    about: 'a file behind a URL is dropped from the past',
    from: 'responses',
    to: [CHAT],
    body: {
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'read' },
            { type: 'input_file', file_url: 'https://x/y' },
          ],
        },
        said,
        user,
      ],
    },
    names: ['file'],
  },
  {
    about: 'a file at another provider is dropped from the past',
    from: 'messages',
    body: {
      max_tokens: 20,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'see' },
            { type: 'image', source: { type: 'file', file_id: 'f' } },
          ],
        },
        { role: 'assistant', content: 'hm' },
        user,
      ],
    },
    names: ['image'],
  },
  {
    about: 'a compaction that a provider made is refused with a code',
    from: 'responses',
    body: history({ type: 'compaction', id: 'cmp_1', encrypted_content: 'gAAAA' }),
    refuses: /only the provider which made it can read/,
    code: 'compaction_bound',
  },
  {
    about: 'and so is one of messages that cannot be read',
    from: 'messages',
    body: blocks({ type: 'compaction', content: null, encrypted_content: 'x' }),
    refuses: /only the provider which made it can read/,
    code: 'compaction_bound',
  },
  {
    about: 'one that can be read is carried',
    from: 'messages',
    body: blocks({ type: 'compaction', content: 'the story so far' }),
    sends: /the story so far/,
  },
  {
    about: 'a request for a compaction is refused by name',
    from: 'messages',
    body: messages({ compaction: { type: 'summarize' } }),
    refuses: /^compaction: /,
  },
  { about: 'an empty one asks for nothing', from: 'messages', body: messages({ compaction: null }), only: true },
  {
    about: 'a request that only fills the cache is refused by name',
    from: 'responses',
    body: responses({ prompt_cache_options: { prewarm: true } }),
    refuses: /^prompt_cache_options\.prewarm: /,
  },
]

const LOSSES: Row[] = [
  {
    about: 'members of tools',
    from: 'messages',
    body: messages({
      tools: [
        {
          ...tool,
          input_examples: [{}],
          allowed_callers: ['direct'],
          defer_loading: true,
          eager_input_streaming: true,
        },
      ],
    }),
    names: ['input_examples', 'allowed_callers', 'defer_loading', 'eager_input_streaming'].map(
      name => `tools[].${name}`,
    ),
    only: true,
  },
  {
    about: 'members of tools of another format',
    from: 'responses',
    body: responses({
      tools: [
        {
          type: 'function',
          name: 'f',
          parameters: { type: 'object', properties: {} },
          async: true,
          output_schema: { type: 'object' },
        },
        { type: 'custom', name: 'g', async: true },
        { type: 'namespace', name: 'n', tools: [{ type: 'function', name: 'h', parameters: {}, defer_loading: true }] },
      ],
    }),
    names: ['tools[].async', 'tools[].output_schema', 'tools[].tools[].defer_loading'],
  },
  {
    about: 'how the model is to reason',
    from: 'responses',
    body: responses({ reasoning: { effort: 'low', mode: 'pro', context: 'all_turns' } }),
    names: ['reasoning.mode', 'reasoning.context'],
    only: true,
  },
  {
    about: 'how it is to think',
    from: 'messages',
    body: messages({
      thinking: { type: 'between_tools', block_binding: { mode: 'strict' } },
      output_config: { effort: 'low', task_budget: { type: 'tokens', total: 9 } },
    }),
    names: ['thinking.between_tools', 'thinking.block_binding', 'output_config.task_budget'],
  },
  {
    about: 'transformations of images, also in results',
    from: 'messages',
    body: messages({
      messages: [
        user,
        { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'f', input: {} }] },
        {
          role: 'user',
          content: [
            {
              type: 'tool_result',
              tool_use_id: 'c',
              content: [
                {
                  type: 'image',
                  source: { type: 'base64', media_type: 'image/png', data: PNG },
                  transformations: { oversized_image: 'error' },
                },
              ],
            },
          ],
        },
      ],
    }),
    names: ['messages[].content[].content[].transformations'],
  },
  {
    about: 'breakpoints of the cache',
    from: 'responses',
    body: {
      input: [
        { role: 'user', content: [{ type: 'input_text', text: 'x', prompt_cache_breakpoint: { mode: 'explicit' } }] },
      ],
    },
    names: ['input[].content[].prompt_cache_breakpoint'],
    only: true,
  },
  {
    about: 'breakpoints of a chat client',
    from: CHAT,
    body: chat({
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'x', prompt_cache_breakpoint: { mode: 'explicit' } }] },
      ],
    }),
    names: ['messages[].content[].prompt_cache_breakpoint'],
    only: true,
  },
  {
    about: 'what asks for nothing is not named',
    from: 'messages',
    body: messages({ tools: [{ ...tool, defer_loading: false, input_examples: [], allowed_callers: null }] }),
    only: true,
  },
  {
    about: 'the end of a long path',
    from: CHAT,
    to: ['messages'],
    body: chat({
      response_format: {
        type: 'json_schema',
        json_schema: {
          name: 'n',
          schema: { type: 'object', properties: { ['p'.repeat(300)]: { type: 'integer', minimum: 3 } } },
        },
      },
    }),
    names: [`${'p'.repeat(64 - '.minimum'.length)}.minimum`],
  },
]

const MARK = { cache_control: { type: 'ephemeral' } }
const HOUR = { cache_control: { type: 'ephemeral', ttl: '1h' } }
const text = (said: string, more: object = {}): object => ({ type: 'text', text: said, ...more })

const MARKS: Row[] = [
  {
    about: 'marks of parts, messages, tools and the request are carried',
    from: CHAT,
    to: ['messages'],
    body: {
      ...HOUR,
      tools: [{ type: 'function', function: { name: 'f', parameters: {} }, ...HOUR }],
      messages: [{ role: 'system', content: [text('rules', HOUR)] }, { role: 'user', content: 'hi', ...HOUR }, user],
    },
    sends:
      /"rules","cache_control":\{"type":"ephemeral","ttl":"1h"\}.*"hi","cache_control".*\{\}\},"cache_control".*\],"cache_control"/,
    only: true,
  },
  {
    about: 'a result is marked as a whole',
    from: CHAT,
    to: ['messages'],
    body: {
      messages: [
        user,
        { role: 'assistant', tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }] },
        { role: 'tool', tool_call_id: 'c', content: [text('x', MARK)] },
      ],
    },
    sends: /"type":"tool_result","tool_use_id":"c","content":\[\{"type":"text","text":"x"\}\],"cache_control"/,
  },
  ...['', ' ', [], [text('')]].map((content): Row => ({
    about: `the mark of a message with calls and the text ${JSON.stringify(content)} is one of its last call`,
    from: CHAT,
    to: ['messages'],
    body: {
      messages: [
        user,
        {
          role: 'assistant',
          content,
          tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }],
          ...MARK,
        },
        { role: 'tool', tool_call_id: 'c', content: 'x' },
      ],
    },
    sends: /"type":"tool_use","id":"c","name":"f","input":\{\},"cache_control"/,
    only: true,
  })),
  ...[text('a', { cache_control: { type: 'ephemeral', ttl: '9h' } }), text(' ', MARK)].map((part): Row => ({
    about: `the mark of ${JSON.stringify(part)} is named: the provider takes none such`,
    from: CHAT,
    to: ['messages'],
    body: chat({ messages: [{ role: 'user', content: [text('a'), part] }] }),
    names: ['cache_control'],
  })),
  {
    about: 'more marks than the provider accepts: the last four stay',
    from: CHAT,
    to: ['messages'],
    body: chat({ messages: [{ role: 'user', content: ['a', 'b', 'c', 'd', 'e'].map(said => text(said, MARK)) }] }),
    sends: /"text":"a"\},\{"type":"text","text":"b","cache_control"/,
    names: ['cache_control'],
  },
  {
    about: 'marks are named where there is no place for them',
    from: CHAT,
    to: ['responses'],
    body: chat({ messages: [{ role: 'user', content: [text('a', MARK)] }] }),
    lacks: /cache_control/,
    names: ['cache_control'],
  },
  {
    about: 'a client that names a cache gets marks',
    from: CHAT,
    to: ['messages'],
    body: chat({ prompt_cache_key: 'k' }),
    sends: /cache_control/,
  },
  {
    about: 'unless it sets its own',
    from: CHAT,
    to: ['messages'],
    body: chat({ prompt_cache_key: 'k', messages: [{ role: 'user', content: [text('a', MARK), text('b')] }] }),
    sends: /"text":"a","cache_control":\{"type":"ephemeral"\}\},\{"type":"text","text":"b"\}/,
  },
  {
    about: 'or the model says client',
    from: CHAT,
    to: ['messages'],
    body: chat({ prompt_cache_key: 'k' }),
    traits: { cacheMarks: 'client' },
    lacks: /cache_control/,
  },
  {
    about: 'with always, every request is marked',
    from: CHAT,
    to: ['messages'],
    body: chat({}),
    traits: { cacheMarks: 'always' },
    sends: /cache_control/,
  },
  {
    about: 'by default, a request without a name is not',
    from: CHAT,
    to: ['messages'],
    body: chat({}),
    lacks: /cache_control/,
  },
]

for (const [kind, rows] of Object.entries({ THINKING, EDGES, HISTORY, LOSSES, MARKS })) {
  t.test(kind.toLowerCase(), t => {
    for (const row of rows) {
      const { about, from, body, headers = {}, traits, sends, lacks, names = [], only, refuses, code } = row
      for (const to of row.to ?? (Object.keys(FORMATS) as FormatName[]).filter(name => name !== from)) {
        const { sent, dropped = '', refused, ...fate } = become(from, to, JSON.stringify(body), headers, traits)
        const title = `${about} (${named(from, to)})`
        if (refuses) {
          t.match(refused, refuses, title)
          if (code !== undefined) t.equal(fate.code, code, title)
          continue
        }
        t.equal(refused, undefined, title)
        const sign = sends instanceof RegExp ? sends : sends?.[to]
        if (sign) t.match(sent, sign, title)
        if (lacks) t.notMatch(sent, lacks, title)
        const found = dropped === '' ? [] : dropped.split(', ')
        if (only === true) t.strictSame(found.toSorted(), names.toSorted(), title)
        else for (const name of names) t.ok(found.includes(name), `${title}: ${name} is named in ${dropped}`)
        t.equal(refusalOf(to, JSON.parse(sent ?? '{}')), undefined, `${title}: the provider accepts it`)
      }
    }
    t.end()
  })
}

const SEAL = `tollgate.responses.${Buffer.from(JSON.stringify({ text: 'hm', data: { encrypted: 'x' } })).toString('base64url')}`
const WRAPPED = `tgid_${Buffer.from('call.1').toString('base64url')}`

/** Requests in the format of their provider, with values of the gateway's own, and what the provider gets. */
const NATIVE: readonly { about: string; format: FormatName; body: object; sent: object; names?: string }[] = [
  {
    about: 'reasoning of another format is left out of a turn',
    format: 'messages',
    body: {
      messages: [
        user,
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'hm', signature: SEAL },
            { type: 'text', text: 'a' },
          ],
        },
        user,
      ],
      thinking: { type: 'enabled', budget_tokens: 1024 },
    },
    sent: {
      messages: [user, { role: 'assistant', content: [{ type: 'text', text: 'a' }] }, user],
      thinking: { type: 'enabled', budget_tokens: 1024 },
    },
    names: 'reasoning',
  },
  {
    about: 'a turn that has nothing else goes, and so do reasoning without a signature and redacted reasoning',
    format: 'messages',
    body: {
      messages: [
        user,
        { role: 'assistant', content: [{ type: 'thinking', thinking: 'hm', signature: 'tollgate.none' }] },
        {
          role: 'assistant',
          content: [
            { type: 'redacted_thinking', data: SEAL },
            { type: 'text', text: 'a' },
          ],
        },
        user,
      ],
    },
    sent: { messages: [user, { role: 'assistant', content: [{ type: 'text', text: 'a' }] }, user] },
    names: 'reasoning',
  },
  {
    about: 'a running turn that has lost its reasoning has no budget for it',
    format: 'messages',
    body: {
      thinking: { type: 'enabled', budget_tokens: 1024 },
      messages: [
        user,
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'hm', signature: SEAL },
            { type: 'tool_use', id: WRAPPED, name: 'f', input: {} },
          ],
        },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: WRAPPED, content: 'x' }] },
      ],
    },
    sent: {
      messages: [
        user,
        {
          role: 'assistant',
          content: [{ type: 'tool_use', id: 'call_e8b7b7b3793f991dd79d37cb', name: 'f', input: {} }],
        },
        {
          role: 'user',
          content: [{ type: 'tool_result', tool_use_id: 'call_e8b7b7b3793f991dd79d37cb', content: 'x' }],
        },
      ],
    },
    names: 'reasoning, thinking',
  },
  {
    about: 'items lose ids and reasoning of the gateway’s own',
    format: 'responses',
    body: {
      input: [
        user,
        { type: 'reasoning', id: 'rs_1_0', summary: [], encrypted_content: SEAL },
        { type: 'reasoning', id: 'rs_1_1', summary: [] },
        { type: 'reasoning', id: 'rs_68af', summary: [], encrypted_content: 'gAAA' },
        { ...said, id: 'msg_1_2' },
        { ...said, id: 'msg_68af' },
        { type: 'function_call', id: 'fc_1_3', call_id: WRAPPED, name: 'f', arguments: '{}' },
        { type: 'function_call_output', call_id: WRAPPED, output: '' },
      ],
    },
    sent: {
      input: [
        user,
        { type: 'reasoning', id: 'rs_68af', summary: [], encrypted_content: 'gAAA' },
        said,
        { ...said, id: 'msg_68af' },
        { type: 'function_call', call_id: 'call.1', name: 'f', arguments: '{}' },
        { type: 'function_call_output', call_id: 'call.1', output: '' },
      ],
    },
    names: 'reasoning',
  },
  {
    about: 'messages lose the reasoning of another format, and keep the provider’s own',
    format: CHAT,
    body: {
      messages: [
        user,
        {
          role: 'assistant',
          content: 'a',
          reasoning_content: 'hm',
          reasoning_details: [{ type: 'reasoning.encrypted', data: SEAL }],
        },
        { role: 'assistant', content: 'b', reasoning_content: 'own', reasoning_details: [{ data: 'vendor' }] },
        {
          role: 'assistant',
          tool_calls: [{ id: WRAPPED, type: 'function', function: { name: 'f', arguments: '{}' } }],
        },
        { role: 'tool', tool_call_id: WRAPPED, content: '' },
      ],
    },
    sent: {
      messages: [
        user,
        { role: 'assistant', content: 'a' },
        { role: 'assistant', content: 'b', reasoning_content: 'own', reasoning_details: [{ data: 'vendor' }] },
        {
          role: 'assistant',
          tool_calls: [{ id: 'call.1', type: 'function', function: { name: 'f', arguments: '{}' } }],
        },
        { role: 'tool', tool_call_id: 'call.1', content: '' },
      ],
    },
    names: 'reasoning',
  },
]

t.test('values of the gateway’s own never reach a provider of the client’s format', async t => {
  for (const { about, format, body, sent, names } of NATIVE) {
    const cleaned = await withoutOwn(bodyOf(Buffer.from(JSON.stringify(body))), format)
    t.strictSame(JSON.parse(String(Buffer.concat(cleaned?.parts ?? []))), sent, about)
    t.equal(String(cleaned?.dropped), names ?? '', about)
  }
  t.end()
})

t.test('all else of such a request keeps its bytes', async t => {
  const before = `{ "max_tokens":1.0, "messages" : [{"role":"user", "content":"\\u0061 tollgate.x"},{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"${SEAL}"},{"type":"tool_use","id":"t","name":"f","input":{"big":12345678901234567890}}]}] }`
  const cleaned = await withoutOwn(bodyOf(Buffer.from(before)), 'messages')
  t.equal(
    String(Buffer.concat(cleaned?.parts ?? [])),
    `{ "max_tokens":1.0, "messages" : [{"role":"user", "content":"\\u0061 tollgate.x"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"big":12345678901234567890}}]}] }`,
  )
  t.equal(await withoutOwn(bodyOf(Buffer.from('{"messages":[{"role":"user","content":"hi"}]}')), 'messages'), undefined)
  t.end()
})
