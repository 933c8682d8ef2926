/** Dialogs. The browser keeps the focus in them, and gives it back when they close. */
import { button, fill, h, icon } from './dom.js'

/**
 * Opens a dialog.
 * @param {string} title
 * @param {{ mayClose?: () => boolean, wide?: boolean }} [options] `mayClose` is asked when a person wants to leave
 * @returns {{ body: HTMLElement, close: () => void, closed: Promise<void> }}
 */
export function openDialog(title, { mayClose = () => true, wide = false } = {}) {
  const body = h('div.dialog-body')
  const leave = () => mayClose() && dialog.close()
  const heading = h('h2', { id: 'dialog-title' }, title)
  const dialog = h(
    'dialog',
    { class: wide ? 'dialog broad' : 'dialog', 'aria-labelledby': 'dialog-title' },
    h('header', heading, button(icon('close'), leave, { class: 'button icon-only', 'aria-label': 'Close' })),
    body,
  )
  dialog.addEventListener('cancel', event => {
    event.preventDefault()
    leave()
  })
  const closed = new Promise(resolve => dialog.addEventListener('close', () => resolve(undefined)))
  void closed.then(() => dialog.remove())
  document.body.append(dialog)
  dialog.showModal()
  return { body, close: () => dialog.close(), closed }
}

/** Closes all dialogs, whatever they wait for. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll('dialog')) dialog.close()
}

/**
 * Opens a dialog with a form. It stays open if the action fails, and shows why.
 * @param {string} title @param {any[]} fields @param {{ label: string, danger?: boolean }} options
 * @param {() => Promise<unknown>} action
 * @returns {Promise<boolean>} whether the action was done
 */
export async function askInDialog(title, fields, { label, danger = false }, action) {
  let busy = false
  let done = false
  // What is under way may make a secret, which must be shown.
  const { body, close, closed } = openDialog(title, { mayClose: () => !busy })
  const fault = h('p.fault', { role: 'alert' })
  const submit = h('button', { type: 'submit', class: danger ? 'button danger' : 'button primary' }, label)
  const form = h(
    'form',
    { novalidate: true },
    fields,
    fault,
    h(
      'footer',
      button('Back', () => busy || close()),
      submit,
    ),
  )
  form.addEventListener('submit', async event => {
    event.preventDefault()
    if (busy) return
    busy = true
    submit.setAttribute('aria-busy', 'true')
    fill(fault)
    try {
      await action()
      done = true
      close()
    } catch (thrown) {
      fill(fault, thrown instanceof Error ? thrown.message : 'That did not work.')
    } finally {
      busy = false
      submit.removeAttribute('aria-busy')
    }
  })
  fill(body, form)
  form.querySelector('input, select, textarea')?.focus()
  await closed
  return done
}

/** Asks whether to do something. @param {string} title @param {string} text @param {string} label */
export function confirmed(title, text, label, action) {
  return askInDialog(title, [h('p', text)], { label, danger: true }, action)
}
