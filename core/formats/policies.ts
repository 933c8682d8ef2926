/**
 * The members of a request that cost money beside tokens, store state at a provider, or change the model or the
 * address, and what happens to each by default. All other members pass unchanged.
 */
import type { CallName, ConditionName } from '../money/price.ts'

/**
 * What happens to a member. refuse: the request gets a 400 that names it. drop: it is removed, and named in
 * `x-tollgate-dropped`. allow: it is sent.
 */
export type Action = 'refuse' | 'drop' | 'allow'

/** What a price must have for a member to be allowed. */
export type Need =
  /** One of these rates. */
  | { readonly kind: 'rates'; readonly names: readonly ('audioInput' | 'audioOutput' | 'imageOutput')[] }
  | { readonly kind: 'condition'; readonly name: ConditionName }
  /** A fee, and a rate for what the call makes. */
  | { readonly kind: 'call'; readonly name: CallName; readonly rate?: 'imageOutput' }
  | { readonly kind: 'model' }

/** One policy. */
export interface Policy {
  /** The members of a request that ask for it. */
  readonly members: readonly string[]
  /** Where else a request can ask for it, for the documentation. */
  readonly places?: readonly string[]
  /** The actions that gateway.yaml may choose. */
  readonly actions: readonly Action[]
  /** The default if the price does not have what the policy needs. With it, the member is allowed. */
  readonly otherwise: Action
  readonly needs?: Need
  /** Why it is refused without a price. */
  readonly reason: string
  /** What the customer can do instead. */
  readonly remedy: string
}

const ANY = ['refuse', 'drop', 'allow'] as const
const WITHOUT = 'Send the request without this member.'

/** A tool that the provider runs. */
const tool = (name: CallName, types: string, members: readonly string[] = [], rate?: 'imageOutput'): Policy => ({
  places: [`tools[].type: ${types}`],
  members,
  actions: ANY,
  otherwise: 'drop',
  needs: { kind: 'call', name, ...(rate && { rate }) },
  reason: 'It lets the provider run tools that have no price here, and it cannot be dropped.',
  remedy: 'Use a tool that your client runs, or send the request without it.',
})

/** A member by which aggregators choose the address, the account or the processing. */
const address = (...members: string[]): Policy => ({
  members,
  actions: ANY,
  otherwise: 'refuse',
  reason: 'It would change where the request goes or how it is billed.',
  remedy: WITHOUT,
})

/** A member that names something stored at the provider. The stage `stored-state` checks whose it is. */
const state = (members: readonly string[], actions: readonly Action[] = ANY): Policy => ({
  members,
  actions,
  otherwise: 'allow',
  reason: 'It refers to an object that is stored at the provider.',
  remedy: 'Send the content itself.',
})

