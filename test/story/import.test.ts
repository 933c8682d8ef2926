/** Keys that customers bring from another gateway. */
import { createHash } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { audit } from '../../core/ledger/audit.ts'
import { importRows, type ImportRow } from '../../core/operator/import.ts'
import { hintOf } from '../../core/keys/secrets.ts'
import { NANO } from '../../core/money/credits.ts'
import { NotImported } from '../../core/records/key-import.ts'
import { startGateway, type TestGateway, until } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import { Place } from '../process.ts'
import { operate } from '../admin.ts'

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex')
const secret = (name: string, prefix = 'sk-'): string => `${prefix}${name}${'x'.repeat(30)}`
const SUFFIX = 'an encryption key of 32 letters!'
const CHAT = '/v1/chat/completions'
const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
const OLD: Edit = file => file.set('keys', { prefixes: ['cr_', 'team-'], importSuffix: SUFFIX })

/** A folder with a file of keys. */
function placeOf(t: Test, edit?: Edit) {
  const place = new Place(t, edit)
  const write = (lines: readonly string[], name = 'keys.csv'): string => {
    const file = join(place.folder, name)
    writeFileSync(file, `${lines.join('\n')}\n`)
    return file
  }
  const run = async (lines: readonly string[], ...args: string[]) => {
    const { code, out, err } = await place.run('keys', 'import', write(lines), '--json', ...args)
    return { code, err, ...(JSON.parse(out || '{}') as { readonly refused?: unknown }) }
  }
  return { place, write, run }
}

const HEADER = 'secret,type,name,credits,cap,expires,status,external_id'
const FILE = [
  HEADER,
  `${secret('anna')},famC,Anna's laptop,12.5,,,,user 1`,
  `${secret('annb')},famB,"Anna, phone",12.5,3,,,user 1`,
  `${secret('bob')},famC,Bob,-0.75,,2031-01-31,,user 2`,
  `${secret('cleo')},famC,Cleo,5,,,disabled,user 3`,
  `${secret('dora')},famC,Dora,5,,2020-01-01,,user 4`,
  `${secret('erik')},famC,Erik,,,,deleted,user 5`,
  `${secret('lone')},famC,,1,,,active,`,
]

t.test('a file of keys is imported as it says, and a second time it changes nothing', async t => {
  const { place, run, write } = placeOf(t)
  const trial = await run(FILE, '--dry-run')
  const sums = { new_balances: 5, joined_balances: 0, left_out: 1, credits_before: '0', credits_after: '22.75' }
  t.match(trial, { code: 0, dry_run: true, to_import: 6, imported: 0, refused: [], ...sums })
  t.match(await place.run('keys', 'list', '--json'), { out: '' }, 'a trial changes nothing')
  t.match(await run(FILE), { code: 0, imported: 6, known: 0, in_force: true, refused: [], ...sums })
  const again = { imported: 0, known: 6, new_balances: 0, credits_before: '22.75', credits_after: '22.75' }
  t.match(await run(FILE), { code: 0, ...again })
  const running = await place.start(t)
  const answers = [
    ['anna', 200],
    ['annb', 200],
    ['bob', 429],
    ['cleo', 401],
    ['dora', 401],
    ['lone', 200],
  ] as const
  for (const [name, status] of answers) {
    const model = name === 'annb' ? 'acme/famB-4.5' : BODY.model
    t.equal((await running.chat(secret(name), { ...BODY, model })).status, status, name)
  }
  const shown = JSON.parse((await place.run('keys', 'show', secret('annb'), '--json')).out)
  t.match(shown, { name: 'Anna, phone', type: 'famB', cap: '3', hint: 'sk-...xxxx', balance_id: /^bal_/ })
  t.match(JSON.parse((await place.run('balances', 'show', shown.balance_id, '--json')).out), {
    external_id: 'user 1',
    keys: { length: 2 },
  })
  await until(async () => (await running.held(secret('lone'))) === '0')
  t.match(await place.run('audit'), { code: 0, out: /5 accounts/ })
  t.match(await place.run('balances', 'statement', shown.balance_id), { out: /grant .*12.5.*imported/ })
  const more = [HEADER, `${secret('annc')},famC,,,,,,user 1`, `${secret('bob2')},famC,,7,,,,user 2`]
  t.match(await run(more), { code: 1, refused: [{ line: 3, reason: /exists already; leave credits empty/ }] })
  t.match(await run(more.slice(0, 2)), { imported: 1, joined_balances: 1, new_balances: 0 })
  t.match(await place.run('keys', 'import', write(FILE), '--dry-run'), { out: /6 keys are here already/ })
  const longer = [...FILE, `${secret('annd')},famC,,12.5,,,,user 1`, `${secret('anne')},famC,,0,,,,user 2`]
  t.match(
    await run(longer),
    { imported: 2, known: 6, joined_balances: 2 },
    'a longer file states the same credits again',
  )
  const [made] = [await place.key('famC', '1')]
  await place.run('keys', 'rotate', made.key)
  t.match(await run([HEADER, `${made.key},famC,,5,,,,`]), { imported: 0, known: 1 }, 'nor is the old secret of any key')
  await place.run('keys', 'rotate', secret('lone'))
  t.match(await run(FILE), { imported: 0, known: 6 }, 'a key that was rotated is not imported again')
})

