import { GatewayError, type Key, Reply } from 'tollgate/plugin'
import {
  allowance,
  csvReply,
  defineBuiltIn,
  historyPage,
  historyWish,
  MONEY_COLUMNS,
  pricedEntries,
  seenBy,
  PRIVATE,
  STATEMENT_COLUMNS,
  statementPage,
  statementSums,
} from 'tollgate/plugin/operator'

/** What may be asked of a statement. */
const STATEMENT_PARAMETERS: ReadonlySet<string> = new Set(['kind', 'cursor', 'page_size', 'size', 'limit', 'format'])

/** Entries of one read of a history that is sent as CSV. */
const CSV_ROWS = 500

const COLUMNS = [
  'id',
  'key',
  'created_at',
  'type',
  'endpoint',
  'model',
  'served_model',
  'status',
  'http_status',
  'error_code',
  'input_tokens',
  'output_tokens',
  'cache_read_tokens',
  'cache_creation_tokens',
  'reasoning_tokens',
  ...MONEY_COLUMNS,
  'balance_after',
  'duration_ms',
  'ttft_ms',
]

/**
 * Returns the calling key's history, or that of all keys of its balance if it manages them, newest first: by `cursor`, which new entries do not disturb, or by `page` and
 * `size`. `kind=all` returns the statement: what was added to the balance and taken from it. `format=csv` streams all of
 * it.
 */
export default defineBuiltIn({
  name: 'history',
  summary: 'Answers GET /api/v1/key-info/history, by cursor, by page and size, or as CSV.',
  on: 'GET /api/v1/key-info/history',
  needs: ['key'],
  setup(_options, { ledger, config, now }) {
    return {
      async request({ key, query }) {
        const kind = query.get('kind') ?? ''
        const whose = await seenBy(ledger, key)
        if (kind === 'all') return statement(key, whose, query)
        if (kind !== '' && kind !== 'requests')
          throw new GatewayError('bad_request', { param: 'kind', message: '"kind" must be requests or all.' })
        const page = async (wish: ReturnType<typeof historyWish>) => {
          const { entries, next } = await historyPage(range => ledger.reads.history(whose, range), key.id, wish)
          const priced = await pricedEntries(ledger, key.id, entries)
          const data = priced.map((row, nth) => ({ key: entries[nth]?.key ?? whose.account, ...row }))
          return { data, next }
        }
        if (query.get('format') === 'csv') {
          const wish = { ...historyWish(query), size: CSV_ROWS, page: 1 }
          return csvReply('history', COLUMNS, cursor =>
            page({ ...wish, ...(cursor !== undefined && { cursor: Number(cursor) }) }),
          )
        }
        const wish = historyWish(query)
        const { data, next } = await page(wish)
        const reply = {
          object: 'list',
          data,
          has_more: next !== undefined,
          next_cursor: next ?? null,
          page: wish.page,
          page_size: wish.size,
          total:
            wish.filtered || wish.from !== undefined || wish.to !== undefined
              ? null
              : await ledger.reads.historyLength(whose),
        }
        return Reply.json(reply, PRIVATE)
      },
    }

    async function statement(key: Key, whose: Key['whose'], query: URLSearchParams): Promise<Reply> {
      const wrong = [...query.keys()].find(name => !STATEMENT_PARAMETERS.has(name))
      if (wrong !== undefined)
        throw new GatewayError('bad_request', { param: wrong, message: `A statement has no parameter "${wrong}".` })
      const { size } = historyWish(new URLSearchParams([...query].filter(([name]) => name !== 'cursor')))
      const given = query.get('cursor') || undefined
      if (query.get('format') === 'csv')
        return csvReply('statement', STATEMENT_COLUMNS, cursor =>
          statementPage(ledger, whose, cursor ?? given, CSV_ROWS),
        )
      const { data, next } = await statementPage(ledger, whose, given, size)
      const { plan } = await allowance(ledger, key, config, now())
      const sums = await statementSums(ledger, whose.account, plan)
      return Reply.json(
        { object: 'list', kind: 'all', data, has_more: next !== undefined, next_cursor: next ?? null, sums },
        PRIVATE,
      )
    }
  },
})
