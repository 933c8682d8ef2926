import { copyFileSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import t, { type Test } from 'tap'
import { audit } from '../../core/ledger/audit.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { timedId } from '../../core/lib/ids.ts'
import type { Sql } from '../../core/records/database.ts'
import { type Commit, Lineage } from '../../core/records/lineage.ts'
import { migrate } from '../../core/records/migrations.ts'
import { openSqlite } from '../../core/records/sqlite.ts'
import { findServer } from '../../core/store/managed.ts'
import type { Edit } from '../gateway-file.ts'
import { beside, startGateway, type TestGateway, until, upstreamEnv } from '../gateway.ts'
import { Place, type Running } from '../process.ts'
import { newDatabase, onEachEngine } from '../records/engines.ts'
import { ownPrefix, RealRedis } from '../redis.ts'
import { ScriptedUpstream } from '../upstream.ts'

/** The database lacks its last transactions: another server took its place, or it was restored from a backup. */

const skip = findServer(process.env) === undefined && 'no redis-server on PATH'
const onPostgres = process.env['TEST_RECORDS'] === 'postgres' && 'the records are not in SQLite'
const CREDIT = 1_000_000_000n

/** A database that can go back to what it was. */
class Rewindable {
  readonly url: string
  readonly #name: string
  readonly #admin: pg.Client

  private constructor(url: string, admin: pg.Client) {
    this.url = url
    this.#name = new URL(url).pathname.slice(1)
    this.#admin = admin
  }

  static async create(t: Test): Promise<Rewindable> {
    const url = await newDatabase()
    const admin = new pg.Client(Object.assign(new URL(url), { pathname: '/postgres' }).href)
    await admin.connect()
    t.teardown(() => admin.end())
    return new Rewindable(url, admin)
  }

  async save(): Promise<void> {
    await this.#alone(() => this.#admin.query(`CREATE DATABASE ${this.#name}_then TEMPLATE ${this.#name}`))
  }

  async goBack(): Promise<void> {
    await this.#alone(async () => {
      await this.#admin.query(`ALTER DATABASE ${this.#name} RENAME TO ${this.#name}_gone`)
      await this.#admin.query(`ALTER DATABASE ${this.#name}_then RENAME TO ${this.#name}`)
    })
  }

  /** Does something while no connection is open. */
  async #alone(work: () => Promise<unknown>): Promise<void> {
    await this.#admin.query(`ALTER DATABASE ${this.#name} ALLOW_CONNECTIONS false`)
    const others = 'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1'
    for (;;) {
      const { rowCount } = await this.#admin.query(others, [this.#name])
      if (rowCount === 0) break
    }
    await work()
    await this.#admin.query(`ALTER DATABASE ${this.#name} ALLOW_CONNECTIONS true`)
  }
}

/** Settles an exchange, and waits until the store has it. */
async function settled(ledger: Ledger, account: string, charge: bigint, model: string): Promise<void> {
  const before = (await ledger.reads.balance(account)).settled
  const notes = { endpoint: '/x', model, stream: false, status: 'ok' } as const
  ledger.settle({ account, id: timedId(Date.now()) }, { charge, kind: 'settle', notes })
  await until(async () => (await ledger.reads.balance(account)).settled === before + charge)
}

async function archived({ gateway }: TestGateway): Promise<void> {
  await until(() =>
    gateway.ledger.background.archiveAll().then(
      () => true,
      () => false,
    ),
  )
}

const models = async ({ gateway }: TestGateway, account: string): Promise<unknown[]> =>
  (await gateway.ledger.reads.history({ account: account }, { count: 50 })).map(({ charge, notes }) => [
    Number(charge),
    notes.model ?? '',
  ])