t.test(
  'a file with a line that cannot be imported changes nothing, and each such line is named with its reason',
  async t => {
    const { place, run, write } = placeOf(t)
    const COLUMNS = 'secret,hash,hint,type,credits,cap,expires,status,balance,external_id'
    const cases: readonly (readonly [row: string, reason: RegExp])[] = [
      [`${secret('fine')},,,famC,1,,,,,`, /^$/],
      [',,,famC,1,,,,,', /either secret or hash/],
      [`${secret('x')},sha256:${sha256('x')},abcd,famC,1,,,,,`, /either secret or hash/],
      ['sk-short,,,famC,1,,,,,', /secret must begin with sk-, with 20 to/],
      [`${secret('a', 'cr_')},,,famC,1,,,,,`, /keys\.prefixes lists other/],
      [`${secret('q ')},,,famC,1,,,,,`, /letters, digits/],
      [`,md5:${sha256('x')},abcd,famC,1,,,,,`, /sha256: or sha256-suffix:/],
      [`,sha256:${sha256('x')},abcde,famC,1,,,,,`, /hint must have the last four/],
      [`,sha256-suffix:${sha256('x')},abcd,famC,1,,,,,`, /needs keys\.importSuffix/],
      [`${secret('b')},,,,1,,,,,`, /has no type/],
      [`${secret('c')},,,gold,1,,,,,`, /no key type/],
      [`${secret('d')},,,famC,1e3,,,,,`, /credits must be a plain decimal/],
      [`${secret('e')},,,famC,unlimited,,,,,`, /nothing is unlimited/],
      [`${secret('f')},,,famC,1000000,,,,,`, /below a million/],
      [`${secret('g')},,,famC,1,-1,,,,`, /cap must not be below zero/],
      [`${secret('h')},,,famC,1,,tomorrow,,,`, /expires must be a time/],
      [`${secret('h2')},,,famC,1,,2030-02-31,,,`, /expires must be a time/],
      [`${secret('h3')},,,famC,1,,2030-01-31T12:00:00,,,`, /expires must be a time/],
      [`${secret('i')},,,famC,1,,,sleeping,,`, /status must be/],
      [`${secret('j')},,,famC,,,,,bal_none,`, /there is no such balance/],
      [`${secret('k')},,,famC,,,,,bal_none,user`, /either balance or external_id/],
      [`${secret('l')},,,famC,,,,,user-7,`, /balance must be the id/],
      [`${secret('m')},,,famC,1,,,,,user`, /^$/],
      [`${secret('n')},,,famC,2,,,,,user`, /line 24 gives other credits/],
      [`${secret('fine')},,,famC,1,,,,,`, /line 2 has the same secret/],
    ]
    const refusals = new Map<number, string>()
    // What is wrong with a line alone is found before what is wrong with several.
    for (const part of [
      cases,
      cases.filter(([, reason]) => /no such balance|other credits|\^\$/.test(reason.source)),
    ]) {
      const { code, refused } = await run([COLUMNS, ...part.map(([row]) => row)])
      t.equal(code, 1)
      for (const { line, reason } of refused as { line: number; reason: string }[])
        refusals.set(cases.indexOf(part[line - 2] as (typeof cases)[number]), reason.replace('line 4', 'line 24'))
    }
    for (const [index, [row, reason]] of cases.entries()) t.match(refusals.get(index) ?? '', reason, row)
    t.match(await place.run('keys', 'list', '--json'), { out: '' })
    for (const [lines, words] of [
      [['key,type', 'a,b'], /there is no column "key"/],
      [[HEADER], /has no rows/],
      [['secret,credits,credits', `${secret('x')},1,999`], /a column appears twice/],
      [[HEADER, `${secret('untyped')},,,1,,,,`], /give --type/],
      [[`${secret('quoted')},famC`, 'x,y'], /first line of .* must have the names/],
      [[HEADER, `"${secret('quoted')}`], /is not a file of comma- or tab-separated values/],
    ] as const) {
      const { code, err } = await place.run('keys', 'import', write(lines))
      t.match({ code, err }, { code: 2, err: words })
      t.notMatch(err, secret('quoted'))
    }
    const tabs = [
      ['secret', 'type', 'name'],
      [secret('tabs'), 'famC', 'Tabs, "quoted"'],
    ].map(row => row.join('\t'))
    t.match(await place.run('keys', 'import', write(tabs), '--per-credit', '0'), { code: 2, err: /above zero/ })
    t.match(await run(tabs), { imported: 1 })
    const lenient = `${secret('lenient')},famC,"two
lines	and a tab ${'x'.repeat(300)}",1,,0,,`
    t.match(await run([HEADER, lenient]), { imported: 1 })
    t.match(JSON.parse((await place.run('keys', 'show', secret('lenient'), '--json')).out), {
      name: /^two lines and a tab x{180}$/,
      status: 'expired',
    })
    t.match(await place.run('keys', 'show', secret('tabs'), '--json'), { out: /"name":"Tabs, \\"quoted\\""/ })
    t.match(await place.run('keys', 'import', 'none.csv'), { code: 2, err: /cannot read none\.csv/ })
  },
)

