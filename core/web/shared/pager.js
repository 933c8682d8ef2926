/** Goes through a list page by page, by the cursors that the API gives. */
import { button } from './dom.js'

/**
 * Starts at the first page.
 * @param {() => Promise<void>} load reads and shows the page at `cursor`
 * @param {[before: string, after: string]} names of the two buttons
 */
export function pager(load, [before, after]) {
  /** @type {(string | undefined)[]} the cursors of the pages before */
  let back = []
  /** @type {string | undefined} undefined for the first page */
  let cursor
  /** The number of the latest page that was asked for, and whether it is there. */
  let asked = 0
  let isLoading = false
  /** Goes to a page. If it cannot be loaded, the one that is shown stays the current one. */
  const go = async (/** @type {typeof back} */ toBack, /** @type {typeof cursor} */ to) => {
    const from = { back, cursor }
    const turn = ++asked
    isLoading = true
    back = toBack
    cursor = to
    try {
      await load()
    } catch (thrown) {
      if (turn === asked) ({ back, cursor } = from)
      throw thrown
    } finally {
      if (turn === asked) isLoading = false
    }
  }
  return {
    get cursor() {
      return cursor
    },
    /** How many pages are before this one. */
    get pagesBefore() {
      return back.length
    },
    /** Returns to the first page, and loads it. */
    first: () => go([], undefined),
    /**
     * Makes the buttons to the pages before and after the one that is shown.
     * @param {{ has_more: boolean, next_cursor?: string }} page as the API gave it
     */
    buttons(page) {
      // The buttons belong to the page that is shown.
      const previous = async () => isLoading || go(back.slice(0, -1), back.at(-1))
      const next = async () => isLoading || go([...back, cursor], page.next_cursor)
      return [
        button(before, previous, { class: 'button small', disabled: back.length === 0 }),
        button(after, next, { class: 'button small', disabled: !page.has_more }),
      ]
    },
  }
}
