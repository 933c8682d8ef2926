/** Who asks: a program with a token, or a person with a session of the page. */
import { createHmac, timingSafeEqual } from 'node:crypto'
import { GatewayError, PerMinute } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import type { BuiltInExchange, BuiltInHost } from 'tollgate/plugin/operator'

/** Who asks. */
export interface Actor {
  readonly token: operator.Token
  /** The secret that was presented. New secrets depend on it. */
  readonly secret: string
  /** Of a session: until when it lasts, and the proof that a request comes from its page. */
  readonly session?: { readonly csrf: string; readonly expiresAt: number }
}

/** The prefix of a session's secret. */
const SESSION_PREFIX = 'tgs-'

/** Tokens that are remembered as valid. */
const VALID_MAX = 1000

/** By how much more often sessions that are over may be presented than wrong tokens. */
const ENDED_TIMES = 10

const COOKIE = 'tollgate_admin'

/** What each scope includes. */
const INCLUDES: Readonly<Record<operator.TokenScope, readonly operator.TokenScope[]>> = {
  read: ['read'],
  keys: ['read', 'keys'],
  all: ['read', 'keys', 'all'],
}

/** Finds out who asks. */
export class Access {
  readonly #host: Pick<BuiltInHost, 'ledger' | 'now'>
  readonly #failed: PerMinute
  /** Requests with a session that is over. A page sends several at a time, and they must not keep anybody from signing in. */
  readonly #ended: PerMinute
  /** Digests of tokens that were valid lately. */
  readonly #valid = new Set<string>()
  /** Running look-ups by the digests of secrets. */
  readonly #looking = new Map<string, Promise<unknown>>()
  readonly #failedSignInsPerMinute: number
  readonly #sessionMs: number

  constructor(
    host: Pick<BuiltInHost, 'ledger' | 'now'>,
    options: { failedSignInsPerMinute: number; sessionHours: number },
  ) {
    this.#host = host
    this.#failed = new PerMinute(host.now)
    this.#ended = new PerMinute(host.now)
    this.#failedSignInsPerMinute = options.failedSignInsPerMinute
    this.#sessionMs = options.sessionHours * 3_600_000
  }

  /**
   * Returns who asks, if they may.
   * @param scope what the operation needs
   * @throws GatewayError sign_in_required, forbidden or rate_limited
   */
  async actor(x: BuiltInExchange, scope: operator.TokenScope): Promise<Actor> {
    const actor = await this.#found(x)
    // A page that reads proves its session too, so that it cannot mistake another one in the same browser for its own.
    const reads = x.method === 'GET' || x.method === 'HEAD'
    if (actor.session && (!reads || x.headers['x-csrf-token'] !== undefined)) checkOrigin(x, actor.session.csrf)
    if (!INCLUDES[actor.token.scope].includes(scope)) {
      const message = `This needs a token with the scope "${scope}"; this one has "${actor.token.scope}".`
      throw new GatewayError('forbidden', { message })
    }
    return actor
  }