t.test(
  'keys that are imported with a hash are found by their secrets, and from the first use on as others are',
  async t => {
    const g = await startGateway(t, { edit: OLD })
    const { keys, ledger, records } = g.gateway
    const [litellm, relay] = [secret('lite'), secret('relay', 'cr_')]
    const rows: ImportRow[] = [
      { hash: `sha256:${sha256(litellm)}`, hint: 'sk-...xyza', type: 'famC', credits: '1' },
      { hash: `sha256-suffix:${sha256(relay + SUFFIX)}`, type: 'famC', credits: '2' },
    ]
    const wish = {
      config: g.gateway.config,
      now: Date.now(),
      firstLine: 1,
      type: undefined,
      perCredit: NANO,
      isTrial: false,
    }
    t.match(await importRows(ledger, rows, wish), { result: { ids: { length: 2 } }, inForce: true })
    t.match(await keys.changes.record(relay), { hint: '...????' }, 'an operator finds it before it was used')
    const plain = { secret: relay, type: 'famC', credits: '2' }
    t.match(
      await importRows(ledger, [plain], wish),
      { result: { ids: [], knownIds: { length: 1 } } },
      'nor with its secret',
    )
    t.match(await importRows(ledger, [rows[1] ?? {}, plain], wish), { refused: [{ line: 2, reason: /same secret/ }] })
    for (const key of [litellm, relay]) t.match(await g.call('/api/v1/key-info', { key }), { status: 200 })
    await until(
      async () => (await records.keys.find([createHash('sha256').update(relay).digest('base64url')])) !== undefined,
    )
    const { redis, keys: names } = ledger.scripts
    const old = createHash('sha256')
      .update(relay + SUFFIX)
      .digest('base64url')
    await until(async () => (await redis.exists(names.pointer(old))) === 0)
    t.match(await g.call('/api/v1/key-info', { key: relay }), {
      status: 200,
      json: { balance: 2, label: 'cr_...xxxx' },
    })
    t.match(await g.call('/api/v1/key-info', { key: relay + SUFFIX.replaceAll(/\W/g, '') }), { status: 401 })
    t.match(
      await importRows(ledger, rows, wish),
      { result: { ids: [], knownIds: { length: 2 } } },
      'it is not imported again',
    )
    t.same((await audit(ledger)).drifts, [])
  },
)

