/** The requests of the installed SDKs, whose types test/formats/members.test.ts reads. */
import type Anthropic1 from '@anthropic-ai/sdk'
import type Anthropic0 from 'anthropic-sdk-0'
import type OpenAI7 from 'openai'
import type OpenAI6 from 'openai-6'

/** The requests of each format, of all SDKs. */
export type Requests = {
  'chat-completions': OpenAI7.Chat.ChatCompletionCreateParams | OpenAI6.Chat.ChatCompletionCreateParams
  responses: OpenAI7.Responses.ResponseCreateParams | OpenAI6.Responses.ResponseCreateParams
  messages:
    | Anthropic1.MessageCreateParams
    | Anthropic1.Beta.Messages.MessageCreateParams
    | Anthropic0.MessageCreateParams
    | Anthropic0.Beta.Messages.MessageCreateParams
}
