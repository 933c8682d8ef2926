import { Writable } from 'node:stream'
import t from 'tap'
import { createLog, Scrubber } from '../core/log.ts'

/** Whoever reads a log: takes a piece of it when it is asked to. */
class Reader extends Writable {
  text = ''
  #taken: (() => void) | undefined

  override _write(piece: Buffer, _encoding: string, done: () => void): void {
    this.text += piece.toString()
    this.#taken = done
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

t.test('lines are JSON in the order of their calls, without keys and credentials, whatever they are made of', async t => {
  const reader = new Reader()
  const scrubber = new Scrubber()
  scrubber.watch(['upstream-credential-4711'])
  const log = createLog(scrubber, 'info', reader)
  log.debug('not asked for')
  log.info({ path: '/v1/models', code: undefined })
  log.warn({ err: Object.assign(new Error('upstream-credential-4711'), { command: { args: ['password'] } }) }, 'said sk-0123456789')
  const circle: Record<string, unknown> = { large: 90071992547409931n }
  circle['itself'] = circle
  log.info(circle)
  log.child({ stage: 'quiet-hours' }).info({ open: true })
  log.info({})
  log.info('%d of %d', 1, 2)
  log.flush()
  t.match(reader.lines, [
    { level: 'info', time: Number, path: '/v1/models' },
    { level: 'warn', err: { message: '***' }, msg: 'said sk-***' },
    { large: Number, itself: { itself: '[Circular]' } },
    { stage: 'quiet-hours', open: true },
    { level: 'info', time: Number },
    { msg: '1 of 2' },
  ])
  t.notMatch(reader.text, /4711|password|0123456789|code/)
})

t.test('a reader that does not keep up costs lines, of which the log tells, and no more memory than they may take', async t => {
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
  log.info('read again')
  await read()
  const lines = reader.lines
  const [loss, last] = lines.slice(-2)
  t.match([loss, last], [{ level: 'warn', msg: /lines were lost here/ }, { msg: 'read again' }])
  t.equal(lines.length - 2 + loss.lines, told, 'each is there or counted')
})