t.test('secrets with another beginning are accepted if the file lists it, and never logged', async t => {
  const { place, run } = placeOf(t, file => OLD(file).set('log', 'debug'))
  t.equal(hintOf('mycompanySecretPassphrase_1234567890abcd', ['mycompany']), 'mycompany...abcd')
  const all = ['sk-', 'cr_', 'team-'].map(prefix => secret('abc', prefix))
  const rows = all.map(each => `${each},famC,,1,,,,`)
  t.match(await run([HEADER, ...rows]), { imported: 3 })
  const running = await place.start(t)
  for (const key of all) {
    t.equal((await running.chat(key, BODY)).status, 200)
    t.equal((await running.lookUp('key-info', key)).status, 200)
    t.match(await place.run('keys', 'show', key, '--json'), { code: 0 })
    // A customer may send a secret in the place of something that is logged.
    await running.chat(key, { ...BODY, model: key })
    for (const path of [key, key.replace('_', '%255F'), `${'a'.repeat(40)}${key}-and-more`])
      await (await fetch(`${running.url}/${path}`)).text()
    t.match(await place.run('keys', 'topup', key, '1', '--idempotency-key', key), { code: 2, err: /is not an API key/ })
  }
  t.equal((await running.chat(secret('abc', 'other-'), BODY)).status, 401)
  await running.stop('SIGTERM')
  for (const key of all) t.notOk(running.output.includes(key.slice(5)), key.slice(0, 5))
  for (const prefix of ['key_', 'ke', 'bal_x', 'tgs-', 'a b c'])
    t.match(await placeOf(t, file => file.set('keys.prefixes', [prefix])).place.run('check'), { code: 78 }, prefix)
})

