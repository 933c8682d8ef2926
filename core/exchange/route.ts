/** Where a request may go, and where it goes now. */
import type { UpstreamAccount, RetryPolicy, Upstream } from '../config/config.ts'
import { DroppedFields, type Failure, type Format, readerOf, type Translation, withoutOwn } from '../formats/index.ts'
import type { Body } from '../formats/body.ts'

/** An account that may serve a request, and the format that the gateway speaks to it. */
export interface Candidate {
  readonly upstream: Upstream
  readonly account: UpstreamAccount
  readonly format: Format
  /** The name of the model that is sent. */
  readonly model: string
  /** Whether it is asked although it fails, because no account is better. */
  readonly lastResort: boolean
}

/** Returns an account as a candidate. It is asked in the client's format if its upstream speaks it. */
export function candidateOf(pooled: Omit<Candidate, 'format'>, client: Format): Candidate {
  const { speaks } = pooled.upstream
  return { ...pooled, format: speaks.includes(client) ? client : (speaks[0] as Format) }
}

/** Returns the names of an account and its upstream, as an attempt has them. */
export function namesOf({ upstream, account }: Pick<Candidate, 'upstream' | 'account'>): {
  readonly upstream: string
  readonly account: string
} {
  return { upstream: upstream.name, account: account.name }
}

/** Translates the request for a candidate. Undefined if it gets the request as it is. */
export type Translate = (candidate: Candidate) => Promise<Translation | undefined> | Translation | undefined

/** A request for a compaction. */
export interface Compacting {
  /** Shortens the conversation after a failure that says it is too long. @returns what was left out, if anything */
  shorten(failure: Failure): string | undefined
}

/** What a route is made of. */
export interface RouteParts {
  readonly candidates: readonly [Candidate, ...Candidate[]]
  readonly retry: RetryPolicy
  readonly translate: Translate
  /** Into the format of the first candidate. */
  readonly translation?: Translation | undefined
  readonly compacting?: Compacting | undefined
}

/** The candidates of one request, in the order in which they are asked. */
export class Route {
  candidates: readonly [Candidate, ...Candidate[]]
  readonly retry: RetryPolicy
  /** Translates between the client and the current candidate, if their formats differ. */
  translation: Translation | undefined
  readonly #translate: Translate
  #at = 0
  /** What was left out of a conversation that was too long. */
  readonly #leftOut = new Set<string>()
  /** Set if the gateway or the provider is asked for a compaction. */
  readonly compacting: Compacting | undefined
  /** What was left out together with values of the gateway's own, if the request had any when it was sent. */
  #dropped: DroppedFields | undefined

  constructor({ candidates, retry, translate, translation, compacting }: RouteParts) {
    this.candidates = candidates
    this.retry = retry
    this.#translate = translate
    this.translation = translation
    this.compacting = compacting
  }

  /** The account that is asked now. */
  get current(): Candidate {
    return this.candidates[this.#at] as Candidate
  }

  /** The upstream that the request goes to. */
  get upstream(): Upstream {
    return this.current.upstream
  }

  /** The account that it uses there. */
  get account(): UpstreamAccount {
    return this.current.account
  }

  /** The format that the gateway speaks to the upstream. */
  get format(): Format {
    return this.current.format
  }

  /** That format, as it reads the replies of this upstream. */
  get reader(): Format {
    return readerOf(this.format, this.upstream.said.ends)
  }

  /**
   * Returns the bytes for the current candidate, in parts.
   * @param maxOutput the output limit of the request
   */
  async partsFor(body: Body, client: Format, maxOutput: () => number | undefined): Promise<readonly Buffer[]> {
    this.#dropped = undefined
    if (this.translation) return [await this.translation.limited(maxOutput())]
    const cleaned = await withoutOwn(body, client.name)
    this.#dropped = cleaned?.dropped
    return cleaned?.parts ?? body.parts()
  }

  /**
   * Translates the request again without a part of its conversation, if the gateway makes a compaction of one that is too
   * long.
   * @returns false if nothing can be left out
   */
  async shorten(failure: Failure): Promise<boolean> {
    const lost = this.translation && this.compacting?.shorten(failure)
    if (lost === undefined) return false
    this.#leftOut.add(lost)
    this.translation = await this.#translate(this.current)
    return true
  }

  /** Releases the request. Only its reply is translated after this. */
  release(): void {
    this.translation?.release()
  }

  /** What of the request does not reach the current candidate. */
  get dropped(): DroppedFields | undefined {
    const dropped = this.translation?.dropped ?? this.#dropped
    return this.#leftOut.size === 0 ? dropped : new DroppedFields([...this.#leftOut, ...(dropped?.names ?? [])])
  }

  /** Whether another account can be asked. */
  get more(): boolean {
    return this.#at + 1 < this.candidates.length
  }

  /** Leaves only one account, because the request refers to something that it has. @throws GatewayError of the translation */
  async pin(candidate: Candidate): Promise<void> {
    const { format } = this
    this.candidates = [candidate]
    this.#at = 0
    if (this.format !== format || this.compacting) this.translation = await this.#translate(candidate)
  }

  /** Lets the account that is asked now be asked once more after all others, whatever its state. */
  postpone(): void {
    const { current, candidates } = this
    if (!current.lastResort && this.more) this.candidates = [...candidates, { ...current, lastResort: true }]
  }

  /** Goes on to the next candidate that the request can be translated for. @returns false if there is none */
  async next(): Promise<boolean> {
    const { format } = this
    for (let at = this.#at + 1; at < this.candidates.length; at++) {
      const candidate = this.candidates[at] as Candidate
      try {
        // Of two upstreams of a format, one may make compactions itself.
        if (candidate.format !== format || this.compacting) this.translation = await this.#translate(candidate)
      } catch {
        continue
      }
      this.#at = at
      return true
    }
    return false
  }
}
