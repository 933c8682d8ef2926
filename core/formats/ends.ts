/** Why replies end: the words of vendors, and what each means. docs/providers.md has the same table. */
import type { EndMeaning, EndWords, EventReader, Reading } from './terms.ts'

/** The words of all formats, in lower case: vendors and converters use those of each other. */
export const ENDS: readonly (readonly [meaning: EndMeaning, words: string, vendors: string])[] = [
  ['stop', 'stop end_turn completed', 'the three formats, Gemini'],
  ['stop', 'eos eos_token complete', 'Together, Text Generation Inference, Cohere'],
  ['calls', 'tool_calls function_call tool_use tool_call', 'the three formats, Cohere'],
  ['length', 'length max_tokens max_output_tokens max_messages steered', 'the three formats, Gemini, Cohere'],
  ['context', 'model_context_window_exceeded model_length context_length_exceeded', 'Anthropic, Zhipu, Mistral'],
  ['filtered', 'content_filter refusal', 'the three formats'],
  ['filtered', 'sensitive', 'Zhipu'],
  ['filtered', 'content_filtered guardrail_intervened', 'Bedrock'],
  ['filtered', 'safety recitation blocklist prohibited_content spii image_safety language', 'Gemini'],
  ['filtered', 'error_toxic', 'Cohere'],
  ['paused', 'pause_turn', 'Anthropic'],
  ['sequence', 'stop_sequence', 'Anthropic, Text Generation Inference, Cohere'],
  ['failed', 'error failed cancelled', 'the three formats, OpenRouter, Mistral, Cohere'],
  ['failed', 'insufficient_system_resource', 'DeepSeek'],
  ['failed', 'network_error', 'Zhipu'],
  ['failed', 'abort', 'vLLM, SGLang'],
  ['failed', 'malformed_function_call unexpected_tool_call', 'Gemini'],
]

const MEANINGS: EndWords = Object.fromEntries(
  ENDS.flatMap(([meaning, words]) => words.split(' ').map(word => [word, meaning])),
)

/** Returns what a word means. Undefined for an unknown word. @param own the operator's words, which come first */
export function endOf(word: string, own: EndWords = {}): EndMeaning | undefined {
  const known = word.toLowerCase()
  const words = Object.hasOwn(own, known) ? own : MEANINGS
  return Object.hasOwn(words, known) ? words[known] : undefined
}

/** Returns what an event says, with what the words of its ends mean. @param own as for `endOf` */
export function withEnds(reading: Reading, own: EndWords | undefined): Reading {
  const { ends, failure } = reading
  if (!ends) return reading
  const failed = ends.find(word => endOf(word, own) === 'failed')
  if (failed !== undefined && !failure)
    return { ...reading, failure: { message: `The reply ended with ${failed}.`, code: failed }, completes: true }
  const unknownEnd = ends.find(word => endOf(word, own) === undefined)
  return { ...reading, end: endOf(ends[0] ?? '', own) ?? 'stop', ...(unknownEnd !== undefined && { unknownEnd }) }
}

/** Returns a format that reads ends as the operator says. @param own as for `endOf` */
export function readerOf<F extends EventReader>(format: F, own: EndWords | undefined): F {
  return own ? { ...format, ends: own } : format
}
