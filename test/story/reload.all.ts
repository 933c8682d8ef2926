import { existsSync, mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Place } from '../process.ts'
import { edited, rewrite } from '../gateway-file.ts'

t.test('a changed file applies at once; an invalid one leaves the old one in force', async t => {
  const place = new Place(t)
  const running = await place.start(t)
  const yaml = readFileSync(place.file, 'utf8')
  const models = async (): Promise<string[]> =>
    ((await (await fetch(`${running.url}/v1/models`)).json()) as any).data.map((model: { id: string }) => model.id)
  const next = join(place.folder, 'next.yaml')
  writeFileSync(
    next,
    edited(yaml, file => file.insertModel('famC', { id: 'acme/famC-6', price: 'large' })),
  )
  renameSync(next, place.file)
  await running.saw(/"generation":2/)
  t.ok((await models()).includes('acme/famC-6'), 'one line adds a model')
  place.edit(file => file.set('keyTypes.famC.upstream', 'famX'))
  await running.saw(/gateway\.yaml:\d+:15 keyTypes\.famC\.upstream: there is no upstream "famX"/)
  await running.saw(/the old one stays in force/)
  t.ok((await models()).includes('acme/famC-6'))
  writeFileSync(place.file, yaml)
  await running.saw(/"generation":3/)
  t.notOk((await models()).includes('acme/famC-6'))
  running.child.kill('SIGHUP')
  await running.saw(/"generation":4/)
  t.equal((await fetch(`${running.url}/health`)).status, 200)
})

t.test('the file sets the log level, from the start and after each change; an unknown level is an error', async t => {
  const place = new Place(t, undefined, { LOG_LEVEL: 'warn' })
  const running = await place.start(t)
  await fetch(`${running.url}/v1/models?before`)
  place.edit(file => file.set('log', 'info'))
  await running.saw(/"generation":2/)
  await fetch(`${running.url}/health`)
  await running.saw(/"path":"\/health"/)
  t.notMatch(running.output, '/v1/models')
  place.edit(file => file.set('log', 'loud'))
  t.match(await place.run('check'), {
    code: 78,
    err: /gateway\.yaml:\d+:6 log: expected one of debug, info, warn, error, silent/,
  })
})

t.test('keys whose type was removed from the file are refused, and listed as such', async t => {
  const place = new Place(t)
  const running = await place.start(t)
  const { id, key } = await place.key('famB', '1')
  place.edit(file =>
    file.change<object>('keyTypes', ({ famB, ...others }: { famB?: unknown }) => ({ ...others, famZ: famB })),
  )
  await running.saw(/"keyTypes":\["famB"\],"msg":"key types were removed from the file; their keys are refused"/)
  t.equal((await fetch(`${running.url}/api/v1/key-info`, { headers: { 'x-api-key': key } })).status, 401)
  t.match((await place.run('keys', 'list')).out, new RegExp(`${id} .* no_type `))
  const { port } = new URL(running.url)
  const other = new Place(t)
  const second = other.spawn(['start'], { PORT: port })
  let complaint = ''
  second.stderr?.on('data', (part: Buffer) => (complaint += part.toString()))
  t.equal(await new Promise(resolve => second.on('close', resolve)), 1)
  t.match(complaint, `127.0.0.1:${port} is in use; set another listen.port`)
  t.notOk(existsSync(join(other.folder, 'data', 'records.sqlite')), 'no table was made or changed')
})

t.test(
  'a change behind a symbolic link applies too, whether its target is written or a folder is switched',
  async t => {
    const place = new Place(t)
    const versions = [1, 2, 3].map(version => join(place.folder, `v${version}`))
    for (const version of versions) mkdirSync(version)
    const [first = '', second = '', third = ''] = versions
    renameSync(place.file, join(first, 'gateway.yaml'))
    const yaml = readFileSync(join(first, 'gateway.yaml'), 'utf8')
    writeFileSync(join(second, 'gateway.yaml'), `${yaml}\n# another\n`)
    // As Kubernetes mounts configuration: one link is switched, and the file's own link never changes.
    symlinkSync(first, join(place.folder, 'current'))
    symlinkSync(join('current', 'gateway.yaml'), place.file)
    const running = await place.start(t)
    symlinkSync(second, join(place.folder, 'next'))
    renameSync(join(place.folder, 'next'), join(place.folder, 'current'))
    await running.saw(/"generation":2/)
    rewrite(join(second, 'gateway.yaml'), file => file.set('keyTypes.famC.upstream', 'famX'))
    await running.saw(/there is no upstream "famX"/)
    renameSync(join(first, 'gateway.yaml'), join(third, 'gateway.yaml'))
    symlinkSync(third, join(place.folder, 'next'))
    renameSync(join(place.folder, 'next'), join(place.folder, 'current'))
    await running.saw(/"generation":3/)
    t.equal((await fetch(`${running.url}/health`)).status, 200)
  },
)
