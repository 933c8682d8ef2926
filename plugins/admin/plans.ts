/** Plans in the admin API: set, extended, ended, and changed by hand. */
import * as operator from 'tollgate/plugin/operator'
import { balanceOf, type Call, noting, type Operation, operation } from './operation.ts'
import { BALANCE } from './schemas.ts'

type Given = operator.GivenChange

function changing(change: operator.PlanChangeName): Operation {
  const { summary, properties, required } = operator.CHANGE_MEMBERS[change]
  return operation({
    method: 'POST',
    path: change === 'set' ? '/balances/{id}/plan' : `/balances/{id}/plan/${change}`,
    summary,
    scope: 'keys',
    creates: 'grant',
    body: { type: 'object', additionalProperties: false, required, properties },
    reply: BALANCE,
    run: call => changed(call as Call<unknown, Given>, change),
    async show({ id }: { id: string }, call) {
      const [view] = await operator.balanceViews(call.office.ledger, [await balanceOf(call, id)])
      return view
    },
  })
}

async function changed(call: Call<unknown, Given>, change: operator.PlanChangeName): Promise<{ readonly id: string }> {
  const { ledger, keys, config } = call.office
  const { id } = await balanceOf(call)
  const done = { id }
  const also = noting(call, done, { action: `plan.${change}`, target: id, details: call.body })
  const wish = { account: id, id: `api:${call.once.id}`, also }
  const made = await operator.changePlan({ plans: keys.plans, config }, change, wish, call.body)
  return made ? done : call.once.repeat(ledger.records)
}

/** All of them. */
export const PLAN_OPERATIONS: readonly Operation[] = operator.PLAN_CHANGES.map(changing)
