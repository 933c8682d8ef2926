import t from 'tap'
import { freePort } from '../ports.ts'
import { Place } from '../process.ts'

/** The admin API when its process dies at any moment. */

/** When the process is killed, in milliseconds after a request was sent, by the number of workers. */
const MOMENTS_MS = new Map([
  [1, [15, 80]],
  [2, [40]],
])
const COUNT = 400

for (const [workers, moments] of MOMENTS_MS)
  t.test(`a batch whose gateway of ${workers} dies is made once, and every key of it buys`, async t => {
    const port = await freePort()
    const place = new Place(t, file => {
      if (workers > 1) file.set('workers', workers)
      return file.append({ admin: { listen: { port } } })
    })
    let running = await place.startProcess(t)
    const { token } = JSON.parse((await place.run('tokens', 'create', '--name', 'shop', '--json')).out)
    const send = (path: string, body: object, once: string) =>
      fetch(`http://127.0.0.1:${port}/admin/api${path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', 'idempotency-key': once },
        body: JSON.stringify(body),
      }).then(async response => ({ status: response.status, json: (await response.json()) as any }))
    for (const [n, ms] of moments.entries()) {
      const batch = { type: 'famC', credits: 1, count: COUNT, batch: `b${n}` }
      const first = send('/keys', batch, `batch-${n}`).catch(() => undefined)
      // The moment itself is what is tried, so no event will do.
      await new Promise(resolve => setTimeout(resolve, ms))
      await running.stop('SIGKILL')
      await first
      running = await place.startProcess(t)
      const again = await send('/keys', batch, `batch-${n}`)
      t.equal(again.status, 201)
      t.same(await send('/keys', batch, `batch-${n}`), again, 'the same keys')
      const listed = (await place.run('keys', 'list', '--batch', `b${n}`, '--json')).out.trim().split('\n')
      t.equal(listed.length, COUNT, `${COUNT} keys, killed after ${ms} ms`)
      const secrets: string[] = again.json.keys.map((each: { key: string }) => each.key)
      const body = { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 9 }
      for (const key of [secrets[0], secrets.at(-1)]) t.equal((await running.chat(key ?? '', body)).status, 200)
      const [{ id }] = again.json.keys
      const topUp = send(`/keys/${id}/topup`, { credits: 5 }, `add-${n}`).catch(() => undefined)
      await new Promise(resolve => setTimeout(resolve, ms / 10))
      await running.stop('SIGKILL')
      await topUp
      running = await place.startProcess(t)
      t.equal((await send(`/keys/${id}/topup`, { credits: 5 }, `add-${n}`)).status, 200)
      const shown = JSON.parse((await place.run('keys', 'show', id, '--json')).out)
      t.match(shown, { granted: '6' }, 'five credits were added once')
    }
    t.match(await place.run('audit', '--json'), { code: 0, err: '' })
  })
