import t from 'tap'
import { skip, visitsAll } from './explored.ts'
import { SHORT } from './scopes.ts'

for (const scope of SHORT)
  t.test(
    `in every state of ${scope.name}, all sums agree, and in each end everything is charged once`,
    { skip },
    async t => visitsAll(t, scope),
  )
