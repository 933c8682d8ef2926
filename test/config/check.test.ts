import { readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import { render, type Problem } from '../../core/config/locate.ts'
import { SCHEMA } from '../../core/config/schema.ts'
import { loadConfig } from '../../core/config/load.ts'
import { checkChain } from '../../core/chain/check-chain.ts'

const FOLDER = new URL('bad/', import.meta.url)
const ENV = { PRESENT: 'secret-value' }

function shownProblem({ line, col, path, message, hint }: Problem): string {
  return `${line}:${col} ${path === '' ? '' : `${path}: `}${message}${hint === undefined ? '' : ` = ${hint}`}`
}

/** Each file under bad/ ends with the lines that `tollgate check` must print for it, as comments. */
for (const file of readdirSync(FOLDER)) {
  t.test(`bad/${file} is reported with line and remedy`, async t => {
    const path = new URL(file, FOLDER).pathname
    const expected = readFileSync(path, 'utf8')
      .split('\n')
      .filter(line => line.startsWith('#! '))
      .map(line => line.slice(3))
    const loaded = await loadConfig(path, ENV, checkChain)
    t.equal(loaded.config, undefined)
    t.same(loaded.problems.map(shownProblem), expected)
    t.notMatch(render(loaded.problems, loaded.text), 'secret-value', 'no value from the environment is shown')
  })
}

/** Faults after which the YAML parser cannot continue. Each is reported once, as close to its origin as possible. */
const SLIPS: readonly [text: string, expected: string][] = [
  ['', '1:1 the file is empty'],
  [
    'store: { replicas: 0\n\n# a remark\nledger: {}\n',
    '1:20 a } is missing = close the bracket before the next line with the same or less indentation',
  ],
  [
    'plugins: [./plugins   # a remark\nledger: {}\n',
    '1:19 a ] is missing = close the bracket before the next line with the same or less indentation',
  ],
  ['store:\n  redis: "auto\nledger: {}\n', '2:10 the closing " is missing'],
  [
    'ledger:\n   lease: 60s\n  retries: 15m\n  remember: 48h\n',
    '3:3 this line is indented differently from the lines beside it = indent all lines of a block equally',
  ],
  ['chain:\n  - auth\n  -balance\n  - history\n', '3:3 a space is missing after this -'],
  ['workers:2\nledger: {}\n', '1:1 expected a name with its value = write name: value, with a space after the colon'],
  ['ledger: {}\nchain\n', '2:1 expected a name with its value = write name: value, with a space after the colon'],
  [
    'plugins: ["a # b"   # a remark\n\n',
    '1:17 a ] is missing = close the bracket before the next line with the same or less indentation',
  ],
  [
    'ledger: {}\n\n# a remark\n   limits: {}\n',
    '4:4 this line is indented differently from the lines beside it = indent all lines of a block equally',
  ],
  [
    'keyTypes:\n  a: 1\n\n   # a remark\n   b: 2\n  c: 3\n',
    '5:4 this line is indented differently from the lines beside it = indent all lines of a block equally',
  ],
  [
    'store: { data: "a"-b }\n',
    '1:19 the YAML is invalid from here on = look for a missing or extra bracket, comma, space or quote',
  ],
  [
    'workers: 1: 2\n',
    '1:10 this does not fit with what follows = check the indentation of both; quote a text that contains a colon and a space; put a mapping on one line in { }',
  ],
  ['plugins: *folders\n', '1:10 there is no anchor &folders above this line = quote a text that begins with *'],
  [
    'listen: { host: 127.0.0.1 port: 1 }\n',
    '1:17 this is not allowed inside brackets = separate items in brackets with commas',
  ],
  [
    'listen: { port: ${PORT:-80}, host: h }\n',
    '1:17 this is not how to use an environment variable = write !env PORT as the whole value, or !env PORT fallback',
  ],
  ['ledger: {}\n---\nledger: {}\n', '2:1 a second document begins here = use one document, without ---'],
]

for (const [text, expected] of SLIPS) {
  t.test(`${JSON.stringify(text)} is one problem, in plain words`, async t => {
    const { problems } = await loadConfig('gateway.yaml', {}, checkChain, text)
    t.same(problems.map(shownProblem), [expected])
  })
}

const SOUND = `upstreams: { a: { url: simulated, speaks: [messages], accounts: [{ key: simulated }] } }
prices: { p: { input: 1, output: 2 } }
keyTypes: { t: { upstream: a, formats: [messages], default: m, models: [{ id: m, price: p }] } }
chain: [access-log]
`

t.test('a text that is not the name of a variable is reported, and not shown', async t => {
  const { problems } = await loadConfig('gateway.yaml', {}, checkChain, 'log: !env secret-1\n')
  const shown = problems.map(shownProblem)
  t.ok(shown.includes('1:6 this is not the name of a variable = write !env NAME, or !env NAME fallback'))
  t.notMatch(shown.join(), 'secret')
})

t.test('a variable that is not set does not hide other problems', async t => {
  const { problems } = await loadConfig(
    'gateway.yaml',
    {},
    checkChain,
    `${SOUND}workers: !env NOPE\nledger: { lease: 60 }\n`,
  )
  t.same(
    problems.map(({ line, message }) => `${line} ${message}`),
    [
      '5 this environment variable is not set: NOPE',
      '6 expected a duration such as 500ms, 15s, 10m or 24h, from 1ms to 24d',
    ],
  )
})

t.test('no credential of the file or the environment is printed, wherever it stands', async t => {
  const slips = ['price: p', 'upstream: a', 'default: m'].map(slip =>
    SOUND.replace(slip, slip.replace(/\w$/, '!env NAME')),
  )
  slips.push(
    SOUND.replace('[access-log]', '[!env NAME]'),
    SOUND.replace('{ key: simulated }', '{ key: top-secret and more }'),
  )
  slips.push(
    `${SOUND}store: { redis: "redis://:top-secret@h:abc" }\n`,
    SOUND.replace('url: simulated', 'url: "https://u:top-secret@x.example"'),
  )
  slips.push(SOUND.replace('price: p }', 'price: *secret }').replace('url: simulated', 'url: &secret !env NAME'))
  slips.push(SOUND.replace('{ key: simulated }', '{ key: !env NOPE top-secret, header: x }'))
  // A credential without a telling word near it.
  const made = 'AIzaSyB4top5secretX9'
  for (const account of [
    `{ apiKey: ${made} }`,
    `{ kye: ${made} }`,
    `[${made}]`,
    `{ key=${made} }`,
    `{ key:${made} }`,
    `{ key: !env ${made} }`,
  ]) {
    slips.push(SOUND.replace('{ key: simulated }', account))
  }
  slips.push(
    `${SOUND}store: { password: top-secret }\n`,
    `${SOUND}store: { redis: 'redis://:top-secret' }\n`,
    `${SOUND}store: { redis: 'http://u:top-secret@x@h' }\n`,
  )
  slips.push(
    `${SOUND}REDIS_PASSWORD=top-secret\n`,
    SOUND.replace('access-log', 'access-log, metrics: { token: [top-secret] }'),
  )
  for (const text of slips) {
    const { problems } = await loadConfig('gateway.yaml', { NAME: 'top-secret' }, checkChain, text)
    t.ok(problems.length > 0, text)
    t.notMatch(render(problems, text), /top.secret/)
  }
})

t.test('an error about a credential shows nothing of it', async t => {
  const shown = async (from: string, to: string): Promise<string> => {
    const text = SOUND.replace(from, to)
    return render((await loadConfig('gateway.yaml', {}, checkChain, text)).problems, text)
  }
  t.match(await shown('access-log', 'access-log, metrics: { token: short }'), /metrics\.token: expected .*16/)
  t.match(await shown('{ key: simulated }', '{ key: "" }'), /accounts\[0\]\.key: [^*]+\n/)
  t.match(
    await shown('{ key: simulated }', '{ apiKey: made-up }'),
    /accounts\[0\]\.apiKey: there is no setting "apiKey" here\n/,
  )
  t.match(await shown('upstreams:', 'limits: { memory: 256 }\nupstreams:'), /did you mean 256MiB\?/)
  t.match(
    await shown('upstreams:', 'limits: { trustedProxies: 10.0.0.0/8 }\nupstreams:'),
    /did you mean \[10\.0\.0\.0\/8\]\?/,
  )
  for (const range of ['0.0.0.0/0', '::/0', '10.0.0.0/33', 'nginx'])
    t.match(
      await shown('upstreams:', `limits: { trustedProxies: ['${range}'] }\nupstreams:`),
      /trustedProxies\[0\]: expected/,
      range,
    )
  t.match(await shown('{ key: simulated }', '{ key: !env NOPE }'), /\| .*\{ key: !env NOPE \}/, 'a variable is none')
})

t.test('names of settings and the words of errors are not masked as credentials', t => {
  const words: string[] = []
  const walk = (schema: object): void => {
    for (const [name, value] of Object.entries(schema)) {
      if (name === 'description') words.push(`expected ${value}`)
      if (name === 'properties')
        words.push(
          ...Object.keys(value as object).flatMap(setting => [
            `there is no setting "${setting}"`,
            `  ${setting}: 18.75`,
          ]),
        )
      if (typeof value === 'object' && value !== null) walk(value as object)
    }
  }
  walk(SCHEMA)
  for (const message of words) {
    // The value behind these words is always hidden.
    if (!/^ +(?:key|api_key|accounts|header|importSuffix):/.test(message))
      t.match(render([{ file: 'f', line: 1, col: 1, width: 1, path: '', message }], ''), message.trim())
  }
  t.end()
})

t.test('aliases that expand to more than the memory are refused', async t => {
  const lines = Array.from(
    { length: 12 },
    (_, at) => `a${at + 1}: &a${at + 1} [${Array.from({ length: 9 }, () => `*a${at}`).join(', ')}]`,
  )
  const { problems } = await loadConfig('gateway.yaml', {}, checkChain, `a0: &a0 [x]\n${lines.join('\n')}\n`)
  t.match(problems, [{ message: 'the aliases of this file expand to too many values' }])
})

t.test('a long line is shown only around its problem, without control characters', async t => {
  const text = `${SOUND}limits: { ${' '.repeat(5000)} "a\u001b[31m": 1 }\n`
  const { problems } = await loadConfig('gateway.yaml', {}, checkChain, text)
  const shown = render(problems, text)
  t.match(shown, /there is no setting/)
  t.ok(shown.length < 1000)
  t.notMatch(shown, '\u001b')
})
