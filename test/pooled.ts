/** A key type that may use two providers, and requests for it. */
import type { Test } from 'tap'
import { type Options, startGateway, type TestGateway } from './gateway.ts'
import type { Edit, GatewayFile } from './gateway-file.ts'
import { json, ScriptedUpstream } from './upstream.ts'

export const CHAT = '/v1/chat/completions'
export const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
export const USAGE = { prompt_tokens: 10, completion_tokens: 5 }
export const REPLY = { choices: [{ message: { content: 'good' }, finish_reason: 'stop' }], usage: USAGE }

/** Lets famC use another provider beside its own, which speaks chat completions only. */
export function withSpare(file: GatewayFile, spare: ScriptedUpstream): GatewayFile {
  const accounts = [{ name: 'one', key: 'spare-secret-0123456789' }]
  return file
    .set('upstreams.spare', { url: spare.url, speaks: ['chat-completions'], accounts })
    .set('keyTypes.famC.upstream', ['famC', 'spare'])
}

/** A gateway whose key type famC uses its own upstream first, and then a spare one. */
export interface PooledScene {
  readonly g: TestGateway
  readonly first: ScriptedUpstream
  readonly spare: ScriptedUpstream
  /** A new key of the type famC, with 10 credits. */
  readonly key: string
}

/** Starts a gateway with two providers that answer well. */
export async function pooledScene(
  t: Test,
  edit: Edit = file => file,
  more: Omit<Options, 'edit' | 'upstream'> = {},
): Promise<PooledScene> {
  const [first, spare] = [await ScriptedUpstream.start(t), await ScriptedUpstream.start(t)]
  for (const each of [first, spare]) each.script = (_received, res) => json(res, REPLY)
  const g = await startGateway(t, { upstream: first.url, edit: file => edit(withSpare(file, spare)), ...more })
  return { g, first, spare, key: await g.key('famC') }
}
