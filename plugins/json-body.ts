import { Body, definePlugin, type Format, GatewayError } from '../core/plugin.ts'

/** No provider gives more replies to one request. */
const MOST_CHOICES = 128

/** Reads the request's body and checks what every format asks of it, before anybody acts on it. */
export default definePlugin({
  name: 'json-body',
  summary: 'Reads and checks the JSON body: well-formed, distinct members, required members of the right type.',
  on: ['inference', 'counting'],
  gives: ['body'],
  setup(_options, { config }) {
    return {
      async request(x) {
        const body = new Body(await x.read(config.limits.body))
        check(body, x.format)
        return { body }
      },
    }
  },
})

function check(body: Body, format: Format): void {
  for (const name in format.required) {
    const type = format.required[name]
    const value = body.get(name)
    if (value === undefined) throw invalid(name, `The required member "${name}" is missing.`)
    if (type === 'array' && !Array.isArray(value)) throw invalid(name, `"${name}" must be an array.`)
  }
  for (const name in format.typed) {
    const type = format.typed[name]
    const value = body.get(name)
    if (value === undefined || value === null) continue
    if (type === 'boolean' && typeof value !== 'boolean') throw invalid(name, `"${name}" must be true or false.`)
    if (type === 'count' && !(Number.isSafeInteger(value) && (value as number) > 0)) {
      throw invalid(name, `"${name}" must be a whole number above zero.`)
    }
    if (type === 'choices' && !(Number.isSafeInteger(value) && (value as number) > 0 && (value as number) <= MOST_CHOICES)) {
      throw invalid(name, `"${name}" must be a whole number from 1 to ${MOST_CHOICES}.`)
    }
  }
}

function invalid(param: string, message: string): GatewayError {
  return new GatewayError('invalid_body', { param, message })
}
