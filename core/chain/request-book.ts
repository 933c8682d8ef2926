/** Counts the requests that have ended, and notes why some failed. A request is one at an inference endpoint with a valid key. */
import type { Config } from '../config/config.ts'
import type { Outcome } from '../exchange/exchange.ts'
import type { HttpExchange } from '../exchange/http-exchange.ts'
import { modelOf } from '../exchange/model.ts'
import { type RequestEnd, requestEnd } from '../exchange/request-end.ts'
import { textsOf, withoutEchoes } from '../formats/echoes.ts'
import { inOneLine } from '../lib/printable.ts'
import type { Environment } from '../lib/environment.ts'
import type { FailedRequest, RequestSums } from '../records/request-sums.ts'
import type { FailureStory } from '../records/failures.ts'
import { known } from './reply-hooks.ts'

/** Characters of what a provider said, and of what a client read, that are noted. */
const WORDS_MAX = 300

/** Characters of a text that are read: enough for what is noted, however much of it is a secret. */
const READ_MAX = 20_000
const NO_BODY = Buffer.from('null')
/** The largest request that is searched for what a provider repeats of it. */
const SEARCHED_BYTES_MAX = 256 * 1024

/** Returns a function that computes the answer for the same text only once. */
function once(compute: (text: string) => string): (text: string) => string {
  const known = new Map<string, string>()
  return text => known.get(text) ?? known.set(text, compute(text)).get(text) ?? ''
}

/** The book of a generation. */
export class RequestBook {
  readonly #config: Pick<Config, 'ledger' | 'digest'>
  readonly #sums: RequestSums
  readonly #environment: Pick<Environment, 'now' | 'scrubber'>

  constructor(
    config: Pick<Config, 'ledger' | 'digest'>,
    sums: RequestSums,
    environment: Pick<Environment, 'now' | 'scrubber'>,
  ) {
    this.#config = config
    this.#sums = sums
    this.#environment = environment
  }

  /** Counts an exchange that has ended. */
  ended(x: HttpExchange, outcome: Outcome): void {
    const { caller, inference } = x
    if (!caller || !inference) return
    const end = requestEnd(outcome)
    const request = {
      id: x.id,
      at: this.#environment.now(),
      ...caller.spender,
      type: caller.type,
      model: x.model ? modelOf(x) : '',
      upstream: x.attempts.at(-1)?.account ?? '',
      status: end.status,
      // A client that leaves is no error, and its entry has no code.
      code: end.kind === 'left' ? '' : (end.code ?? ''),
      kind: end.kind,
    }
    this.#sums.count(request, this.#config.ledger.freeEntries, () => ({
      ...this.#failure(x, outcome, end),
      ...request,
    }))
  }

  #failure(
    x: HttpExchange,
    outcome: Outcome,
    { who }: RequestEnd,
  ): Pick<FailedRequest, 'who' | 'httpStatus' | 'words' | 'story'> {
    const { now } = this.#environment
    const error = outcome.kind === 'failed' ? outcome.error : undefined
    const body = searchedBytes(x)
    const clean = once((text: string): string => this.#cleaned(text, body, x))
    const said = x.providersWords
    const parts = said ? [...said.codes.map(code => (body ? clean(code) : code)), clean(said.message)] : []
    const words = parts
      .filter(part => part !== '')
      .join(': ')
      .slice(0, WORDS_MAX)
    const held = known(x).runningHold?.keyHold.amount
    const story: FailureStory = {
      endpoint: x.path,
      format: x.format.name,
      config: this.#config.digest,
      ms: now() - x.startedAt,
      attempts: x.attempts,
      ...(error?.details.accounts && { accounts: error.details.accounts }),
      ...(held !== undefined && { held: String(held) }),
      // A rejection has the provider's words. The gateway's own may name a part of the request.
      ...(error && { message: !body && error.code !== 'upstream_rejected' ? error.message : clean(error.message) }),
      ...('by' in outcome && outcome.by !== undefined && { by: outcome.by }),
    }
    return {
      who: who ?? 'gateway',
      httpStatus: statusSent(x, outcome),
      words: words === '' ? undefined : words,
      story: JSON.stringify(story),
    }
  }

  /** Returns a text without secrets, without the request's own words, and in one line of visible characters. */
  #cleaned(text: string, body: Buffer | undefined, x: HttpExchange): string {
    const { scrubber } = this.#environment
    const scrubbed = scrubber.scrub(text.replaceAll(/\s+/g, ' ').slice(0, READ_MAX))
    const own = body ? withoutEchoes(scrubbed, textsOf(body, x.headers)) : ''
    // Escapes that were decoded may have hidden a secret.
    return inOneLine(scrubber.scrub(own)).slice(0, WORDS_MAX)
  }
}

/** Returns the request that is searched; undefined if it would take long, or if its conversation has been released. */
function searchedBytes({ body }: HttpExchange): Buffer | undefined {
  if (!body) return NO_BODY
  const bytes = body.isReleased ? undefined : body.bytes()
  return bytes && bytes.length <= SEARCHED_BYTES_MAX ? bytes : undefined
}

/** The status that the client got, or would have got. An error may come behind a head that was sent before. */
function statusSent(x: HttpExchange, outcome: Outcome): number {
  if (outcome.kind !== 'failed') return outcome.status
  return x.outlet.headSent ? x.outlet.status : x.format.status(outcome.error)
}
