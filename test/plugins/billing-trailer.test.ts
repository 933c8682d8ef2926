import t from 'tap'
import trailer from '../../plugins/billing-trailer.ts'
import { drive } from 'tollgate/testing'
import { at, CHAT, event, headOf } from './facts.ts'

const facts = { runningHold: { receipt: () => ({ charge: 330_000n, balance: 9_900_000_000n }) } } as never

t.test('a JSON reply has cost and balance as headers', async t => {
  const { stage } = await drive(trailer, { exchange: at(CHAT), facts })
  const head = headOf()
  t.equal(stage.rewrite?.({ id: 'x', ...(facts as object) } as never, head), undefined)
  t.same(head.reply, { 'x-tollgate-cost': '0.00033', 'x-tollgate-balance': '9.9' })
})

t.test('a stream has cost and balance in a comment before its last event, and before no other', async t => {
  const { stage } = await drive(trailer, { exchange: at(CHAT), facts })
  const x = { id: 'x', format: (await import('./facts.ts')).format(CHAT), ...(facts as object) }
  const rewriter = stage.rewrite?.(x as never, headOf({ stream: true }))
  t.equal(rewriter?.event(event(CHAT, { choices: [{ index: 0, delta: { content: 'a' } }] })), undefined)
  const [done] = rewriter?.event({ type: '', data: '[DONE]', reading: { endsStream: true } } as never) ?? []
  t.match(done, { data: '[DONE]', comment: 'tollgate cost=0.00033 balance=9.9 request=x' })
})
