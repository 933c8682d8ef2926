/** Request bodies for tests. */
import type { Body } from '../formats/body.ts'
import { BodyReader } from '../formats/body-reader.ts'
import { UNLIMITED } from '../lib/json/limits.ts'

/** Reads a body of any depth and size. @throws GatewayError invalid_body as `BodyReader` does */
export function bodyOf(bytes: Buffer): Body {
  return new BodyReader(UNLIMITED).body(bytes)
}
