/** The formats that the gateway speaks. A further format is one folder and one line here. */
import { chatCompletions } from './chat-completions/index.ts'
import type { FormatName } from './terms.ts'
import type { Format } from './format.ts'
import { messages } from './messages/index.ts'
import { COMPACTED_CONVERSATION, COMPACTED_RESPONSE, responses } from './responses/index.ts'

export type { CountedUsage, Failure, FormatName, RawUsage, Reading } from './terms.ts'
export type { Format, OutputText, RunningStream } from './format.ts'
export { FORMAT_NAMES } from './terms.ts'
export type { Attachment } from './attachments.ts'
export type { Contents, StoredReference } from './contents.ts'
export { compactionsIn } from './compaction-names.ts'
export { storedIds } from './stored-ids.ts'
export { withoutOwn } from './own-values.ts'
export { conversationKey, DIGEST_LENGTH } from './conversation.ts'
export { waitAsked } from './rate-limits.ts'
export { overflowOf } from './overflow.ts'
export { DroppedFields } from './translate/dropped-fields.ts'
export type { CacheMarks } from './translate/neutral.ts'
export { type ProviderTool } from './provider-tools.ts'
export { type Action, POLICIES, type Policy, type PolicyName } from './policies.ts'
export {
  type Extra,
  dropExtra,
  dropTools,
  dropUnlisted,
  extrasOf,
  mayReadAgain,
  modelsNamed,
  predictedTokens,
  renameAdvisors,
  renameModels,
} from './extras.ts'
export { KNOWN_MEMBERS } from './members.ts'
export { UsageTally } from './tally.ts'
export { readerOf } from './ends.ts'
export { hasForeign, reshaped, shapeOfBody } from './shapes.ts'
export { unknownEnd } from './translate/translate-reply.ts'
export type { SaidReading } from './usage-reading.ts'
export { translateRequest, type TranslatedRequest, type TranslationJob } from './translate/translate-request.ts'
export {
  type ReplyJob,
  type ReplyTranslation,
  type StreamTranslation,
  translateReply,
} from './translate/translate-reply.ts'
export { Translation, type Translator } from './translate/translation.ts'
export { ReplyEvent, frame, isSummary, type OutgoingEvent, type Rewriter } from './events.ts'

/** The formats by name. */
export const FORMATS: Readonly<Record<FormatName, Format>> = {
  'chat-completions': chatCompletions,
  responses,
  messages,
}

/** The formats of clients, with their variants, by name. Jobs on another thread name them so. */
export const CLIENT_FORMATS: ReadonlyMap<string, Format> = new Map(
  [...Object.values(FORMATS), COMPACTED_RESPONSE, COMPACTED_CONVERSATION].map(format => [formatKey(format), format]),
)

/** The name of a format, or of its variant. */
export function formatKey({ name, variant }: Pick<Format, 'name' | 'variant'>): string {
  return variant ?? name
}

/** The endpoints at which a format is asked for replies. */
export function pathsOf({ path, compaction }: Pick<Format, 'path' | 'compaction'>): readonly string[] {
  return compaction ? [path, compaction.path] : [path]
}

const ALL = Object.values(FORMATS)
const BY_PATH = new Map(ALL.flatMap(format => pathsOf(format).map(path => [path, format] as const)))

/** The format of an inference endpoint; undefined for other paths. */
export function formatOf(path: string): Format | undefined {
  return BY_PATH.get(path)
}

/** The format whose endpoint is above a path. Its clients call the paths below it. */
export function formatAbove(path: string): Format | undefined {
  return ALL.find(format => path.startsWith(`${format.path}/`))
}

/** The format of errors on paths that belong to no format. */
export const PLAIN: Format = chatCompletions
