/**
 * The members of requests that pass at the top level, and in the client's own tools. Every other one is dropped and
 * named: a provider may bill it, or read it as another address. A policy decides about the members that are known to
 * cost money. A test compares the lists with the request types of the SDKs, and docs/providers.md with the lists.
 */
import { words } from './json.ts'
import { POLICIES, type Policy, type PolicyName } from './policies.ts'
import type { FormatName } from './terms.ts'

/** The members that a format's vendor documents. */
const VENDORS: Readonly<Record<FormatName, readonly string[]>> = {
  'chat-completions': words(`
    audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages
    metadata modalities model moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key
    prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier
    stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options
  `),
  responses: words(`
    access_programs background client_metadata context_management conversation image include input instructions
    max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt
    prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store stream
    stream_options temperature text tool_choice tools top_logprobs top_p truncation user
  `),
  messages: words(`
    cache_control compaction container context_management diagnostics fallbacks inference_geo max_tokens mcp_servers
    messages metadata model output_config output_format safeguards service_tier speed stop_sequences stream system tags
    temperature thinking thread tool_choice tools top_k top_p
  `),
}

/** Members of servers and vendors that speak a format and have more members. None of them is billed apart. */
const SAMPLING = words(`
  top_k top_a min_p typical_p repetition_penalty length_penalty no_repeat_ngram_size do_sample random_seed min_tokens
  ignore_eos stop_token_ids bad_words allowed_token_ids include_stop_str_in_output skip_special_tokens
  spaces_between_special_tokens
`)
const THINKING = words(`
  thinking enable_thinking thinking_budget reasoning reasoning_effort reasoning_format reasoning_split include_reasoning
  separate_reasoning stream_reasoning prompt_mode think chat_template_kwargs add_generation_prompt
  continue_final_message
`)
const OUTPUT = words(`
  structured_outputs guided_json guided_regex guided_choice guided_grammar guided_whitespace_pattern
  guided_decoding_backend json_schema grammar regex ebnf prompt_logprobs return_tokens_as_token_ids echo result_format
  incremental_output tool_stream disable_tool_validation citation_options
`)
const OTHERS = words(`
  cache_control cache_salt prompt_cache_key user safety_identifier documents mm_processor_kwargs media_io_kwargs vl_high_resolution_images truncate_prompt_tokens
  safe_prompt safety_settings mask_sensitive_info request_id user_id session_id usage
`)
const COMPATIBLE: Readonly<Record<FormatName, readonly string[]>> = {
  'chat-completions': [...SAMPLING, ...THINKING, ...OUTPUT, ...OTHERS],
  responses: [...SAMPLING, ...THINKING, ...OUTPUT, ...OTHERS, ...words('frequency_penalty presence_penalty seed stop')],
  messages: [...SAMPLING, ...THINKING, ...OUTPUT, ...OTHERS],
}

/** The members that have a policy. */
const BILLED: ReadonlyMap<string, PolicyName> = new Map(
  (Object.entries(POLICIES) as [PolicyName, Policy][]).flatMap(([policy, { members }]) =>
    members.map(name => [name, policy] as const),
  ),
)

/** Whether a policy decides about a member. */
export function hasPolicy(member: string): boolean {
  return BILLED.has(member)
}

/** The members of each format that pass without a policy: those of its vendor, and those of compatible vendors. */
export const PASSING: Readonly<
  Record<FormatName, { readonly vendor: readonly string[]; readonly others: readonly string[] }>
> = mapped(name => {
  const vendor = VENDORS[name].filter(member => !BILLED.has(member))
  const others = COMPATIBLE[name].filter(member => !BILLED.has(member) && !vendor.includes(member))
  return { vendor, others: [...new Set(others)].sort() }
})

/** The members of each format that are listed, with or without a policy. */
const LISTED: Readonly<Record<FormatName, ReadonlySet<string>>> = mapped(
  name => new Set([...VENDORS[name], ...COMPATIBLE[name], ...BILLED.keys()]),
)

/**
 * Members of known providers that do not pass by themselves, for the documentation and the metrics, and whether they may
 * cost money beside tokens.
 */
export const PROVIDER_MEMBERS: readonly {
  readonly provider: string
  readonly members: readonly string[]
  readonly mayCost: boolean
}[] = [
  { provider: 'vLLM', members: words('priority logits_processors vllm_xargs kv_transfer_params'), mayCost: false },
  { provider: 'vLLM', members: words('best_of use_beam_search'), mayCost: true },
  { provider: 'DashScope', members: words('enable_code_interpreter search_options'), mayCost: true },
  { provider: 'DashScope', members: words('translation_options asr_options'), mayCost: false },
  {
    provider: 'Perplexity',
    members: words('search_mode search_domain_filter search_recency_filter return_images return_related_questions'),
    mayCost: true,
  },
  { provider: 'Groq', members: words('compound_custom search_settings'), mayCost: true },
  { provider: 'Gemini', members: words('cached_content google'), mayCost: true },
  { provider: 'OpenRouter', members: words('debug trace image_config'), mayCost: false },
  { provider: 'LiteLLM', members: words('tags guardrails num_retries'), mayCost: true },
  { provider: 'Ollama', members: words('options keep_alive format'), mayCost: false },
  { provider: 'Volcengine', members: words('caching expire_at'), mayCost: true },
  { provider: 'Fireworks', members: words('prompt_truncate_len perf_metrics_in_response'), mayCost: false },
]

/** The members that are known for any format or provider. Metrics name no others. */
export const KNOWN_MEMBERS: ReadonlySet<string> = new Set([
  ...Object.values(LISTED).flatMap(names => [...names]),
  ...PROVIDER_MEMBERS.flatMap(({ members }) => members),
])

function mapped<V>(of: (name: FormatName) => V): Readonly<Record<FormatName, V>> {
  return { 'chat-completions': of('chat-completions'), responses: of('responses'), messages: of('messages') }
}

/** What happens to a top-level member: it passes, a policy decides, or it is dropped because it is not listed. */
export type MemberDecision = 'pass' | 'unlisted' | { readonly policy: PolicyName }

/** Returns what happens to a top-level member of a format. */
export function decisionOn(format: FormatName, member: string): MemberDecision {
  const policy = BILLED.get(member)
  if (policy !== undefined) return { policy }
  return LISTED[format].has(member) ? 'pass' : 'unlisted'
}

/** The members of tools that the client runs, in all formats. */
export const TOOL_MEMBERS: ReadonlySet<string> = new Set(
  words(`
    type name description parameters strict function custom input_schema output_schema format tools environment
    execution async allowed_callers cache_control configs defer_loading eager_input_streaming input_examples
    max_characters display_height display_height_px display_number display_width display_width_px enable_zoom
  `),
)

/** Returns the top-level members that are not listed and that the file does not let through. */
export function unlisted(format: FormatName, names: Iterable<string>, passes: ReadonlySet<string>): readonly string[] {
  const listed = LISTED[format]
  let found: string[] | undefined
  for (const name of names) if (!listed.has(name) && !passes.has(name)) (found ??= []).push(name)
  return found ?? NONE
}

/** Nearly every request has listed members only. */
const NONE: readonly string[] = []
