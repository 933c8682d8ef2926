import t from 'tap'
import { findPlugins } from '../../core/chain/plugins.ts'
import { SCHEMA } from '../../core/config/schema.ts'
import { compileForeign } from '../../core/config/shape.ts'
import { definePlugin } from '../../core/plugin/index.ts'
import { drive } from '../../core/testing/index.ts'

t.test('the schemas of the file and of each built-in plugin are JSON Schemas', async t => {
  const { plugins, foreign } = await findPlugins([])
  t.equal(foreign.size, 0)
  t.ok(plugins.size > 20)
  const schemas = [SCHEMA, ...[...plugins.values()].map(({ options }) => options)]
  for (const schema of schemas) t.doesNotThrow(() => compileForeign(schema))
  t.throws(() => compileForeign({ type: 'strng' }))
})

t.test('a test of a plugin whose options are not a JSON Schema fails', async t => {
  const plugin = definePlugin({
    name: 'wrong',
    summary: 'Has wrong options.',
    on: 'all',
    options: { type: 'object', properties: { count: { type: 'number', minimum: '5' } } } as never,
    setup: () => ({}),
  })
  await t.rejects(drive(plugin, {}), { message: /schema is invalid/ })
})
