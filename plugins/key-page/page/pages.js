/** A list of the key that comes in pages, newest first. */
import { read } from './api.js'
import { fill, h } from './dom.js'
import { pager } from './pager.js'

const PAGE = 50

/**
 * Makes a list. Nothing is loaded before `first` is called.
 * @param {(query: Record<string, string>) => string} path returns the path of the API with a query
 * @param {(page: any) => any} show makes an element of a page
 * @returns {{ element: HTMLElement, first: () => Promise<void> }}
 */
export function pages(path, show) {
  const element = h('div')
  const at = pager(load, ['Newer', 'Older'])
  let turn = 0

  async function load() {
    const own = ++turn
    element.setAttribute('aria-busy', 'true')
    try {
      const page = await read(path({ page_size: String(PAGE), ...(at.cursor && { cursor: at.cursor }) }))
      if (own === turn) fill(element, show(page), h('div.row.end', at.buttons(page)))
    } catch (thrown) {
      const message = thrown instanceof Error ? thrown.message : ''
      if (own === turn) fill(element, h('p.fault', { role: 'alert' }, message))
    } finally {
      element.removeAttribute('aria-busy')
    }
  }

  return { element, first: at.first }
}
