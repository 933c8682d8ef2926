import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Place } from '../process.ts'

t.test(
  'plugins new writes a plugin whose test passes and which the chain takes; names that cannot be used are refused',
  async t => {
    const place = new Place(t)
    t.match(await place.run('plugins', 'new', 'my-limit'), {
      code: 0,
      out: /wrote plugins\/my-limit\.ts\n.*my-limit\.test\.ts/,
    })
    t.match(await place.run('plugins', 'test'), { code: 0, out: /other keys pass[^]*pass 2/ })
    t.match((await place.run('plugins')).out, /my-limit\n {2}Refuses requests of some key types/)
    t.match(await place.run('plugins', 'new', 'my-limit'), { code: 2, err: /there is a plugin my-limit already/ })
    t.match(await place.run('plugins', 'new', 'Mine'), {
      code: 2,
      err: /lower-case letters, digits and single hyphens/,
    })
    t.match(await place.run('plugins', 'new', 'auth'), { code: 2, err: /there is a plugin auth already/ })
    t.match((await place.run('plugins', 'new', 'other', '--folder', 'mine')).out, /plugins: \[mine\]/)
    writeFileSync(
      join(place.folder, 'plugins', 'bad.test.js'),
      "import test from 'node:test'; test('x', () => { throw 5 })",
    )
    t.equal((await place.run('plugins', 'test')).code, 1)
    t.match(await place.run('plugins', 'test', 'none.test.ts'), { code: 2, err: /there is no file none\.test\.ts/ })
  },
)
