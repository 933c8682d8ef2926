/** Request bodies for tests. */
import type { Body } from '../core/formats/body.ts'
import { BodyReader } from '../core/formats/body-reader.ts'
import { UNLIMITED } from '../core/lib/json/limits.ts'

/** Reads a body of any depth and size. @throws GatewayError invalid_body as `BodyReader` does */
export function bodyOf(bytes: Buffer): Body {
  return new BodyReader(UNLIMITED).body(bytes)
}
