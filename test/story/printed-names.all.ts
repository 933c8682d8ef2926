import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import t from 'tap'
import { Place } from '../process.ts'

/** A key's name must not control the terminal of the operator who lists it. */

const skip = process.env['TEST_RECORDS'] === 'postgres' && 'the records are not in SQLite'

t.test('line breaks and control characters in names are printed as escapes', { skip }, async t => {
  const place = new Place(t)
  // In a process of its own: its transactions end while this one waits for the file.
  const running = await place.startProcess(t)
  const name = 'a\nkey_forged  sk-...0000  famC  active\u001b[2J\u009b1A\u202e\r'
  const { id } = await place.key('famC', '1')
  // New names are refused. An older version has taken this one.
  const records = new DatabaseSync(join(place.folder, 'data', 'records.sqlite'))
  records.exec('PRAGMA busy_timeout = 10000')
  records.prepare('UPDATE keys SET name = ? WHERE id = ?').run(name, id)
  records.close()
  const list = await place.run('keys', 'list')
  t.equal(list.out.split('\n').filter(line => line.includes('key_forged')).length, 1)
  t.match(list.out, `a\\nkey_forged  sk-...0000  famC  active\\u001b[2J\\u009b1A\\u202e\\u000d\n`)
  for (const command of [
    ['keys', 'list'],
    ['keys', 'show', id],
    ['keys', 'list', '--json'],
    ['export'],
    ['keys', 'show', 'key_\u001b[2Jx'],
  ]) {
    const { out, err } = await place.run(...command)
    t.notMatch(out + err, /(?![\t\n])[\p{Cc}\p{Bidi_Control}]/u, command.join(' '))
  }
  const shown = JSON.parse((await place.run('keys', 'show', id, '--json')).out) as { name: string }
  t.equal(shown.name, name, 'JSON says what the name is')
  await running.stop('SIGTERM')
})

t.test('the value of an option may look like an option', async t => {
  const place = new Place(t)
  const running = await place.start(t)
  for (const name of ['--version', '-v', '--help', '--config']) {
    const { out } = await place.run('keys', 'create', '--type', 'famC', '--credits', '1', '--name', name, '--json')
    t.equal((JSON.parse(out) as { name: string }).name, name)
  }
  for (const where of [
    ['-c', place.file, 'keys', 'list'],
    ['keys', '-c', place.file, 'list'],
    ['keys', 'list', '--config', place.file],
  ])
    t.match((await place.run(...where)).out, '--version', where[0] ?? '')
  t.match((await place.run('--version')).out, /^\d+\.\d+\.\d+\n$/)
  await running.stop('SIGTERM')
})
