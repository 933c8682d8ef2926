import t from 'tap'
import { until } from '../gateway.ts'
import { startWorkers } from '../process.ts'
import { ScriptedUpstream } from '../upstream.ts'

const BODY = { model: 'unknown', messages: [{ role: 'user', content: 'hi' }] }

t.test(
  'workers that replace killed ones listen on the same port with the same store, even if the file has changed',
  { skip: process.platform !== 'linux' && 'needs /proc' },
  async t => {
    const { place, running } = await startWorkers(t, (await ScriptedUpstream.start(t)).url)
    const one = await place.key('famC', '1')
    place.edit(file => file.set('store.prefix', 'elsewhere'))
    await running.saw(/the change of \\"store\\" takes effect after a restart/)
    place.edit(file => file.append('unknown'))
    await running.saw(/the old one stays in force/)
    for (const worker of running.workers()) process.kill(worker, 'SIGKILL')
    const asked = (): Promise<number> =>
      running.chat(one.key, BODY).then(
        ({ status }) => status,
        () => 0,
      )
    await until(async () => (await asked()) !== 0)
    const answers = await Promise.all(Array.from({ length: 20 }, asked))
    t.same([...new Set(answers)], [404])
  },
)