t.test(
  'when the database falls back under running gateways, each account keeps its sums, and what comes next is recorded where it belongs',
  { skip },
  async t => {
    const redis = await RealRedis.start(t)
    const database = await Rewindable.create(t)
    const env = { REDIS_URL: redis.url, DATABASE_URL: database.url }
    const slow: Edit = file => ownPrefix(file).set('ledger.archiveEvery', '1h')
    const one = await startGateway(t, { edit: slow, env })
    const shared = beside(one, slow)
    const other = await startGateway(t, { edit: shared, env })
    const { ledger, keys } = one.gateway
    const first = await one.id(await one.key('famC', 1n))
    await settled(ledger, first, 10n, 'm1')
    await archived(one)
    await database.save()

    const secrets = [await one.key('famC', 1n), await one.key('famA', 2n), await one.key('famB', 3n)]
    const [second = '', third = '', fourth = ''] = await Promise.all(secrets.map(secret => one.id(secret)))
    const grants = async (g: TestGateway): Promise<void> => {
      await g.gateway.ledger.accounts.grant(first, { id: `g-${g.url}`, amount: 5n * CREDIT, notes: { reason: 'paid' } })
    }
    await Promise.all([grants(one), grants(other)])
    await keys.changes.disable(fourth)
    for (const [account, charge, model] of [
      [second, 20n, 'm2'],
      [third, 30n, 'm3'],
      [first, 40n, 'm4'],
      [first, 41n, 'm5'],
    ] as const)
      await settled(ledger, account, charge, model)
    await archived(one)
    await settled(other.gateway.ledger, second, 21n, 'm6')
    const all = [first, second, third, fourth]
    const sums = (): Promise<string[]> =>
      Promise.all(
        all.map(async id =>
          Object.values(await ledger.reads.balance(id))
            .map(String)
            .join(' '),
        ),
      )
    const before = await sums()
    await database.goBack()

    const { epoch } = ledger.continuity
    // A process that has recorded nothing itself knows what the records must have.
    const refused = await other.gateway.ledger.accounts
      .grant(first, { id: 'g-late', amount: CREDIT, notes: { reason: 'paid' } })
      .then(
        () => 'granted',
        () => 'refused',
      )
    t.equal(refused, 'refused')
    await until(async () => {
      // Any transaction tells.
      await other.gateway.records.database.transaction(async () => {}).catch(() => {})
      return [one, other].every(g => g.gateway.ledger.continuity.open && g.gateway.ledger.continuity.epoch > epoch)
    })
    t.same(await sums(), before)
    await settled(ledger, third, 31n, 'm7')
    await settled(other.gateway.ledger, second, 22n, 'm8')
    await archived(one)
    for (const g of [one, other]) {
      t.same(
        await models(g, first),
        [
          [81, ''],
          [10, 'm1'],
        ],
        'the charges of the lost entries are one',
      )
      t.same(
        await models(g, second),
        [
          [22, 'm8'],
          [21, 'm6'],
          [20, ''],
        ],
        'what still waited is recorded whole',
      )
      t.same(await models(g, third), [
        [31, 'm7'],
        [30, ''],
      ])
    }
    t.match(await audit(ledger, undefined), { accounts: 4, drifts: { length: 0 } })
    t.match(await one.gateway.records.keys.get(fourth), { type: 'famB', status: 'disabled', granted: 3n * CREDIT })
    t.match(await one.gateway.records.keys.get(first), { granted: 11n * CREDIT, grants: 3 })
    t.equal((await one.call('/api/v1/keys/lookup/balance', { key: secrets[0] as string })).status, 200)
    await ledger.accounts.grant(first, { id: 'g-next', amount: CREDIT, notes: { reason: 'paid' } })
    t.equal((await ledger.reads.balance(first)).granted, 12n * CREDIT, 'a later grant is applied')
  },
)

t.test(
  'a gateway whose SQLite file was restored from a backup records again what its store knows',
  { skip: skip || onPostgres },
  async t => {
    const redis = await RealRedis.start(t)
    const upstream = await ScriptedUpstream.start(t)
    const place = new Place(t, ownPrefix, { ...upstreamEnv(upstream.url), REDIS_URL: redis.url })
    const [file, backup] = ['records.sqlite', 'backup'].map(name => join(place.folder, 'data', name)) as [
      string,
      string,
    ]
    const body = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
    const asks = async (running: Running, key: string): Promise<void> => {
      t.equal((await running.chat(key, body)).status, 200)
      await until(async () => (await running.held(key)) === '0')
    }
    const first = await place.startProcess(t)
    const { key: early } = await place.key('famC', '5')
    await asks(first, early)
    await first.stop('SIGTERM')
    copyFileSync(file, backup)
    const second = await place.startProcess(t)
    const { key: late } = await place.key('famC', '5')
    for (const key of [early, late, late]) await asks(second, key)
    await second.stop('SIGTERM')
    for (const ending of ['-wal', '-shm']) rmSync(file + ending, { force: true })
    copyFileSync(backup, file)

    const third = await place.startProcess(t)
    await third.saw(/the database lacks transactions that it had committed/)
    await third.saw(/"exchanges":3,"accounts":2/)
    for (const key of [early, late]) await asks(third, key)
    t.match(await place.run('audit'), { code: 0, out: /2 accounts/ })
    t.equal((await third.lookUp('key-info/history', late)).json.data.length, 2)
  },
)

onEachEngine('a transaction is refused while the database lacks one that this process has seen', async (t, open) => {
  const records = await open()
  const { database, lineage } = records
  await database.transaction(async () => {})
  let noticed = 0
  lineage.onFellBack = () => noticed++
  const other = await open()
  await other.database.transaction(async sql => sql.all('DELETE FROM commits'))
  await t.rejects(
    database.transaction(async () => {}),
    { message: /lacks transactions/ },
  )
  t.equal(noticed, 1)
  await lineage.follow()
  t.equal(await database.transaction(async () => 'done'), 'done')
})

t.test('a transaction goes on if the commit of another process becomes known while the database answers', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-lineage-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const opened = await openSqlite(join(folder, 'records.sqlite'))
  t.teardown(() => opened.close())
  const newId = (): string => timedId(Date.now())
  await migrate(opened, newId)
  const other = new Lineage(opened, newId)
  let news: Commit | undefined
  other.onCommit = async commit => void (news = commit)
  const lineage = new Lineage(
    {
      ...opened,
      transaction: use =>
        opened.transaction(sql => {
          const all: Sql['all'] = async (...query) => {
            const rows = await sql.all(...query)
            lineage.expect(news)
            return rows
          }
          return use({ all, put: (...query) => sql.put(...query), putRows: rows => sql.putRows(rows) })
        }),
    },
    newId,
  )
  const transaction = (of: Lineage): Promise<string> => of.followed().transaction(async () => 'done')
  await transaction(lineage)
  await transaction(other)
  t.equal(await transaction(lineage), 'done')
})

onEachEngine('a process that has been idle for ten thousand transactions goes on', async (t, open) => {
  const records = await open()
  const { database } = records
  await database.transaction(async sql => {
    await sql.all("INSERT INTO commits (no, id) VALUES (20000, 'of another process')")
  })
  const other = await open()
  await other.database.transaction(async sql => {
    await sql.all('DELETE FROM commits WHERE no < 20000')
  })
  t.equal(await database.transaction(async () => 'done'), 'done')
})
