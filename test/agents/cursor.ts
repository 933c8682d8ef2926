/**
 * Sessions of a client that posts to `/v1/chat/completions` whatever shape a model's family has, as Cursor does: twenty turns with
 * tools in each of its three ways. The family changes at each turn. The providers refuse what providers refuse.
 */
import t from 'tap'
import { NANO, parseDecimal } from '../../core/money/credits.ts'
import type { Price } from '../../core/money/price.ts'
import { families, PNG, providers } from '../session-provider.ts'
import { scene } from '../scene.ts'

type Json = Record<string, any>

const TURNS = 20
const MODELS = ['a', 'b', 'c'] as const
const SCHEMA = { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] }
const PICTURE = `data:image/png;base64,${PNG}`

/** A step of the session: what the user said, or what the model said with its call and the result of that. */
type Step = { user: string } | { said: string; call?: { id: string; name: string; input: string } | undefined }

/** The three ways: how a body has the steps so far. */
const WAYS: Readonly<Record<string, (steps: readonly Step[]) => Json>> = {
  'chat completions': steps => ({
    messages: steps.flatMap((step): Json[] => {
      if ('user' in step) return [{ role: 'user', content: [{ type: 'text', text: step.user }] }]
      const { said, call } = step
      return [
        {
          role: 'assistant',
          content: said,
          ...(call && { tool_calls: [{ id: call.id, type: 'function', function: { name: call.name, arguments: call.input } }] }), // prettier-ignore
        },
        ...(call ? [{ role: 'tool', tool_call_id: call.id, content: `found ${call.id}` }] : []),
      ]
    }),
    // Some of its tools are flat all the same.
    tools: [
      { type: 'function', function: { name: 'grep', parameters: SCHEMA } },
      { type: 'function', name: 'list', parameters: SCHEMA },
    ],
  }),
  responses: steps => ({
    input: steps.flatMap((step): Json[] => {
      if ('user' in step) return [{ role: 'user', content: [{ type: 'input_text', text: step.user }, { type: 'input_image', image_url: PICTURE, detail: 'auto' }] }] // prettier-ignore
      const { said, call } = step
      return [
        { role: 'assistant', content: [{ type: 'output_text', text: said }] },
        ...(call
          ? [
              { type: 'function_call', call_id: call.id, name: call.name, arguments: call.input },
              { type: 'function_call_output', call_id: call.id, output: `found ${call.id}` },
            ]
          : []),
      ]
    }),
    tools: [
      { type: 'function', name: 'grep', parameters: SCHEMA, strict: false },
      { type: 'custom', name: 'list', description: 'Lists a folder.' },
    ],
    reasoning: { effort: 'medium' },
    max_output_tokens: 4096,
    store: false,
    include: ['reasoning.encrypted_content'],
  }),
  messages: steps => ({
    messages: steps.flatMap((step): Json[] => {
      if ('user' in step) return [{ role: 'user', content: step.user }]
      const { said, call } = step
      return [
        { role: 'assistant', content: [{ type: 'text', text: said }, ...(call ? [{ type: 'tool_use', id: call.id, name: call.name, input: JSON.parse(call.input) }] : [])] }, // prettier-ignore
        ...(call ? [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: [{ type: 'text', text: `found ${call.id}` }] }] }] : []), // prettier-ignore
      ]
    }),
    tools: [
      { name: 'grep', description: 'Searches.', input_schema: SCHEMA },
      { name: 'list', description: 'Lists a folder.', input_schema: SCHEMA },
    ],
    max_tokens: 4096,
  }),
}

/** What a stream of chat completions says. */
function collected(text: string): { said: string; calls: Json[]; finish: string | undefined } {
  const calls: Json[] = []
  let said = ''
  let finish: string | undefined
  for (const [, data = ''] of text.matchAll(/^data: (\{.*\})$/gm)) {
    const [choice] = (JSON.parse(data) as Json)['choices']
    said += choice?.delta?.content ?? ''
    finish ??= choice?.finish_reason ?? undefined
    for (const { index, id, function: called, custom } of choice?.delta?.tool_calls ?? []) {
      const call = (calls[index] ??= { id: '', name: '', input: '' })
      call['id'] ||= id ?? ''
      call['name'] ||= (called ?? custom)?.name ?? ''
      call['input'] += called?.arguments ?? custom?.input ?? ''
    }
  }
  return { said, calls, finish }
}

for (const [way, bodyOf] of Object.entries(WAYS))
  t.test(`twenty turns in the shape of ${way}, to the path of chat completions`, async t => {
    const { g, upstream } = await scene(t, families('large'))
    const price = g.gateway.config.keyTypes.get('famC')?.models.get('a')?.price as Price
    let turn = 0
    const made = providers(upstream, price, ({ body }) => {
      // One call a turn, of another tool each time.
      const asked = body.lastIndexOf(`turn ${turn}:`)
      if (asked === -1 || body.indexOf('found ', asked) !== -1) return undefined
      return { name: ['grep', 'list'][turn % 2] as string, input: { path: `p${turn}` } }
    })
    const key = await g.key('famC', 1000n)
    const steps: Step[] = []
    for (; turn < TURNS; turn++) {
      steps.push({ user: `turn ${turn}: look.` })
      let calls = 0
      for (let request = 0; request < 3; request++) {
        const body = { model: MODELS[turn % MODELS.length], stream: true, ...bodyOf(steps) }
        const answer = await g.call('/v1/chat/completions', { key, body })
        t.equal(answer.status, 200, `turn ${turn}: ${answer.text}`)
        t.notMatch(answer.text, /event: |response\.completed/, 'the answer is one of chat completions')
        const { said, calls: made, finish } = collected(answer.text)
        t.match(said, /^said n\d+$/)
        const [call] = made
        t.equal(made.length, call ? 1 : 0)
        t.equal(finish, call ? 'tool_calls' : 'stop')
        steps.push({ said, call: call as never })
        if (!call) break
        calls++
        t.match(call, { name: ['grep', 'list'][turn % 2], input: new RegExp(`"path":\\s*"p${turn}"`) })
      }
      t.equal(calls, 1, `turn ${turn}: its tool ran once`)
    }
    t.equal(made.refused, 0, 'no provider got what is not its own')
    const { balance } = await g.balance(key)
    await g.settled(key)
    t.equal(1000n * NANO - (parseDecimal(String(balance)) ?? 0n), made.billed, 'the charges equal the bills')
  })
