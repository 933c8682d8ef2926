import t from 'tap'
import { DESKTOP, PHONE, seriousFaults, stopBrowser, visit } from '../browser.ts'
import { startGateway, until } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import { json } from '../upstream.ts'
import { scene } from '../scene.ts'

/** The status page: which models can be used, from real traffic. */

t.teardown(stopBrowser)

const withStatus: Edit = file => file.insertBefore('health', { 'status-page': { cacheSeconds: 1 } })

t.test('a model whose provider fails is down, and others stay up', async t => {
  const { g, upstream } = await scene(t, withStatus)
  const key = await g.key('famC')
  const chat = (model: string) =>
    g.call('/v1/chat/completions', { key, body: { model, messages: [{ role: 'user', content: 'Hi' }], max_tokens: 9 } })
  const reply = {
    id: 'c',
    object: 'chat.completion',
    choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
  }
  upstream.script = ({ json: body }, res) => {
    const { model } = body
    if (model === 'acme/famC-5.5') json(res, { ...reply, model })
    else if (model === 'acme/famC-5.6-sol') json(res, { error: { message: 'no' } }, 400)
    else json(res, { error: { message: 'broken' } }, 500)
  }
  for (let times = 0; times < 6; times++) {
    await chat('acme/famC-5.5')
    await chat('acme/famC-5.6-sol')
  }
  await chat('acme/famC-5.6-luna')
  const state = async (): Promise<Record<string, string>> => {
    const { json: status } = await g.call('/status')
    return Object.fromEntries(status.models.map((each: any) => [each.model, each.state]))
  }
  await until(async () => (await g.call('/status')).json.models.some((each: any) => each.hours.at(-1) === 1))
  t.match(await state(), { 'acme/famC-5.5': 'up', 'acme/famC-5.6-sol': 'up', 'acme/famA-medium-5': 'up' })
  const { text, json: shown } = await g.call('/status')
  t.notMatch(text, /key_[\da-f]{6}|sk-|"answered"/, 'neither keys nor numbers of requests')
  t.equal(
    shown.models.find((each: any) => each.model === 'acme/famC-5.6-sol').hours.length,
    0,
    'a client’s error says nothing',
  )
  g.gateway.pool.members.get('famC/1')?.health.failed({ failures: 1, coolMs: 60_000 } as never, {
    now: Date.now(),
    request: {},
    reason: 'x',
    waitMs: 60_000,
  })
  await until(async () => (await state())['acme/famC-5.5'] === 'down')
  t.match(await state(), { 'acme/famA-medium-5': 'up' })
})

for (const [where, look] of [
  ['on a desktop', DESKTOP],
  ['on a phone in the dark', { ...PHONE, dark: true }],
] as const)
  t.test(`a browser sees the page ${where}`, async t => {
    const g = await startGateway(t, { edit: withStatus })
    const page = await visit(t, `${g.url}/status`, look)
    await page.getByText('All models can be used.').waitFor()
    await page.getByText('acme/famC-5.5').first().waitFor()
    t.same(await seriousFaults(page), [])
    t.ok(Number(await page.evaluate('document.documentElement.scrollWidth - innerWidth')) <= 0)
  })
