import {
  type Body,
  BodyReader,
  type BuiltInExchange,
  type BuiltInHost,
  defineBuiltIn,
  type Format,
  FORMATS,
  hasForeign,
  invalidBody,
  reshaped,
  shapeOfBody,
  translateRequest,
  turn,
} from 'tollgate/plugin/metering'

/** No provider supports more choices per request. */
const CHOICES_MAX = 128
/** Estimated memory per JSON value besides its text, in bytes, and the number of values per reservation. */
const TAPE_VALUE_BYTES = 80
const RESERVED_AT_ONCE = 1000
/** Size in bytes from which a body is scanned in slices, and brought into another shape on another thread. */
const SLICED_BYTES = 16_384
/** Estimated memory for bringing a body into another shape: so many times its size, and bytes per value. Many values take another thread. */
const RESHAPING = { times: 6, valueBytes: 600, valuesAtOnce: 2000 }

/**
 * Reads the request's body and checks what all formats require, before any other stage uses it. A body, or a part of one, in the
 * shape of another format is brought into that of the path.
 */
export default defineBuiltIn({
  name: 'json-body',
  summary:
    'Reads the JSON body, in the shape of any format, and checks its syntax, its limits, and its required members.',
  on: ['inference', 'counting'],
  gives: ['body'],
  setup(_options, host) {
    const { config } = host
    return {
      async request(x) {
        const { bodyBytes: bytesMax, values, depth } = config.limits
        const reader = new BodyReader({ values, depth })
        let reserved = 0
        const received = await x.read(bytesMax, bytes => {
          const all = reader.push(bytes)
          if (reader.values - reserved < RESERVED_AT_ONCE) return all
          x.reserve((reader.values - reserved) * TAPE_VALUE_BYTES)
          reserved = reader.values
          return all
        })
        const body = reader.body(received)
        const shape = FORMATS[shapeOfBody(body, x.format)]
        check(body, shape)
        if (shape === FORMATS[x.format.name]) {
          if (body.received.length > SLICED_BYTES) await body.readContents()
          if (!hasForeign(body, x.format)) return { body }
        }
        return { body: await inShapeOfPath(x, body, shape, host) }
      },
    }
  },
})

/** Brings a body into the shape of its path. @throws GatewayError invalid_body; unavailable if there is no memory */
async function inShapeOfPath(
  x: BuiltInExchange,
  original: Body,
  shape: Format,
  { config, longJobs }: BuiltInHost,
): Promise<Body> {
  const { received } = original
  const values = await original.allValues(config.limits)
  const isLarge = received.length > SLICED_BYTES || values > RESHAPING.valuesAtOnce
  const owner = x.key?.id ?? x.address
  const bytes = received.length * RESHAPING.times + values * RESHAPING.valueBytes
  if (isLarge) x.reserve(bytes)
  const { values: valuesMax, depth } = config.limits
  const body = await reshaped(original, {
    path: FORMATS[x.format.name],
    shape,
    headers: x.headers,
    translate: job => (isLarge ? longJobs.of(owner, x).request(job) : translateRequest(job)),
    async read(bytes) {
      const reader = new BodyReader({ values: valuesMax, depth })
      while (!reader.push(bytes)) await turn(owner)
      return reader.body(bytes)
    },
  })
  if (isLarge) x.release(bytes)
  check(body, x.format)
  return body
}

function check(body: Body, format: Format): void {
  for (const name in format.required) {
    const type = format.required[name]
    const value = body.view(name)
    if (!value) throw invalidBody(`The required member "${name}" is missing.`, name)
    if (type === 'array' && !value.isList) throw invalidBody(`"${name}" must be an array.`, name)
  }
  for (const name in format.typed) {
    const type = format.typed[name]
    const value = body.get(name)
    if (value === undefined || value === null) continue
    if (type === 'boolean' && typeof value !== 'boolean') throw invalidBody(`"${name}" must be true or false.`, name)
    const isWhole = Number.isSafeInteger(value) && (value as number) >= 0
    if (type === 'count' && !(isWhole && value !== 0))
      throw invalidBody(`"${name}" must be a whole number above zero.`, name)
    if (type === 'count or 0' && !isWhole) throw invalidBody(`"${name}" must be a whole number.`, name)
    if (
      type === 'choices' &&
      !(Number.isSafeInteger(value) && (value as number) > 0 && (value as number) <= CHOICES_MAX)
    ) {
      throw invalidBody(`"${name}" must be a whole number from 1 to ${CHOICES_MAX}.`, name)
    }
  }
}
