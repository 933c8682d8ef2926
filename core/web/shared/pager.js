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
  /** Goes to a page. The one that is shown stays the current one until the other is there. */
  const go = async (/** @type {typeof back} */ toBack, /** @type {typeof cursor} */ to) => {
    const from = { back, cursor }
    back = toBack
    cursor = to
    try {
      await load()
    } catch (thrown) {
      ;({ back, cursor } = from)
      throw thrown
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
    first() {
      back = []
      cursor = undefined
      return load()
    },
    /**
     * Makes the buttons to the pages before and after the one that is shown.
     * @param {{ has_more: boolean, next_cursor?: string }} page as the API gave it
     */
    buttons(page) {
      const previous = () => go(back.slice(0, -1), back.at(-1))
      const next = () => go([...back, cursor], page.next_cursor)
      return [
        button(before, previous, { class: 'button small', disabled: back.length === 0 }),
        button(after, next, { class: 'button small', disabled: !page.has_more }),
      ]
    },
  }
}