t.test('a plan is given by its columns only, for one key and for several, and what was used of it counts', async t => {
  const { api, gateway } = await operate(
    t,
    {},
    { edit: file => file.set('keyTypes.famC.plan', { windows: [{ credits: 20, per: 'month' }], until: '60d' }) },
  )
  const row = (name: string, more: object = {}) => ({ secret: secret(name), type: 'famC', ...more })
  const anna = { external_id: 'anna', plan: 'famC', plan_ends: '2099-01-31', plan_used: '1440' }
  const keys = [
    row('anna', anna),
    row('annb', { external_id: 'anna' }),
    row('bob', { plan: 'famC', plan_used: '500000' }),
    row('cleo', { credits: '5000' }),
  ]
  const send = (dryRun: boolean) => api('POST', '/keys/import', { keys, per_credit: '1000', dry_run: dryRun })
  t.match(await send(true), { status: 200, json: { to_import: 4, new_balances: 3, plans: 2, credits_after: '5' } })
  t.match(await send(false), { status: 200, json: { imported: 4, plans: 2, in_force: true } })
  t.match(await gateway.balance(secret('annb')), {
    plan: { valid: true, ends_at: '2099-01-31T00:00:00.000Z', windows: [{ limit: 20, used: 1.44, remaining: 18.56 }] },
  })
  t.match(
    await gateway.balance(secret('bob')),
    { plan: { windows: [{ limit: 20, used: 20, remaining: 0 }] } },
    'no less than all',
  )
  t.match(await gateway.balance(secret('cleo')), { plan: null, balance: 5 })
  for (const [more, reason] of [
    [{ plan: 'famA' }, /a key type that has a plan/],
    [{ plan_used: '1' }, /need a plan/],
    [{ plan: 'famC', plan_ends: 'soon' }, /plan_ends must be a time/],
    [{ plan: 'famC', plan_used: '-1' }, /not below zero/],
    [{ plan: 'famC', plan_used: 'x' }, /plan_used must be a number of credits/],
  ] as const) {
    const { json } = await api('POST', '/keys/import', { keys: [row('dora', more)] })
    t.match(json.refused, [{ line: 1, reason }])
  }
  const longer = [...keys, row('annd', anna)]
  t.match((await api('POST', '/keys/import', { keys: longer, per_credit: '1000' })).json, { imported: 1, plans: 0 })
  t.match(
    await gateway.balance(secret('annd')),
    { plan: { windows: [{ used: 1.44 }] } },
    'a longer file states it again',
  )
  const differing = [row('erik', { ...anna, external_id: 'e' }), row('erika', { external_id: 'e', plan: 'famC' })]
  const { json } = await api('POST', '/keys/import', { keys: differing })
  t.match(json.refused, [{ line: 2, reason: /another plan/ }])
})

t.test('what was used of an imported plan is forgotten by a reset, and needs a window of all models', async t => {
  const { api, gateway } = await operate(
    t,
    {},
    {
      edit: file =>
        file
          .set('keyTypes.famC.plan', { windows: [{ requests: 5, per: 'month' }], until: '60d' })
          .set('keyTypes.famA.plan', { windows: [{ requests: 5, per: 'month', models: ['acme/famA-small-4.5'] }] }),
    },
  )
  const row = (type: string) => ({ secret: secret('fred'), type, plan: type, plan_used: '4' })
  t.match((await api('POST', '/keys/import', { keys: [row('famA')] })).json.refused, [{ reason: /counts all models/ }])
  t.match(await api('POST', '/keys/import', { keys: [row('famC')] }), { json: { imported: 1 } })
  const id = await gateway.id(secret('fred'))
  t.match(await gateway.balance(secret('fred')), { plan: { windows: [{ limit: 5, used: 4, remaining: 1 }] } })
  t.match(await gateway.call(CHAT, { key: secret('fred'), body: BODY }), { status: 200 })
  t.match(await gateway.call(CHAT, { key: secret('fred'), body: BODY }), {
    status: 429,
    json: { error: { message: /^The 5 requests of your month are used/ } },
  })
  const reset = await api('POST', `/balances/${id}/plan/reset`, { window: 1, reason: 'sorry' })
  t.equal(reset.status, 200)
  t.match(await gateway.balance(secret('fred')), { plan: { windows: [{ limit: 5, remaining: 5 }] } })
})

