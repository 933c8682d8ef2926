/** The accounts of all upstreams: in which order a request asks them, and what is known of their health. */
import type { UpstreamAccount, Upstream } from '../config/config.ts'
import type { AccountState } from '../errors.ts'
import type { Log } from '../lib/log.ts'
import { conversationDigest, scoreOf } from './affinity.ts'
import { isoTime } from '../lib/iso-time.ts'
import { Health } from './health.ts'
import { healthWords } from './health-words.ts'

/** An account with its upstream. */
export interface PooledAccount {
  readonly upstream: Upstream
  readonly account: UpstreamAccount
  /** The name of the model that is sent. */
  readonly model: string
  /** Whether it is asked although it fails, because no account is better. */
  readonly lastResort: boolean
}

/** Upstreams whose accounts may be asked. */
export type AccountsAsked = readonly Pick<Upstream, 'accounts'>[]

/** A limit of a model is logged as a warning from this length on, in milliseconds. */
const WARNED_LIMIT_MS = 10_000
/** Shortest time between two warnings that the provider may refuse an account, in milliseconds. */
const SUSPICION_LOG_MS = 3_600_000

interface Member {
  readonly health: Health
  /** The key that its health belongs to. */
  key: string
}

/** The accounts, as one process knows them. They outlive reloads of the configuration. */
export class Pool {
  readonly #members = new Map<string, Member>()
  readonly #now: () => number
  readonly #log: Log
  /** When a suspicion was last logged, by account and status, in milliseconds since the epoch. */
  readonly #toldSuspicions = new Map<string, number>()
  /** Called with the name of an account whose health has changed. */
  onChange: (name: string) => void = () => {}

  constructor({ log, now }: { readonly log: Log; readonly now: () => number }) {
    this.#log = log
    this.#now = now
  }

  /** Takes over the accounts of a configuration. A changed key brings its account back. */
  use(upstreams: Iterable<Pick<Upstream, 'accounts'>>): void {
    for (const { accounts } of upstreams) {
      for (const account of accounts) {
        const member = this.#member(account)
        if (member.key === account.key) continue
        member.key = account.key
        member.health.reset(this.#now())
        this.onChange(account.name)
      }
    }
  }

  /** The health of an account. */
  health(account: UpstreamAccount): Health {
    return this.#member(account).health
  }

  #member({ name, key }: UpstreamAccount): Member {
    let member = this.#members.get(name)
    if (!member) this.#members.set(name, (member = { health: new Health(), key }))
    return member
  }

  /** The accounts, with their keys, by name. */
  get members(): ReadonlyMap<string, { readonly health: Health; readonly key: string }> {
    return this.#members
  }

  /**
   * Returns the accounts that can serve a model, in the order in which a request asks them: by upstream, and among the
   * accounts of an upstream by the conversation. Those that fail come last. Those whose provider asks to wait are not
   * asked.
   * @param model the name that is sent
   */
  candidates(upstreams: readonly Upstream[], model: string, conversation: () => string): PooledAccount[] {
    const now = this.#now()
    let known: string | undefined
    const usable = upstreams.flatMap(upstream => {
      const accounts = upstream.accounts.filter(
        account => (account.models?.has(model) ?? true) && this.health(account).waitMs(now, model) === 0,
      )
      if (accounts.length > 1) {
        const of = (known ??= conversationDigest(conversation()))
        const scores = new Map(accounts.map(({ name, weight }) => [name, scoreOf(of, name, weight)]))
        accounts.sort((a, b) => (scores.get(b.name) ?? 0) - (scores.get(a.name) ?? 0))
      }
      return accounts.map(account => ({
        upstream,
        account,
        model,
        lastResort: !this.health(account).ready(now, model),
      }))
    })
    return [...usable.filter(({ lastResort }) => !lastResort), ...usable.filter(({ lastResort }) => lastResort)]
  }

  /** Milliseconds until an account can serve a model; Infinity if an operator has disabled all of them. */
  waitMs(upstreams: AccountsAsked, model: string): number {
    const now = this.#now()
    const waits = upstreams
      .flatMap(({ accounts }) => accounts)
      .filter(({ models }) => models?.has(model) ?? true)
      .map(account => this.health(account).waitMs(now, model))
    return Math.min(Infinity, ...waits)
  }

  /** Returns each account with its health in words, for operators. */
  states(upstreams: AccountsAsked, model: string): AccountState[] {
    const now = this.#now()
    return upstreams
      .flatMap(({ accounts }) => accounts)
      .map(account => {
        const health = this.health(account)
        const { lastFailure } = health
        const failed = lastFailure === undefined ? '' : `; its last failure was at ${isoTime(lastFailure.at)}`
        const serves = account.models?.has(model) ?? true
        return {
          account: account.name,
          state: serves ? `${healthWords(health, now)}${failed}` : `it does not serve ${model}`,
        }
      })
  }

