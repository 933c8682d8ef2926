import { definePlugin, historyPage, historyWish, pricedEntries, PRIVATE, Reply } from 'tollgate/plugin'

/**
 * Returns the calling key's history, newest first: by `cursor`, which new entries do not disturb, or by `page` and
 * `size`.
 */
export default definePlugin({
  name: 'history',
  summary: 'Answers GET /api/v1/key-info/history, by cursor or by page and size.',
  on: 'GET /api/v1/key-info/history',
  needs: ['key'],
  setup(_options, { ledger }) {
    return {
      async request({ key, query }) {
        const wish = historyWish(query)
        const { entries, next } = await historyPage(range => ledger.history(key.id, range), key.id, wish)
        const reply = {
          object: 'list',
          data: await pricedEntries(ledger, key.id, entries),
          has_more: next !== undefined,
          next_cursor: next ?? null,
          page: wish.page,
          page_size: wish.size,
          total:
            wish.filtered || wish.from !== undefined || wish.to !== undefined
              ? null
              : await ledger.historyLength(key.id),
        }
        return Reply.json(reply, PRIVATE)
      },
    }
  },
})