  async #found(x: BuiltInExchange): Promise<Actor> {
    const { authorization } = x.headers
    if (authorization !== undefined) {
      const secret = /^bearer +(\S+) *$/i.exec(authorization)?.[1] ?? ''
      return { token: await this.#token(x, secret), secret }
    }
    const secret = cookieOf(x)
    if (!secret?.startsWith(SESSION_PREFIX)) throw new GatewayError('sign_in_required')
    const { ledger, now } = this.#host
    const digest = operator.secretDigest(secret)
    const session = await this.#tried(x, `session ${digest}`, () => ledger.records.tokens.session(digest, now()), {
      failed: this.#ended,
      most: ENDED_TIMES * this.#failedSignInsPerMinute,
    })
    if (!session)
      throw new GatewayError('sign_in_required', {
        message: 'This session is over. Sign in again.',
        headers: { 'set-cookie': cookie('', 0, x) },
      })
    return { token: session.token, secret, session: { csrf: csrfOf(secret), expiresAt: session.expiresAt } }
  }

  /**
   * Looks up a secret. Failures count for the client's address, and are counted before the look-up: secrets that are tried
   * at the same time count, too. One that was valid a moment ago goes on, whatever others try from the same address.
   * @param limit how many may fail in a minute
   * @throws GatewayError rate_limited or unavailable
   */
  #tried<T>(
    x: BuiltInExchange,
    digest: string,
    find: () => Promise<T | undefined>,
    limit = { failed: this.#failed, most: this.#failedSignInsPerMinute },
  ): Promise<T | undefined> {
    // A program or a page may begin with several requests at the same time.
    const running = this.#looking.get(digest) ?? this.#look(x, digest, find, limit)
    this.#looking.set(digest, running)
    const over = (): boolean => this.#looking.delete(digest)
    running.then(over, over)
    return running as Promise<T | undefined>
  }

  async #look(
    x: BuiltInExchange,
    digest: string,
    find: () => Promise<unknown>,
    { failed, most }: { readonly failed: PerMinute; readonly most: number },
  ): Promise<unknown> {
    const isKnown = this.#valid.has(digest)
    if (!isKnown) failed.limit(x.addressGroup, most, 'Too many failed sign-ins from this address.')
    let hasFailed = false
    try {
      const found = await operator.orUnavailable(find())
      hasFailed = found === undefined
      if (hasFailed) this.#valid.delete(digest)
      else this.#remember(digest)
      return found
    } finally {
      if (!isKnown && !hasFailed) failed.giveBack(x.addressGroup)
    }
  }

  #remember(digest: string): void {
    if (this.#valid.size >= VALID_MAX) this.#valid.clear()
    this.#valid.add(digest)
  }

  /** Finds a token by its secret. @throws GatewayError sign_in_required, rate_limited or unavailable */
  async #token(x: BuiltInExchange, secret: string): Promise<operator.Token> {
    const digest = operator.secretDigest(secret)
    const { ledger, now } = this.#host
    const token = await this.#tried(x, digest, async () =>
      secret.startsWith(operator.TOKEN_PREFIX) ? ledger.records.tokens.find(digest, now()) : undefined,
    )
    if (token) return token
    throw new GatewayError('sign_in_required', { message: 'This token is unknown or revoked.' })
  }

  /**
   * Begins a session.
   * @param presented the secret of a token
   * @returns who signed in, and the cookie of the session
   * @throws GatewayError sign_in_required, forbidden or rate_limited
   */
  async signIn(x: BuiltInExchange, presented: string): Promise<{ actor: Actor; cookie: string }> {
    checkSite(x)
    const token = await this.#token(x, presented.trim())
    const { ledger, now } = this.#host
    const { secret, digest } = operator.newSecret(SESSION_PREFIX)
    const expiresAt = now() + this.#sessionMs
    await operator.orUnavailable(ledger.records.tokens.open(token.id, digest, { now: now(), expiresAt }))
    this.#remember(`session ${digest}`)
    const actor = { token, secret, session: { csrf: csrfOf(secret), expiresAt } }
    return { actor, cookie: cookie(secret, this.#sessionMs, x) }
  }

  /**
   * Whether an actor may still ask: the session is not over, and the token not revoked.
   * @throws GatewayError unavailable
   */
  async isValid({ secret, session, token }: Actor): Promise<boolean> {
    const { ledger, now } = this.#host
    const digest = operator.secretDigest(secret)
    const { tokens } = ledger.records
    if (session) return (await operator.orUnavailable(tokens.session(digest, now())))?.token.id === token.id
    return (await operator.orUnavailable(tokens.find(digest, now()))) !== undefined
  }

  /** Ends the session of an actor. @returns the cookie that forgets it */
  async signOut(x: BuiltInExchange, { secret }: Actor): Promise<string> {
    await operator.orUnavailable(this.#host.ledger.records.tokens.end(operator.secretDigest(secret)))
    return cookie('', 0, x)
  }
}

function cookieOf(x: BuiltInExchange): string | undefined {
  const pairs = (x.headers.cookie ?? '').split(';').map(pair => pair.trim().split('='))
  return pairs.find(([name]) => name === COOKIE)?.[1]
}

/** A proxy in front says whether the browser uses TLS. A client that forges it only makes its own cookie stricter. */
function cookie(secret: string, ms: number, x: BuiltInExchange): string {
  const secure = /https/i.test(`${String(x.headers['x-forwarded-proto'])} ${String(x.headers['forwarded'])}`)
  const parts = [
    `${COOKIE}=${secret}`,
    'Path=/admin',
    `Max-Age=${Math.floor(ms / 1000)}`,
    'HttpOnly',
    'SameSite=Strict',
  ]
  return [...parts, ...(secure ? ['Secure'] : [])].join('; ')
}

/** The proof that a request comes from the page: another site can neither read nor compute it. */
function csrfOf(secret: string): string {
  return createHmac('sha256', secret).update('csrf').digest('base64url')
}

function checkOrigin(x: BuiltInExchange, csrf: string): void {
  checkSite(x)
  const given = Buffer.from(String(x.headers['x-csrf-token'] ?? ''))
  const expected = Buffer.from(csrf)
  if (given.length === expected.length && timingSafeEqual(given, expected)) return
  throw new GatewayError('forbidden', { message: 'The header x-csrf-token is missing or wrong.' })
}

/** Refuses what a browser sends for another site. */
function checkSite(x: BuiltInExchange): void {
  const site = x.headers['sec-fetch-site']
  const { origin, host } = x.headers
  const isOther = origin !== undefined && (!URL.canParse(origin) || new URL(origin).host !== host)
  if ((site === undefined || site === 'same-origin' || site === 'none') && !isOther) return
  throw new GatewayError('forbidden', { message: 'Another site has sent this request.' })
}