/** The table of policies. A test compares docs/billable-members.md with it. */
export const POLICIES = {
  service_tier: {
    members: ['service_tier'],
    actions: ANY,
    otherwise: 'drop',
    needs: { kind: 'condition', name: 'serviceTier' },
    reason: 'This tier has no price here.',
    remedy: 'Omit the member for the standard tier.',
  },
  speed: {
    members: ['speed'],
    actions: ANY,
    otherwise: 'drop',
    needs: { kind: 'condition', name: 'speed' },
    reason: 'This speed has no price here.',
    remedy: 'Omit the member for the standard speed.',
  },
  inference_geo: {
    members: ['inference_geo'],
    actions: ANY,
    otherwise: 'refuse',
    needs: { kind: 'condition', name: 'inferenceGeo' },
    reason: 'This region has no price here.',
    remedy: 'Omit the member to be served in any region.',
  },
  modalities: {
    members: ['modalities', 'audio'],
    actions: ANY,
    otherwise: 'refuse',
    needs: { kind: 'rates', names: ['audioOutput', 'imageOutput'] },
    reason: 'Output other than text has no price here.',
    remedy: 'Ask for text only.',
  },
  sound: {
    members: [],
    places: ['messages[].content[].type: input_audio, audio_url', 'messages[].audio'],
    actions: ['refuse', 'allow'],
    otherwise: 'refuse',
    needs: { kind: 'rates', names: ['audioInput'] },
    reason: 'Sound has no price here.',
    remedy: 'Send text.',
  },
  prediction: {
    members: ['prediction'],
    actions: ANY,
    otherwise: 'allow',
    reason: 'Predictions are not offered here.',
    remedy: WITHOUT,
  },
  cache: {
    members: ['prompt_cache_retention', 'prompt_cache_options'],
    actions: ANY,
    otherwise: 'allow',
    reason: 'Longer caching is not offered here.',
    remedy: WITHOUT,
  },
  billing_policy: {
    members: ['billing_policy'],
    actions: ANY,
    otherwise: 'drop',
    reason: 'It would have another organization billed.',
    remedy: WITHOUT,
  },
  fallback_credit: {
    members: ['fallback_credit_token'],
    actions: ANY,
    otherwise: 'drop',
    reason: 'It would change how the request is billed.',
    remedy: WITHOUT,
  },
  diagnostics: {
    members: ['diagnostics'],
    actions: ANY,
    otherwise: 'drop',
    reason: 'It compares the request with a message that may be of another key.',
    remedy: WITHOUT,
  },
  webSearch: tool('webSearch', 'web_search…, x_search, google_search, browser_search', [
    'web_search_options',
    'search_parameters',
    'enable_search',
  ]),
  webFetch: tool('webFetch', 'web_fetch…, url_context'),
  fileSearch: tool('fileSearch', 'file_search, collections_search, document_search, retrieval', ['data_sources']),
  codeExecution: tool('codeExecution', 'code_interpreter, code_execution…, shell with an environment'),
  imageGeneration: tool('imageGeneration', 'image_generation', [], 'imageOutput'),
  mcp: tool('mcp', 'mcp, mcp_toolset', ['mcp_servers']),
  otherTools: tool('otherTools', 'any other that the provider runs', ['plugins']),
  advisor: {
    members: [],
    places: ['tools[].type: advisor…'],
    actions: ANY,
    otherwise: 'refuse',
    needs: { kind: 'model' },
    reason: 'It asks for a model that this key may not use.',
    remedy: 'Use a model from GET /v1/models, or omit the tool.',
  },
  models: {
    members: ['models', 'fallbacks', 'context_window_fallback_dict'],
    actions: ANY,
    otherwise: 'refuse',
    needs: { kind: 'model' },
    reason: 'A request is served only by the model in "model".',
    remedy: WITHOUT,
  },
  background: {
    members: ['background', 'deferred'],
    actions: ['refuse', 'drop'],
    otherwise: 'refuse',
    reason: 'A reply in the background cannot be metered.',
    remedy: 'Send the request without it. Use a stream for long replies.',
  },
  store: { ...state(['store']), remedy: 'Send "store": false.' },
  previous_response_id: state(['previous_response_id'], ['refuse', 'allow']),
  conversation: state(['conversation'], ['refuse', 'allow']),
  prompt: state(['prompt'], ['refuse', 'allow']),
  container: state(['container'], ['refuse', 'allow']),
  thread: state(['thread'], ['refuse', 'allow']),
  files: { ...state([], ['refuse', 'allow']), places: ['file ids', 'item ids'] },
  route: address('route'),
  provider: address('provider', 'provider_options'),
  transforms: address('transforms'),
  preset: address('preset'),
  api_base: address('api_base', 'user_config'),
  base_url: address('base_url'),
  api_key: address('api_key'),
  api_version: address('api_version'),
  custom_llm_provider: address('custom_llm_provider'),
  extra_body: address('extra_body'),
  extra_headers: address('extra_headers', 'extra_query'),
  mock_response: address('mock_response'),
} as const satisfies Record<string, Policy>

/** The name of a policy, which is a setting of `policy` in gateway.yaml. */
export type PolicyName = keyof typeof POLICIES
