/** Tabs. The arrow keys move between them, as people who use the keyboard expect. */
import { h } from './dom.js'

/**
 * Makes a row of tabs with their panels.
 * @param {{ id: string, label: string, count?: string, show: (panel: HTMLElement) => unknown }[]} tabs
 * @param {{ label: string, chosen?: string, onChoice?: (id: string) => void }} options
 * @returns {{ element: HTMLElement, choose: (id: string) => void }}
 */
export function tabRow(tabs, { label, chosen = tabs[0]?.id, onChoice = () => {} }) {
  const panel = h('div.panel', { role: 'tabpanel', tabindex: '0', id: 'tab-panel' })
  const buttons = tabs.map(tab => {
    const element = h(
      'button',
      { type: 'button', role: 'tab', id: `tab-${tab.id}`, 'aria-controls': 'tab-panel' },
      tab.label,
      tab.count !== undefined && h('span.count', tab.count),
    )
    element.addEventListener('click', () => choose(tab.id))
    return element
  })
  const choose = id => {
    const at = Math.max(
      0,
      tabs.findIndex(tab => tab.id === id),
    )
    buttons.forEach((each, index) => {
      each.setAttribute('aria-selected', String(index === at))
      each.tabIndex = index === at ? 0 : -1
    })
    buttons[at]?.scrollIntoView({ block: 'nearest', inline: 'nearest' })
    panel.setAttribute('aria-labelledby', `tab-${tabs[at]?.id}`)
    onChoice(tabs[at]?.id ?? '')
    panel.replaceChildren()
    void tabs[at]?.show(panel)
  }
  const list = h('div.tabs', { role: 'tablist', 'aria-label': label }, buttons)
  list.addEventListener('keydown', event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key]
    const at = buttons.indexOf(document.activeElement)
    const ends = { Home: 0, End: buttons.length - 1 }
    const to = ends[event.key] ?? (step && at + step)
    if (to === undefined || at < 0) return
    event.preventDefault()
    const next = (to + buttons.length) % buttons.length
    buttons[next].focus()
    choose(tabs[next].id)
  })
  const element = h('div.tabbed', list, panel)
  choose(chosen)
  return { element, choose }
}
