/** A key type that may use two providers, and requests for it. */
import type { GatewayFile } from './gateway-file.ts'
import type { ScriptedUpstream } from './upstream.ts'

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
