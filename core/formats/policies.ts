/**
 * The members of a request that cost money beside tokens, keep state with a provider, or change the model or the address; and what
 * becomes of each where gateway.yaml says nothing. All other members pass as they are.
 */
import type { CallName, ConditionName } from '../ledger/price.ts'

/** What becomes of a member: a 400 that names it, left out and named in `x-tollgate-dropped`, or sent. */
export type Action = 'refuse' | 'drop' | 'allow'

/** What a price must have for a member to be allowed: a class of tokens, a factor, a fee, or a model of the same key type. */
export type Need =
  | { readonly kind: 'rates'; readonly names: readonly ('audioInput' | 'audioOutput')[] }
  | { readonly kind: 'condition'; readonly name: ConditionName }
  | { readonly kind: 'call'; readonly name: CallName }
  | { readonly kind: 'model' }

/** One row of the table. */
export interface Policy {
  /** How requests spell it: for people. */
  readonly spelled: readonly string[]
  readonly effect: 'bill' | 'model' | 'address' | 'state'
  /** What gateway.yaml may say of it. */
  readonly actions: readonly Action[]
  /** What becomes of it where gateway.yaml says nothing and its price, where it needs one, is missing. With its price it is allowed. */
  readonly otherwise: Action
  readonly needs?: Need
  /** Why it is refused, and what the customer can do. */
  readonly refusal: string
}

const ANY = ['refuse', 'drop', 'allow'] as const

/** A tool that the provider runs. */
const tool = (name: CallName, ...spelled: string[]): Policy => ({
  spelled,
  effect: 'bill',
  actions: ANY,
  otherwise: 'drop',
  needs: { kind: 'call', name },
  refusal: 'It is a tool that the provider runs, and it has no price here. Use a tool that your client runs, or send the request without it.',
})

/** A member by which aggregators and gateways choose the address, the account or the processing. */
const address = (name: string): Policy => ({
  spelled: [name],
  effect: 'address',
  actions: ANY,
  otherwise: 'refuse',
  refusal: 'It would change where the request goes or how it is billed. Send the request without it.',
})

/** A member that names something that lies with the provider, which `stored-state` looks after. */
const state = (spelled: readonly string[], actions: readonly Action[] = ANY): Policy => ({
  spelled,
  effect: 'state',
  actions,
  otherwise: 'allow',
  refusal: 'It refers to, or leaves, something that lies with the provider. Send what it holds instead.',
})

/** The table: docs/billable-members.md is checked against it. */
export const POLICIES = {
  service_tier: {
    spelled: ['service_tier'],
    effect: 'bill',
    actions: ANY,
    otherwise: 'drop',
    needs: { kind: 'condition', name: 'serviceTier' },
    refusal: 'This tier has no price here. Leave the member out for the standard tier.',
  },
  speed: {
    spelled: ['speed'],
    effect: 'bill',
    actions: ANY,
    otherwise: 'drop',
    needs: { kind: 'condition', name: 'speed' },
    refusal: 'This speed has no price here. Leave the member out for the standard speed.',
  },
  inference_geo: {
    spelled: ['inference_geo'],
    effect: 'bill',
    actions: ANY,
    otherwise: 'refuse',
    needs: { kind: 'condition', name: 'inferenceGeo' },
    refusal: 'This place has no price here. Leave the member out to be served wherever the provider serves.',
  },
  modalities: {
    spelled: ['modalities', 'audio'],
    effect: 'bill',
    actions: ANY,
    otherwise: 'refuse',
    needs: { kind: 'rates', names: ['audioOutput'] },
    refusal: 'Output that is not text has no price here. Ask for text alone.',
  },
  sound: {
    spelled: ['messages[].content[].type: input_audio', 'messages[].audio'],
    effect: 'bill',
    actions: ['refuse', 'allow'],
    otherwise: 'refuse',
    needs: { kind: 'rates', names: ['audioInput'] },
    refusal: 'Sound has no price here. Send text.',
  },
  prediction: {
    spelled: ['prediction'],
    effect: 'bill',
    actions: ANY,
    otherwise: 'allow',
    refusal: 'Predictions are not served here. Send the request without it.',
  },
  cache: {
    spelled: ['prompt_cache_retention', 'prompt_cache_options'],
    effect: 'bill',
    actions: ANY,
    otherwise: 'allow',
    refusal: 'Longer caching is not served here. Send the request without it.',
  },
  webSearch: tool('webSearch', 'tools[].type: web_search…, x_search, google_search, browser_search', 'web_search_options', 'search_parameters'),
  webFetch: tool('webFetch', 'tools[].type: web_fetch…, url_context'),
  fileSearch: tool('fileSearch', 'tools[].type: file_search, collections_search, document_search, retrieval'),
  codeExecution: tool('codeExecution', 'tools[].type: code_interpreter, code_execution…, shell with an environment'),
  imageGeneration: tool('imageGeneration', 'tools[].type: image_generation'),
  mcp: tool('mcp', 'tools[].type: mcp, mcp_toolset', 'mcp_servers'),
  otherTools: tool('otherTools', 'tools[].type: any other that the provider runs', 'plugins'),
  advisor: {
    spelled: ['tools[].type: advisor…'],
    effect: 'model',
    actions: ANY,
    otherwise: 'allow',
    needs: { kind: 'model' },
    refusal: 'It asks for a model that this key may not use. Name a model of the list that GET /v1/models returns for this key.',
  },
  models: {
    spelled: ['models', 'fallbacks'],
    effect: 'model',
    actions: ANY,
    otherwise: 'refuse',
    needs: { kind: 'model' },
    refusal: 'A request is served by the one model that "model" names. Send the request without it.',
  },
  background: {
    spelled: ['background', 'deferred'],
    effect: 'state',
    actions: ['refuse', 'drop'],
    otherwise: 'refuse',
    refusal: 'A reply that is made in the background cannot be metered. Send the request without it, as a stream if it takes long.',
  },
  store: state(['store']),
  previous_response_id: state(['previous_response_id'], ['refuse', 'allow']),
  conversation: state(['conversation'], ['refuse', 'allow']),
  prompt: state(['prompt'], ['refuse', 'allow']),
  container: state(['container'], ['refuse', 'allow']),
  thread: state(['thread'], ['refuse', 'allow']),
  files: state(['file ids', 'item ids'], ['refuse', 'allow']),
  route: address('route'),
  provider: address('provider'),
  transforms: address('transforms'),
  preset: address('preset'),
  api_base: address('api_base'),
  base_url: address('base_url'),
  api_key: address('api_key'),
  api_version: address('api_version'),
  custom_llm_provider: address('custom_llm_provider'),
  extra_body: address('extra_body'),
  extra_headers: address('extra_headers'),
  mock_response: address('mock_response'),
} as const satisfies Record<string, Policy>

/** The name of a row: a setting of `policy` in gateway.yaml. */
export type PolicyName = keyof typeof POLICIES
