/** A gateway with the admin API, and an operator who may do everything. */
import type { Test } from 'tap'
import { newSecret } from '../core/keys/secrets.ts'
import { type Answer, type Options, startGateway, type TestGateway } from './gateway.ts'

/** Calls an operation below `/admin/api`. A text as body is sent as it is. */
export type Api = (method: string, path: string, body?: unknown, headers?: Record<string, string>) => Promise<Answer>

export interface SignedIn {
  readonly status: number
  readonly cookie: string
  readonly setCookie: string
  readonly csrf: string
  /** The headers of a request that the page makes. */
  readonly headers: Record<string, string>
}

export interface Office {
  readonly gateway: TestGateway
  /** The address of the admin API. */
  readonly base: string
  readonly token: string
  /** Calls as an operator with the scope `all`, or with the given cookie. */
  readonly api: Api
  /** Calls with another token. */
  readonly as: (token: string) => Api
  readonly signIn: (headers?: Record<string, string>) => Promise<SignedIn>
}

/** Starts a gateway with the admin API at a free port. */
export async function operate(t: Test, options: object = {}, more: Options = {}): Promise<Office> {
  const gateway = await startGateway(t, {
    ...more,
    edit: file => (more.edit ?? (each => each))(file).append({ admin: { listen: { port: 0 }, ...options } }),
  })
  const { secret, digest, hint } = newSecret('tga-')
  const { tokens } = gateway.gateway.records
  const now = Date.now()
  const times = { createdAt: now, usedAt: undefined, revokedAt: undefined }
  await tokens.add({ id: 'tok_test', name: 'operator', scope: 'all', hint, ...times }, digest)
  const base = `http://127.0.0.1:${gateway.gateway.sidePorts.get('admin')}`
  const as =
    (token: string): Api =>
    async (method, path, body, headers = {}) => {
      const response = await fetch(`${base}/admin/api${path}`, {
        method,
        headers: {
          ...(headers['cookie'] === undefined && { authorization: `Bearer ${token}` }),
          ...(body !== undefined && { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      })
      const text = await response.text()
      let json: any
      try {
        json = JSON.parse(text)
      } catch {
        json = undefined
      }
      return { status: response.status, headers: response.headers, text, json }
    }
  return {
    gateway,
    base,
    token: secret,
    api: as(secret),
    as,
    async signIn(headers = {}) {
      const response = await fetch(`${base}/admin/api/session`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify({ token: secret }),
      })
      const setCookie = response.headers.get('set-cookie') ?? ''
      const cookie = setCookie.split(';')[0] ?? ''
      const { csrf = '' } = (await response.json()) as { csrf?: string }
      return { status: response.status, cookie, setCookie, csrf, headers: { cookie, 'x-csrf-token': csrf } }
    },
  }
}
