import { Writable } from 'node:stream'
import t from 'tap'
import { createLog } from '../core/lib/log.ts'
import { Scrubber } from '../core/lib/scrubber.ts'

/** A reader of the log, which takes a piece of it on demand. */
class Reader extends Writable {
  text = ''
  #taken: (() => void) | undefined

  /** It has room for the beginning of a piece only. */
  full = false

  override _write(piece: Buffer, _encoding: string, done: (cause?: Error) => void): void {
    this.text += this.full ? piece.toString().slice(0, 12) : piece.toString()
    this.#taken = this.full ? () => done(new Error('ENOSPC')) : done
  }

  /** Continues after an error, as standard output does. */
  override _destroy(cause: Error | null, done: (cause?: Error | null) => void): void {
    done(cause)
    ;(this as unknown as { _undestroy(): void })._undestroy()
  }

  take(): void {
    const taken = this.#taken
    this.#taken = undefined
    taken?.()
  }

  get lines(): any[] {
    return this.text
      .split('\n')
      .slice(0, -1)
      .map(line => JSON.parse(line))
  }
}

t.test('log lines are JSON in the order of the calls, without keys and credentials, whatever is logged', async t => {
  const reader = new Reader()
  const scrubber = new Scrubber()
  scrubber.watch(['upstream-credential-4711', 'quoted"4711\\slashed'])
  const log = createLog(scrubber, 'info', reader)
  log.debug('not asked for')
  log.info({ reason: 'bad key quoted"4711\\slashed', path: '/v1/models/x_sk-01234567890123456789' })
  log.info({ path: '/v1/models', code: undefined })
  log.warn(
    { err: Object.assign(new Error('upstream-credential-4711'), { command: { args: ['password'] } }) },
    'said sk-0123456789',
  )
  const circle: Record<string, unknown> = { large: 90071992547409931n }
  circle['itself'] = circle
  log.info(circle)
  log.child({ stage: 'quiet-hours' }).info({ open: true })
  log.info({})
  log.info({ toJSON: () => ['no members'] })
  log.info('%d of %d', 1, 2)
  log.info({ path: '/\x7f\x9b31m\u202etxt' })
  log.flush()
  t.match(reader.lines, [
    { reason: 'bad key ***', path: '/v1/models/x_sk-***' },
    { level: 'info', time: Number, path: '/v1/models' },
    { level: 'warn', err: { message: '***' }, msg: 'said sk-***' },
    { large: Number, itself: { itself: '[Circular]' } },
    { stage: 'quiet-hours', open: true },
    { level: 'info', time: Number },
    { level: 'info' },
    { msg: '1 of 2' },
    { path: '/\x7f\x9b31m\u202etxt' },
  ])
  t.match(reader.text, String.raw`"/\u007f\u009b31m\u202etxt"`, 'no terminal obeys it')
  t.notMatch(reader.text, /credential|slashed|password|0123456789|code/)
})

t.test('an error shows its causes, the addresses that were tried, and no other members', t => {
  const reader = new Reader()
  const log = createLog(new Scrubber(), 'info', reader)
  const tried = ['192.0.2.1', '192.0.2.2'].map(address =>
    Object.assign(new Error(`connect ECONNREFUSED ${address}`), { code: 'ECONNREFUSED', config: { data: 'a prompt' } }),
  )
  const both = Object.assign(new AggregateError(tried, ''), { code: 'ECONNREFUSED' })
  log.error({ err: new Error('the store failed', { cause: both }) })
  log.error({ err: { message: 'no Error', code: 7, body: 'a prompt' } })
  let deep = new AggregateError([], '')
  for (let level = 0; level < 40; level++) deep = new AggregateError([deep, deep], '')
  log.error({ err: deep })
  log.flush()
  t.match(reader.lines, [
    {
      err: {
        message: 'the store failed: connect ECONNREFUSED 192.0.2.1; connect ECONNREFUSED 192.0.2.2',
        stack: /the store failed[^]*caused by: AggregateError/,
      },
    },
    { err: { message: 'no Error (7)', code: '7' } },
    { err: { type: 'AggregateError' } },
  ])
  t.notMatch(reader.text, 'prompt')
  t.end()
})

t.test('a slow reader loses lines, which the log reports, and takes no more than the allowed memory', async t => {
  const reader = new Reader()
  const log = createLog(new Scrubber(), 'info', reader)
  const told = 30_000
  for (let line = 0; line < told; line++) log.info({ line, text: 'x'.repeat(1000) })
  const read = async (): Promise<void> => {
    let over = false
    log.flush(() => (over = true))
    while (!over) {
      reader.take()
      await new Promise(setImmediate)
    }
  }
  await read()
  t.ok(reader.text.length > 16 * 1024 * 1024 && reader.text.length < 17 * 1024 * 1024, String(reader.text.length))
  const lines = reader.lines
  const loss = lines.at(-1)
  t.match(loss, { level: 'warn', msg: /log lines were lost/ }, 'as soon as there is room')
  t.equal(lines.length - 1 + loss.lines, told, 'each is there or counted')
  log.info('read again')
  await read()
  t.match(reader.lines.at(-1), { msg: 'read again' })
})

t.test('other output on the same stream does not delay the log', async t => {
  const reader = new Reader()
  const log = createLog(new Scrubber(), 'info', reader)
  for (let line = 0; line < 100; line++) log.info({ line, text: 'x'.repeat(100) })
  reader.write('Draining')
  for (let line = 100; line < 200; line++) log.info({ line, text: 'x'.repeat(100) })
  const read = new Promise<void>(resolve => log.flush(() => resolve()))
  const reading = setInterval(() => reader.take())
  await read
  clearInterval(reading)
  t.equal(reader.text.match(/"line":/g)?.length, 200)
  t.match(reader.text, 'Draining')
})

t.test('the log reports lines that could not be written, and the next line starts on a new line', async t => {
  const reader = new Reader()
  const log = createLog(new Scrubber(), 'info', reader)
  const flushed = (): Promise<void> => new Promise(resolve => log.flush(() => resolve()))
  reader.on('error', () => {})
  log.info({ line: 1 })
  const taking = setInterval(() => reader.take())
  await flushed()
  reader.full = true
  log.info({ line: 2 })
  await flushed()
  reader.full = false
  log.info({ line: 3 })
  await flushed()
  clearInterval(taking)
  t.match(reader.text.split('\n'), [
    /"line":1/,
    /^\{"level":"in$/,
    /"lines":1,"msg":"log lines were lost/,
    /"line":3/,
    '',
  ])
})
