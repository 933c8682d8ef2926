/** The credential a client presents, whichever of the two headers carries it. */
import type { IncomingHttpHeaders } from 'node:http'
import { GatewayError } from '../errors.ts'

/**
 * The secret, if one is presented.
 * @throws GatewayError invalid_key when two different ones are, or a credential of another kind
 */
export function credentialOf(headers: Readonly<IncomingHttpHeaders>): string | undefined {
  const { authorization } = headers
  const key = headers['x-api-key']
  const bearer = authorization === undefined ? undefined : /^bearer +(\S+) *$/i.exec(authorization)?.[1]
  if (authorization !== undefined && bearer === undefined) throw new GatewayError('invalid_key')
  if (typeof key === 'string' && bearer !== undefined && key !== bearer) {
    throw new GatewayError('invalid_key', {
      message: 'Authorization and x-api-key carry two different API keys. Send one.',
    })
  }
  return bearer ?? (typeof key === 'string' && key !== '' ? key : undefined)
}

/** The secret, if exactly one is presented: for those who must not fail on headers that make no sense. */
export function presented(headers: Readonly<IncomingHttpHeaders>): string | undefined {
  try {
    return credentialOf(headers)
  } catch {
    return undefined
  }
}
