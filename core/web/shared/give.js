/** Gives texts to a person: by copying, or as a file. */
import { announce, button, h, icon } from './dom.js'

/** Copies a text. On a page without TLS, browsers offer no clipboard, so that it is selected and copied the old way. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    const area = h('textarea.offscreen', { readonly: true, 'aria-hidden': 'true' })
    area.value = text
    // In a modal dialog, only what the dialog contains can be selected.
    const host = document.querySelector('dialog[open]') ?? document.body
    host.append(area)
    area.select()
    const done = document.execCommand('copy')
    area.remove()
    return done
  }
}

/**
 * Makes a button that copies a text.
 * @param {() => string} text @param {string} [label] @param {Record<string, any>} [props]
 * @param {() => void} [onCopied]
 */
export function copyButton(text, label = 'Copy', props = {}, onCopied = () => {}) {
  const element = button(
    [icon('copy'), h('span', label)],
    async () => {
      const done = await copy(text())
      if (!done) return announce('The browser did not copy. Select the text and copy it yourself.', 'error')
      onCopied()
      element.replaceChildren(icon('check'), h('span', 'Copied'))
      announce('Copied.')
      setTimeout(() => element.replaceChildren(icon('copy'), h('span', label)), 1500)
    },
    { class: 'button small', ...props },
  )
  return element
}

/** Saves a text as a file. @param {string} name @param {BlobPart} content @param {string} type */
export function save(name, content, type = 'text/plain') {
  const url = URL.createObjectURL(new Blob([content], { type }))
  const link = h('a', { href: url, download: name })
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 10_000)
}

/** Returns one line of comma-separated values. @param {(string | number)[]} cells */
export function csvLine(cells) {
  return cells
    .map(cell => {
      // A spreadsheet would run a text that looks like a formula.
      const text =
        typeof cell === 'string' && /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]/.test(cell) && !/^-?[\d.]+$/.test(cell)
          ? `'${cell}`
          : String(cell)
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
    })
    .join(',')
}
