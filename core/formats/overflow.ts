/** How providers report that the input is too long. Agents shorten it only if the error has words that they know. */
import type { Failure } from './terms.ts'

const CODES = new Set(['context_length_exceeded', 'context_too_long', 'model_max_prompt_tokens_exceeded'])

/** Messages by which Claude Code 2.1.329 shortens a conversation. */
const KNOWN_TO_AGENTS = [
  'prompt is too long',
  '^input is too long',
  'exceed context limit',
  'maximum context length',
  'context_length_exceeded',
  'exceeds the (?:available )?context (?:window|size)',
  'context window exceeds limit',
  'longer than the (?:maximum )?(?:model.s )?(?:context )?length',
  'exceeds the maximum number of tokens allowed',
  'exceeded model token limit',
  'input token length too long',
  'maximum context limit',
  'maximum prompt length',
  'but model only supports up to',
  'reduce the length of the messages',
  'longer than the maximum model length',
  'range of input length should be',
  'prompt exceeds max length',
  'input tokens exceed the configured limit',
  'tokens in request more than max tokens allowed',
]
const AGENT_WORDS = new RegExp(KNOWN_TO_AGENTS.join('|'), 'i')

/** Messages of providers and of servers that speak their formats. */
const WORDS = new RegExp(
  [
    ...KNOWN_TO_AGENTS,
    '(?:input|prompt) token count .* exceeds the (?:maximum|limit)',
    'reduce the length of the input',
    'prompt exceeds (?:the )?max(?:imum)? length',
    'context length is only \\d',
    'exceeds (?:the |this )?(?:model.s )?(?:maximum )?context (?:length|window)',
    'context (?:length|window) (?:is )?exceeded',
    'context window (?:is )?full',
    'too many tokens: ',
    'total tokens of .* exceed max',
    'requested token count exceeds',
    'exceeds (?:the )?token limit',
    'context the overflows',
    'input is too long for',
  ].join('|'),
  'i',
)

/** The tokens of the input and the most that there may be, in the orders in which providers name them. */
const NUMBERS: readonly { readonly pattern: RegExp; readonly tokens: number; readonly most: number }[] = [
  { pattern: /(\d{1,9}) tokens > (\d{1,9})/, tokens: 1, most: 2 },
  { pattern: /(?:count|passed|request|length|prompt|tokens)[^\d-]{0,20}?(\d{3,9})\b.{0,80}?(?:exceeds?|longer|larger|only)\D{0,80}?(\d{3,9})\b/s, tokens: 1, most: 2 }, // prettier-ignore
  { pattern: /(?:length|limit|maximum|only)\D{0,40}?(\d{3,9})\b.*?(?:requested|resulted in|contains|has|got)\D{0,40}?(\d{3,9})\b/s, tokens: 2, most: 1 }, // prettier-ignore
]

/** Characters of a message that are searched: a provider may repeat the whole input. */
const MESSAGE_CHARS = 2000

/** Whether a failure says that the input is too long, and the numbers if it names them; undefined if it does not. */
export function overflowOf(failure: Failure): { tokens?: number; most?: number } | undefined {
  const { code, errorCode } = failure
  const message = failure.message.slice(0, MESSAGE_CHARS)
  if (!CODES.has(code ?? '') && !CODES.has(errorCode ?? '') && !WORDS.test(message)) return undefined
  const plain = message.replaceAll(/(\d),(?=\d{3}\b)/g, '$1')
  for (const { pattern, tokens, most } of NUMBERS) {
    const found = pattern.exec(plain)
    // A smaller number is that of something else, such as the output.
    if (found && Number(found[tokens]) > Number(found[most]))
      return { tokens: Number(found[tokens]), most: Number(found[most]) }
  }
  return {}
}

/** A failure with the code by which Codex and chat clients recognise that the input is too long, if it says so. */
export function recognisedByCode(failure: Failure): Failure {
  return overflowOf(failure) ? { ...failure, code: 'context_length_exceeded' } : failure
}

/** A failure with words by which Claude Code recognises that the input is too long, if it says so in other words. */
export function recognisedByMessage(failure: Failure): Failure {
  const overflow = overflowOf(failure)
  if (!overflow || AGENT_WORDS.test(failure.message.slice(0, MESSAGE_CHARS))) return failure
  const { tokens, most } = overflow
  // With the numbers, it shortens by the right amount.
  const numbers = tokens === undefined ? '' : `${tokens} tokens > ${most} maximum: `
  return { ...failure, message: `prompt is too long: ${numbers}${failure.message}` }
}