t.test('what was used before an import stays used beside what is added, and no file changes a known plan', async t => {
  const { api, gateway } = await operate(
    t,
    {},
    {
      edit: file =>
        file
          .set('keyTypes.famC.plan', { windows: [{ credits: 20, per: 'month' }], until: '60d' })
          .set('keyTypes.famA.plan', { windows: [{ credits: 20, per: '5h', anchor: 'first use' }] }),
    },
  )
  const row = (name: string, more: object = {}) => ({ secret: secret(name), type: 'famC', external_id: 'gus', ...more })
  const send = async (...keys: object[]) => (await api('POST', '/keys/import', { keys })).json
  t.match(await send(row('gus', { plan: 'famC', plan_used: '18' })), { imported: 1 })
  const id = await gateway.id(secret('gus'))
  const window = async () => (await gateway.balance(secret('gus')))['plan']
  await api('POST', `/balances/${id}/plan/add`, { window: 1, amount: '10', reason: 'sold' })
  t.match(await window(), { windows: [{ limit: 30, used: 18, remaining: 12 }] })
  await api('POST', `/balances/${id}/plan/reset`, { window: 1, reason: 'sorry' })
  t.match(await window(), { windows: [{ limit: 30, used: 0, remaining: 30 }] })
  t.match(await send(row('gus2', { plan: 'famC' })), { imported: 1 }, 'a longer file states the plan again')
  t.match(await send(row('gus3', { plan: 'famA' })), { refused: [{ reason: /leave plan empty/ }] })
  await send(row('hal', { external_id: 'hal', credits: '1' }))
  t.match(await send(row('hal2', { external_id: 'hal', plan: 'famC' })), { refused: [{ reason: /leave plan empty/ }] })
  t.match(await send(row('ida', { external_id: '', plan: 'famA', plan_used: '1' })), {
    refused: [{ reason: /begins anew at known times/ }],
  })
})

t.test('the admin API imports keys; rows are counted from 1', async t => {
  const { gateway: g, api: call } = await operate(t)
  const keys = [
    { secret: secret('one'), credits: '1', external_id: 'u' },
    { secret: secret('two'), external_id: 'u' },
  ]
  t.match(await call('POST', '/keys/import', { keys, type: 'famC', dry_run: true }), {
    json: { to_import: 2, imported: 0 },
  })
  t.match(await call('POST', '/keys/import', { keys, type: 'famC' }), {
    status: 200,
    json: { imported: 2, new_balances: 1, credits_after: '1', in_force: true },
  })
  t.match(await call('POST', '/keys/import', { keys, type: 'famC' }), { json: { imported: 0, known: 2 } })
  t.match(await call('POST', '/keys/import', { keys: [{ secret: 'x' }], type: 'famC' }), {
    json: { imported: 0, credits_after: null, refused: [{ line: 1, reason: /secret must begin/ }] },
  })
  t.match(await call('POST', '/keys/import', { keys: [{ secret: secret('x'), key: 'y' }] }), { status: 400 })
  t.match(await call('POST', '/keys/import', { keys, type: 'gold' }), { status: 400 })
  t.match(await g.call(CHAT, { key: secret('two'), body: BODY }), { status: 200 })
})

t.test('of imports of the same keys at the same time one imports them, and a failed one leaves nothing', async t => {
  const g = await startGateway(t)
  const { ledger, records } = g.gateway
  const rows = Array.from({ length: 300 }, (_, n) => ({
    secret: secret(`k${n}`),
    credits: '1',
    external_id: `u${n >> 1}`,
  }))
  const wish = {
    config: g.gateway.config,
    now: Date.now(),
    firstLine: 1,
    type: 'famC',
    perCredit: NANO,
    isTrial: false,
  }
  const fails = () => () => Promise.reject(new NotImported([{ line: 1, reason: 'x' }]))
  t.match(await importRows(ledger, rows, wish, fails), { result: undefined })
  t.equal(await records.keys.any(), false)
  const done = await Promise.all([1, 2, 3].map(() => importRows(ledger, rows, wish)))
  t.same(done.map(({ result }) => result?.ids.length).sort(), [0, 0, 300])
  t.match(await audit(ledger), { accounts: 150, drifts: { length: 0 } })
  t.equal((await keysIn(g)).length, 300)
})

async function keysIn(g: TestGateway) {
  return (await Array.fromAsync(g.gateway.records.keys.pages(500))).flat()
}
