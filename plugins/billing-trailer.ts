import { formatCredits, type ReplyEvent, type Rewriter } from 'tollgate/plugin'
import { defineBuiltIn, type BuiltInExchange, type BuiltInWith } from 'tollgate/plugin/metering'

/**
 * Reports what a reply cost: in headers of a JSON reply, in a comment before the last event of a stream, which SSE
 * parsers ignore. The balance considers only the request's own holds, not other running requests.
 */
export default defineBuiltIn({
  name: 'billing-trailer',
  summary:
    'Adds cost and balance to each reply: as headers of a JSON reply, as a comment before the last event of a stream.',
  on: 'inference',
  needs: ['runningHold', 'body', 'model', 'tally'],
  setup() {
    return {
      rewrite(x, head): Rewriter | undefined {
        if (head.stream) return trailer(x)
        const { cost, balance } = receipt(x)
        head.reply['x-tollgate-cost'] = cost
        head.reply['x-tollgate-balance'] = balance
        return undefined
      },
    }
  },
})

type Known = BuiltInExchange & BuiltInWith<'runningHold' | 'body' | 'model' | 'tally'>

function receipt(x: Known): { cost: string; balance: string } {
  const { charge, balance } = x.runningHold.receipt(x)
  return { cost: formatCredits(charge), balance: formatCredits(balance) }
}

function trailer(x: Known): Rewriter {
  return {
    matches: x.format.signals,
    event({ type, data, reading }: ReplyEvent) {
      if (!reading.endsStream) return undefined
      const { cost, balance } = receipt(x)
      return [{ type, data, comment: `tollgate cost=${cost} balance=${balance} request=${x.id}` }]
    },
  }
}