  /** Brings an account back, or all of them. @param name such as `famA/main` */
  reset(name?: string): void {
    this.#toldSuspicions.clear()
    for (const [each, { health }] of this.#members) {
      if (name !== undefined && each !== name) continue
      health.reset(this.#now())
      this.onChange(each)
    }
  }

  /**
   * Notes that a request goes to an account.
   * @param last whether the request can ask no other account after it
   * @returns false if the account cannot be asked any more
   */
  begin(asked: PooledAccount, last: boolean): boolean {
    // A request of an earlier configuration has the account's old key. It tells nothing about the new one.
    return this.#asked(asked.account)?.begin(this.#now(), asked, asked.lastResort || last, asked.model) ?? true
  }

  /** The health of an account that was asked. Undefined if its key has changed since: that tells nothing about it. */
  #asked(account: UpstreamAccount): Health | undefined {
    const { key, health } = this.#member(account)
    return key === account.key ? health : undefined
  }

  /** Notes that a request ended without telling anything about its account. */
  ended(asked: PooledAccount): void {
    this.#asked(asked.account)?.ended(asked)
  }

  /** Notes that a stream has begun, which may take long. */
  answers(asked: PooledAccount): void {
    if (this.#asked(asked.account)?.answers(this.#now(), asked)) this.#servesAgain(asked.account)
  }

  succeeded(asked: PooledAccount): void {
    if (this.#asked(asked.account)?.succeeded(this.#now(), asked, asked.model)) this.#servesAgain(asked.account)
  }

  #servesAgain(account: UpstreamAccount): void {
    this.#log.info({ account: account.name }, 'an account serves again')
    this.onChange(account.name)
  }

  /**
   * Notes that a request failed.
   * @param said for the log and the operator
   * @param waitMs how long the provider asks to wait, if it does
   */
  failed(asked: PooledAccount, said: string, waitMs?: number): void {
    const { upstream, account } = asked
    const now = this.#now()
    const health = this.#asked(account)
    const reason = withoutKey(said, account)
    if (!health?.failed(upstream.health, { now, request: asked, reason, waitMs })) return
    const forMs = health.outMs(now)
    this.#log.warn({ upstream: upstream.name, account: account.name, reason, forMs }, 'account out of rotation')
    this.onChange(account.name)
  }

  /**
   * Notes that the provider limits the model that was asked for.
   * @param said for the log and the operator
   * @param waitMs how long the provider asks to wait, if it does
   */
  limited(asked: PooledAccount, said: string, waitMs?: number): void {
    const { upstream, account, model } = asked
    const now = this.#now()
    const health = this.#asked(account)
    const reason = withoutKey(said, account)
    if (!health?.limited(model, { now, request: asked, reason, waitMs })) return
    const forMs = health.modelOutMs(now, model)
    const names = { upstream: upstream.name, account: account.name, model, reason, forMs }
    // Short limits are a part of every day.
    this.#log[forMs < WARNED_LIMIT_MS ? 'debug' : 'warn'](names, 'model out of rotation')
    this.onChange(account.name)
  }

  /**
   * Notes that the provider refused the account itself: its key is wrong, unpaid or blocked.
   * @param said for the log and the operator
   * @param waitMs how long the provider asks to wait, if it does
   */
  refused(asked: PooledAccount, status: number, said: string, waitMs?: number): void {
    this.#refused(asked, said, (health, now, reason) => health.refused(status, { now, request: asked, reason, waitMs }))
  }

  /**
   * Notes a failure that may be a refusal of the account, or may be about the request.
   * @param key the id of the customer's key
   * @param said for the log and the operator
   */
  suspected(asked: PooledAccount, key: string, status: number, said: string): void {
    const { upstream, account } = asked
    this.#refused(asked, said, (health, now, reason) => health.suspected(key, status, { now, request: asked, reason }))
    const health = this.#asked(account)
    const now = this.#now()
    if (
      !health ||
      health.state.refused ||
      now - (this.#toldSuspicions.get(`${account.name} ${status}`) ?? 0) < SUSPICION_LOG_MS
    )
      return
    this.#toldSuspicions.set(`${account.name} ${status}`, now)
    this.#log.warn(
      { upstream: upstream.name, account: account.name, reason: withoutKey(said, account) },
      'the provider may refuse an account; it goes out if a request of another key meets a suspected refusal, too',
    )
  }

  #refused(
    { upstream, account }: PooledAccount,
    said: string,
    note: (health: Health, now: number, reason: string) => boolean,
  ): void {
    const health = this.#asked(account)
    if (!health) return
    const reason = withoutKey(said, account)
    const before = health.state.refused
    const isNews = note(health, this.#now(), reason)
    if (health.state.refused === before) return
    const forMs = health.waitMs(this.#now())
    const names = { upstream: upstream.name, account: account.name, reason, forMs }
    const words = 'the provider refuses an account; one request tries it after this time'
    if (isNews) this.#log.error(names, words)
    else this.#log.debug(names, words)
    this.onChange(account.name)
  }
}

/** A provider may repeat the credential that it refuses. */
function withoutKey(said: string, { key }: UpstreamAccount): string {
  return said.replaceAll(key, '***')
}
