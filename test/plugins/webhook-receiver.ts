/** A receiver of notices, which checks their signatures. */
import { createHmac, randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import type { Test } from 'tap'
import { until } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import { listening } from '../upstream.ts'

const KEY = randomBytes(32)
const SECRET = `whsec_${KEY.toString('base64')}`

/** A notice that was taken. */
export interface Got {
  readonly id: string
  readonly type: string
  readonly data: any
}

/** A receiver that checks signatures as Standard Webhooks has them. */
export class Receiver {
  readonly got: Got[] = []
  status = 200
  url = ''

  static async start(t: Test): Promise<Receiver> {
    const receiver = new Receiver()
    const server = createServer(async (req, res) => {
      const chunks: Buffer[] = []
      for await (const chunk of req) chunks.push(chunk as Buffer)
      const body = Buffer.concat(chunks).toString()
      const { 'webhook-id': id = '', 'webhook-timestamp': at = '', 'webhook-signature': signature } = req.headers
      const expected = createHmac('sha256', KEY)
        .update(`${String(id)}.${String(at)}.${body}`)
        .digest('base64')
      t.equal(signature, `v1,${expected}`, 'the signature is right')
      t.ok(Math.abs(Date.now() / 1000 - Number(at)) < 86_400)
      if (receiver.status === 200) receiver.got.push({ id: String(id), ...JSON.parse(body) })
      res.writeHead(receiver.status).end()
    })
    receiver.url = await listening(server)
    t.teardown(() => server.close())
    return receiver
  }

  /** Waits for the first notice of a type. */
  async next(type: string): Promise<Got> {
    await until(() => this.got.some(each => each.type === type))
    return this.got.find(each => each.type === type) as Got
  }
}

/** Lets a gateway send notices to a receiver. */
export function hooked(receiver: Receiver, options: object = {}): Edit {
  return file => file.append({ webhooks: { url: receiver.url, secret: SECRET, ...options } })
}
