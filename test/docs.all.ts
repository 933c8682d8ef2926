import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { startGateway } from './gateway.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const page = (name: string): string => readFileSync(join(ROOT, name), 'utf8')

t.test('the plugins in docs/plugins.md compile and work, and so does their test', async t => {
  const sources = [...page('docs/plugins.md').matchAll(/```ts\n([^]*?)```/g)].map(([, text = '']) => text)
  // Inside the repository, so that the compiler finds @types/node.
  const folder = join(ROOT, '.tap', 'docs', 'plugins')
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  const names = sources.map(
    text => /^ {2}name: '([\w-]+)'/m.exec(text)?.[1] ?? `${/from '\.\/([\w-]+)\.ts'/.exec(text)?.[1] ?? ''}.test`,
  )
  t.strictSame(names, [
    'hello',
    'country',
    'tokens-per-minute',
    'no-secrets',
    'no-secrets.test',
    'tokens-per-minute.test',
  ])
  sources.forEach((text, at) => {
    const imports = text.includes("from 'tollgate/") ? '' : "import { definePlugin } from 'tollgate/plugin'\n"
    writeFileSync(join(folder, `${names[at] ?? ''}.ts`), `${imports}${text}`)
  })
  // Outside the chain: a hook that waits and gives nothing needs no `gives`.
  const waits = "on: 'all', needs: ['key'], setup: () => ({ async request({ key }) { await Promise.resolve(key.id) } })"
  writeFileSync(
    join(folder, 'waits.ts'),
    `import { definePlugin } from 'tollgate/plugin'\nexport default definePlugin({ name: 'waits', summary: 'Waits.', ${waits} })`,
  )
  const [, tsconfig = ''] = /```json\n([^]*?)```/.exec(page('docs/plugins.md')) ?? []
  writeFileSync(join(folder, '..', 'tsconfig.json'), tsconfig.replaceAll('FOLDER', ROOT))
  const compiled = spawnSync('tsc', ['--project', join(folder, '..')], { encoding: 'utf8' })
  t.equal(compiled.stdout, '', 'tsc has nothing to say')
  const main = join(ROOT, 'core', 'main.ts')
  const { TAP: _tap, NODE_TEST_CONTEXT: _context, ...env } = process.env
  const tested = spawnSync(process.execPath, [main, 'plugins', 'test'], {
    encoding: 'utf8',
    cwd: join(folder, '..'),
    env,
  })
  t.equal(tested.status, 0, tested.stdout + tested.stderr)
  const g = await startGateway(t, {
    edit: file =>
      file
        .insertBefore('access-log', 'hello', 'country')
        .insertBefore('json-body', { 'tokens-per-minute': { most: 100_000 } })
        .insertBefore('model-gate', { 'no-secrets': { words: ['secret'] } })
        .set('plugins', [folder]),
  })
  t.match(await g.call('/hello?name=Ann', { method: 'GET' }), { status: 200, json: { hello: 'Ann' } })
  const ask = async (content: string) =>
    g.call('/v1/chat/completions', { key: await g.key('famB'), body: { messages: [{ role: 'user', content }] } })
  t.equal((await ask('Hello')).status, 200)
  t.match(await ask('the secret word'), { status: 400, json: { error: { message: /contains "secret"/ } } })
})
