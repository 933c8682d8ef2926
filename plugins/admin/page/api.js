/** The admin API, as the page calls it: with the cookie of its session, and a proof that the page sends the request. */

const BASE = '/admin/api'

let csrf = ''
/** @type {() => void} */
let onEnd = () => {}

/** Begins to use a session. @param {string} proof @param {() => void} ended called when the session is over */
export function useSession(proof, ended) {
  csrf = proof
  onEnd = ended
}

/** A refusal of the API, in its own words. */
export class Refusal extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message)
    this.status = status
  }
}

/**
 * Calls an operation.
 * @param {string} method @param {string} path @param {any} [body]
 * @param {{ once?: string, signal?: AbortSignal }} [options] `once` is an idempotency key
 */
export async function call(method, path, body, { once, signal } = {}) {
  let response
  try {
    response = await fetch(BASE + path, {
      method,
      signal,
      headers: {
        accept: 'application/json',
        ...(csrf !== '' && { 'x-csrf-token': csrf }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...(once && { 'idempotency-key': once }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
  } catch (cause) {
    if (signal?.aborted) throw cause
    throw new Refusal(0, 'The gateway cannot be reached. Nothing is lost: try again.')
  }
  if (response.status === 204) return undefined
  const reply = await response.json().catch(() => ({}))
  if (response.ok) return reply
  if (response.status === 401 && csrf !== '') {
    csrf = ''
    onEnd()
  }
  // Somebody has signed in anew in another tab: the cookie is of another session than this page shows.
  if (response.status === 403 && csrf !== '' && (await isAnotherSession())) location.reload()
  throw new Refusal(response.status, reply.error?.message ?? `Status ${response.status}.`)
}

async function isAnotherSession() {
  const begun = await fetch(`${BASE}/session`)
    .then(response => response.json())
    .catch(() => ({}))
  return begun.csrf !== undefined && begun.csrf !== csrf
}

/** Reads from the API. @param {string} path @param {AbortSignal} [signal] */
export function read(path, signal) {
  return call('GET', path, undefined, { signal })
}

/** The address of a list as CSV. @param {string} path @param {URLSearchParams} query */
export function csvAddress(path, query) {
  const wanted = new URLSearchParams(query)
  wanted.set('format', 'csv')
  return `${BASE}${path}?${wanted}`
}

/** The address of the live overview. */
export const LIVE = `${BASE}/overview/stream`

/** Makes a function that repeats a request with the same idempotency key until it has an answer. */
export function onceOnly() {
  const once = Array.from(crypto.getRandomValues(new Uint8Array(16)), byte => byte.toString(16).padStart(2, '0')).join(
    '',
  )
  return (path, body) => call('POST', path, body, { once })
}
