import { type Body, BodyReader, defineBuiltIn, type Format, invalidBody } from 'tollgate/plugin/metering'

/** No provider supports more choices per request. */
const CHOICES_MAX = 128
/** Estimated memory per JSON value besides its text, in bytes, and the number of values per reservation. */
const TAPE_VALUE_BYTES = 80
const RESERVED_AT_ONCE = 1000
/** Size in bytes from which a body is scanned in slices. */
const SLICED_BYTES = 16_384

/** Reads the request's body and checks what all formats require, before any other stage uses it. */
export default defineBuiltIn({
  name: 'json-body',
  summary: 'Reads the JSON body and checks its syntax, its limits, and its required members.',
  on: ['inference', 'counting'],
  gives: ['body'],
  setup(_options, { config }) {
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
        check(body, x.format)
        if (body.received.length > SLICED_BYTES) await body.readContents()
        return { body }
      },
    }
  },
})

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
