/** Counts the requests that have ended, and notes why some failed. A request is one at an inference endpoint with a valid key. */
import type { Config } from '../config/config.ts'
import type { Outcome } from '../exchange/exchange.ts'
import type { HttpExchange } from '../exchange/http-exchange.ts'
import { modelOf } from '../exchange/model.ts'
import { type RequestEnd, requestEnd } from '../exchange/request-end.ts'
import { standingIn } from '../formats/classify.ts'
import { withoutEchoes } from '../formats/failures.ts'
import type { Environment } from '../lib/environment.ts'
import type { FailedRequest, RequestSums } from '../records/request-sums.ts'
import type { FailureStory } from '../records/failures.ts'
import { known } from './reply-hooks.ts'

/** Characters of what a provider said, and of what a client read, that are noted. */
const WORDS_MAX = 300

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
      account: caller.id,
      type: caller.type,
      model: x.model ? modelOf(x) : '',
      upstream: x.attempts.at(-1)?.account ?? '',
      status: end.status,
      code: end.code ?? '',
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
    const { scrubber, now } = this.#environment
    const error = outcome.kind === 'failed' ? outcome.error : undefined
    const stands = standingIn(() => x.body.bytes(), x.headers)
    const clean = (text: string): string => scrubber.scrub(withoutEchoes(text, stands)).slice(0, WORDS_MAX)
    const said = x.providersWords
    const words = said && [...said.codes, ...(said.message === '' ? [] : [clean(said.message)])].join(': ')
    const held = known(x).runningHold?.keyHold.amount
    const story: FailureStory = {
      endpoint: x.path,
      format: x.format.name,
      config: this.#config.digest,
      ms: now() - x.startedAt,
      attempts: x.attempts,
      ...(held !== undefined && { held: String(held) }),
      // A provider's own words stand in the message of a rejection.
      ...(error && { message: error.code === 'upstream_rejected' ? clean(error.message) : error.message }),
      ...('by' in outcome && outcome.by !== undefined && { by: outcome.by }),
    }
    return {
      who: who ?? 'gateway',
      httpStatus: outcome.kind === 'failed' ? x.format.status(outcome.error) : outcome.status,
      words: words === undefined ? undefined : scrubber.scrub(words).slice(0, WORDS_MAX),
      story: JSON.stringify(story),
    }
  }
}
