/** Secrets that a person sees once. */
import { openDialog } from './dialog.js'
import { button, fill, h } from './dom.js'
import { copyButton, csvLine, save } from './give.js'

/**
 * Shows secrets, once. The dialog asks before it closes if nobody has copied or saved them.
 * @param {string} title
 * @param {{ rows: any[], member: string, columns: string[] }} secrets `member` is that of the secret, `columns` those of the file
 * @param {{ words?: any[], actions?: any[] }} [more] `words` stand above the secrets, `actions` beside the buttons
 */
export async function showSecrets(title, { rows, member, columns }, { words = [], actions = [] } = {}) {
  let kept = false
  let warned = false
  const warning = h('p.fault', { role: 'alert' })
  const mayClose = () => {
    if (kept || warned) return true
    warned = true
    fill(warning, 'Nothing was copied or downloaded, and it cannot be shown again. Close once more to leave.')
    return false
  }
  const { body, closed } = openDialog(title, { wide: true, mayClose })
  const text = rows.map(row => row[member]).join('\n')
  const keep = () => {
    kept = true
    fill(warning)
  }
  const area = h('textarea', { readonly: true, rows: String(Math.min(12, rows.length + 1)), 'aria-label': title })
  area.value = text
  area.addEventListener('copy', keep)
  const download = button('Download as CSV', () => {
    const lines = [csvLine(columns), ...rows.map(row => csvLine(columns.map(column => row[column] ?? '')))]
    save(`${member}s.csv`, `\ufeff${lines.join('\n')}\n`, 'text/csv')
    keep()
  })
  const copyAll = copyButton(() => text, rows.length === 1 ? 'Copy' : 'Copy all', { class: 'button primary' }, keep)
  body.classList.add('stack')
  fill(
    body,
    words,
    h('p', h('strong', 'This is shown only once.'), ' Only a hash is stored.'),
    area,
    h('div.row', copyAll, download, actions),
    warning,
  )
  area.focus()
  await closed
}
