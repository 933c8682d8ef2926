/** The gateway, as the page asks it. The key is in this module and, if its owner wants so, in the storage of this tab. */

const KEY = 'tollgate-key'

/** @type {string | undefined} */
let secret

/** Returns the key of this tab. */
export function currentKey() {
  if (secret === undefined) {
    try {
      secret = sessionStorage.getItem(KEY) ?? undefined
    } catch {
      // Without storage, the key lasts as long as the page.
    }
  }
  return secret
}

/** Whether the key survives a reload of this tab. */
export function isKept() {
  try {
    return sessionStorage.getItem(KEY) !== null
  } catch {
    return false
  }
}

/** Uses a key from now on. @param {string} key @param {boolean} keep whether it survives a reload of this tab */
export function useKey(key, keep) {
  secret = key
  try {
    if (keep) sessionStorage.setItem(KEY, key)
    else sessionStorage.removeItem(KEY)
  } catch {
    // As above.
  }
}

/** Forgets the key. */
export function forgetKey() {
  secret = undefined
  try {
    sessionStorage.removeItem(KEY)
  } catch {
    // As above.
  }
}

/** Returns what finds a key in a text. @param {string[]} prefixes what keys begin with */
export function keysWith(prefixes) {
  return new RegExp(`(?<![\\w-])(?:${prefixes.join('|')})[\\w-]+`)
}

/**
 * Finds the key in what a person has pasted: `Bearer sk-…`, `export X="sk-…"` and the like.
 * @param {string} text @param {string[]} prefixes what keys begin with
 */
export function keyIn(text, prefixes) {
  return keysWith(prefixes).exec(text)?.[0] ?? text.trim()
}

/** A refusal of the gateway, in its own words. */
export class Refusal extends Error {
  /** @param {number} status @param {string} code @param {string} message */
  constructor(status, code, message) {
    super(message)
    this.status = status
    this.code = code
  }
}

/**
 * Sends a request with the key.
 * @param {string} path
 * @param {Omit<RequestInit, 'headers'> & { headers?: Record<string, string> }} [options]
 */
export async function send(path, options = {}) {
  const { headers, ...rest } = options
  let response
  try {
    response = await fetch(path, {
      ...rest,
      credentials: 'omit',
      headers: { accept: 'application/json', ...(secret && { authorization: `Bearer ${secret}` }), ...headers },
    })
  } catch (cause) {
    if (rest.signal?.aborted) throw cause
    throw new Refusal(0, 'unreachable', 'The gateway cannot be reached. Check your connection and try again.')
  }
  if (response.ok) return response
  const { error = {} } = await response.json().catch(() => ({}))
  throw new Refusal(response.status, error.code ?? error.type ?? '', error.message ?? `Status ${response.status}.`)
}

/** Reads JSON. @param {string} path @param {Parameters<typeof send>[1]} [options] */
export async function read(path, options) {
  return (await send(path, options)).json()
}
