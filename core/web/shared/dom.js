/** Builds elements. Every text is set as text, so that nothing that a customer or a provider wrote can become markup. */

/**
 * Makes an element.
 * @param {string} what its tag and its classes, such as `div.card.stack`
 * @param {...any} rest attributes, if they come first: `on` has event handlers, `vars` has custom properties of CSS. Then children:
 *   elements, texts and lists of them; null and false are left out
 * @returns {any}
 */
export function h(what, ...rest) {
  const [tag = '', ...classes] = what.split('.')
  const element = document.createElement(tag)
  if (classes.length > 0) element.className = classes.join(' ')
  const hasProps = rest[0] && Object.getPrototypeOf(rest[0]) === Object.prototype
  const [props, ...children] = hasProps ? rest : [{}, ...rest]
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue
    if (name === 'on') for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler)
    else if (name === 'vars') for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text)
    else if (name === 'value' || name === 'checked' || name === 'disabled' || name === 'selected') element[name] = value
    else element.setAttribute(name, value === true ? '' : String(value))
  }
  element.append(...flat(children))
  return element
}

/**
 * Says something that a person must know. What is bad is read out at once.
 * @param {'good' | 'warn' | 'bad'} tone @param {string} title @param {...any} words
 */
export function banner(tone, title, ...words) {
  return h('div', { class: `banner ${tone}`, role: tone === 'bad' && 'alert' }, h('strong', title), h('p', words))
}

/** @param {any[]} children @returns {(Node | string)[]} */
function flat(children) {
  return children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false)
}

/** Replaces what an element contains. @param {Element} element @param {...any} children */
export function fill(element, ...children) {
  element.replaceChildren(...flat(children))
}

const SVG = 'http://www.w3.org/2000/svg'

/** The lines of the icons, in a square of 24. */
const ICONS = {
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  check: 'M4 12l5 5L20 6',
  eye: 'M2 12s4-7 10-7 10 7 10 7-4 7-10 7S2 12 2 12zM12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6z',
  close: 'M5 5l14 14M19 5L5 19',
  download: 'M12 3v12m0 0l-5-5m5 5l5-5M4 20h16',
  theme: 'M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 7a5 5 0 0 1 0 10z',
  play: 'M7 4l13 8-13 8z',
  stop: 'M6 6h12v12H6z',
}

/** Makes an icon. It says nothing to a screen reader. @param {keyof typeof ICONS} name */
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg')
  svg.setAttribute('viewBox', '0 0 24 24')
  svg.setAttribute('class', 'icon')
  svg.setAttribute('aria-hidden', 'true')
  const path = document.createElementNS(SVG, 'path')
  path.setAttribute('d', ICONS[name])
  svg.append(path)
  return svg
}

/**
 * Makes a button. While its action runs, it cannot be pressed again.
 * @param {any} label @param {() => unknown} action @param {Record<string, any>} [props]
 */
export function button(label, action, props = {}) {
  const element = h('button', { type: 'button', class: 'button', ...props }, label)
  element.addEventListener('click', async () => {
    if (element.getAttribute('aria-busy')) return
    element.setAttribute('aria-busy', 'true')
    try {
      await action()
    } finally {
      element.removeAttribute('aria-busy')
    }
  })
  return element
}

let fields = 0

/**
 * Makes a labelled field.
 * @param {string} label @param {any} control an input, a select or a text area
 * @param {string} [hint] what a person must know to fill it in
 */
export function field(label, control, hint) {
  const id = `field-${++fields}`
  control.id = id
  if (hint) control.setAttribute('aria-describedby', `${id}-hint`)
  return h('div.field', h('label', { for: id }, label), control, hint && h('p.hint', { id: `${id}-hint` }, hint))
}

/** Makes a select. @param {string[][]} options of value and label @param {Record<string, any>} [props] */
export function select(options, { value, ...props } = {}) {
  const element = h('select', props, ...options.map(([each, label]) => h('option', { value: each }, label)))
  if (value !== undefined) element.value = value
  return element
}

/** Says something to those who see the page and to those who hear it. @param {string} text @param {'ok' | 'error'} kind */
export function announce(text, kind = 'ok') {
  const place = document.getElementById('announcements')
  if (!place) return
  const note = h('p', { class: `note note-${kind}` }, text)
  place.append(note)
  setTimeout(() => note.remove(), kind === 'error' ? 8000 : 3500)
}

/** Says what went wrong in an action that nothing else has caught. */
export function announceFaults() {
  window.addEventListener('unhandledrejection', event => {
    announce(event.reason instanceof Error ? event.reason.message : 'That did not work.', 'error')
    event.preventDefault()
  })
}

/** Waits until the last of several calls has been quiet for a while. @param {() => void} action @param {number} ms */
export function debounced(action, ms = 250) {
  let timer = 0
  return () => {
    clearTimeout(timer)
    timer = window.setTimeout(action, ms)
  }
}
