import { readFileSync } from 'node:fs'
import t from 'tap'
import { loadConfig } from '../core/config/load.ts'
import { CALL_NAMES, CONDITION_NAMES, RATE_NAMES } from '../core/money/price.ts'
import { POLICIES, type Policy } from 'tollgate/plugin/metering'
import { rowsOf } from './tables.ts'
import { checkChain } from '../core/chain/check-chain.ts'

/** Compares docs/billable-members.md with the code. */

const PAGE = readFileSync(new URL('../docs/billable-members.md', import.meta.url), 'utf8')

/** Returns the rows of the table with this first heading, without code marks. */
function table(heading: string): string[][] {
  return rowsOf(PAGE, heading).map(row => row.map(cell => cell.replaceAll('`', '')))
}

function priceOf({ needs, actions }: Policy): string {
  switch (needs?.kind) {
    case 'rates':
      return needs.names.join(' or ')
    case 'condition':
      return needs.name
    case 'call':
      return needs.rate ? `calls.${needs.name}, ${needs.rate}` : `calls.${needs.name}`
    case 'model':
      return "the model's own"
    default:
      return actions.includes('allow') ? 'none needed' : 'none can be given'
  }
}

t.test('the table of members is the table in the code', t => {
  t.same(
    table('policy'),
    Object.entries(POLICIES).map(([name, row]: [string, Policy]) => [
      name,
      [...(row.places ?? []), ...row.members].join(', '),
      row.otherwise,
      row.actions.join(', '),
      priceOf(row),
    ]),
  )
  t.end()
})

t.test('the table of prices names every setting that a price can have', t => {
  const named = table('setting').flatMap(([cell = '']) => cell.split(', '))
  t.same([...named].sort(), [...RATE_NAMES, 'tiers', ...CONDITION_NAMES, 'calls'].sort())
  t.end()
})

const FILE = `upstreams: { a: { url: simulated, speaks: [messages], accounts: [{ key: simulated }] } }
prices: { p: { input: 1, output: 2, tiers: [] } }
keyTypes: { t: { upstream: a, formats: [messages], default: m, models: [{ id: m, price: p, reasoning: none, maxOutput: 1 }] } }
chain: [access-log]
`
/** With rates for what is written to a cache: `check` warns without. */
const withWrites = (text: string): string => text.replace('output: 2', 'output: 2, cacheWrite5m: 1.25, cacheWrite1h: 2')
const problems = async (text: string): Promise<string[]> =>
  (await loadConfig('gateway.yaml', {}, checkChain, text)).problems.map(
    ({ path, message, hint }) => `${path}: ${message} = ${hint ?? ''}`,
  )

t.test(
  'a file that allows a member without a price does not load, and the error names the missing setting',
  async t => {
    t.same(await problems(FILE), [])
    for (const [name, { actions, needs }] of Object.entries(POLICIES) as [string, Policy][]) {
      const found = await problems(FILE.replace('default: m,', `default: m, policy: { ${name}: allow },`))
      if (!actions.includes('allow')) t.match(found, [/expected one of refuse, drop/], name)
      else if (needs === undefined || needs.kind === 'model') t.same(found, [], name)
      else
        t.same(found, [
          `keyTypes.t.policy.${name}: "${name}" is allowed but has no price = set ${priceOf(
            POLICIES[name as keyof typeof POLICIES],
          )
            .split(', ')
            .map(setting => `prices.p.${setting}`)
            .join(', ')}`,
        ])
      for (const action of actions.filter(each => each !== 'allow'))
        t.same(
          await problems(FILE.replace('default: m,', `default: m, policy: { ${name}: ${action} },`)),
          [],
          `${name}: ${action}`,
        )
    }
  },
)

t.test('every kind of price loads; a tier that lacks a rate of its price does not', async t => {
  const price = (text: string): string => FILE.replace('output: 2, tiers: []', `output: 2, ${text}`)
  const factors = CONDITION_NAMES.map(name => `${name}: { x: 1.5 }`).join(', ')
  const calls = `calls: { ${CALL_NAMES.map(name => `${name}: 0.01`).join(', ')} }`
  t.same(
    await problems(
      price(`tiers: [{ above: 10, input: 2, output: 3 }, { above: 20, input: 3, output: 4 }], ${factors}, ${calls}`),
    ),
    [],
  )
  t.same(await problems(price('cacheRead: 0.1, tiers: [{ above: 10, input: 2, output: 3 }]')), [
    'prices.p.tiers[0]: this tier lacks cacheRead = a tier needs every rate that its price has',
  ])
  t.same(await problems(price('tiers: [{ above: 10, input: 2, output: 3 }, { above: 10, input: 2, output: 3 }]')), [
    'prices.p.tiers[1].above: expected more than 10 = sort the tiers by `above`, smallest first, without duplicates',
  ])
  t.same(await problems(price('tiers: [], serviceTier: { default: 2 }')), [
    'prices.p.serviceTier.default: "default" is the standard, which the rates themselves are for = list what costs more or less than the standard',
  ])
})

t.test('an alias that sends another model needs a price of its own; other aliases must not have one', async t => {
  const alias = (text: string): string => FILE.replace('maxOutput: 1 }', `maxOutput: 1 }, { id: n, as: m${text} }`)
  t.same(await problems(alias(', sends: dearer')), [
    'keyTypes.t.models[1].sends: "n" sends a different model than "m" and needs its own price = add price: one of p',
  ])
  t.same(await problems(alias(', sends: dearer, price: p')), [])
  t.same(await problems(alias(', price: p')), ['keyTypes.t.models[1].price: an alias has the price of its model = '])
})

t.test('check warns of a price without a rate for long input if a model accepts long input', async t => {
  const warnings = async (text: string): Promise<string[]> => {
    const loaded = await loadConfig('gateway.yaml', {}, checkChain, withWrites(text))
    return loaded.config ? loaded.warnings.map(({ path, message }) => `${path}: ${message}`) : []
  }
  t.same(await warnings(FILE), [])
  const bare = FILE.replace(', tiers: []', '')
  t.same(await warnings(bare), ['prices.p: price "p" has no "tiers", but the input of "m" may exceed 200000 tokens'])
  t.same(await warnings(bare.replace('maxOutput: 1 }', 'maxOutput: 1, context: 200000 }')), [])
})

t.test(
  'an error about a misplaced member names its policy, and check warns of a cost for a model that is never sent',
  async t => {
    t.match(await problems(FILE.replace('default: m,', 'default: m, policy: { web_search_options: drop },')), [
      /= write webSearch, which it belongs to$/,
    ])
    t.match(await problems(FILE.replace('tiers: []', 'tiers: [], serviceTier: { Priority: 2, auto: 2 }')), [
      /names are lower case = write it as priority/,
      /"auto" is not a tier that a reply reports/,
    ])
    const cost = (model: string): string =>
      FILE.replace('{ url: simulated,', `{ cost: { ${model}: p }, url: simulated,`)
    const warned = async (text: string): Promise<unknown[]> => {
      const loaded = await loadConfig('gateway.yaml', {}, checkChain, withWrites(text))
      return loaded.config ? [...loaded.warnings] : [loaded.problems]
    }
    t.match(await warned(cost('n')), [{ message: 'no key type sends "n" to this upstream' }])
    for (const model of ['m', "'*'"]) t.same(await warned(cost(model)), [])
  },
)
