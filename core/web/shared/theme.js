/** Light and dark: as the system says, unless a person has chosen. */
import { button, icon } from './dom.js'

const KEY = 'tollgate-theme'

function stored() {
  try {
    return localStorage.getItem(KEY)
  } catch {
    return null
  }
}

function apply(theme) {
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset['theme'] = theme
}

apply(stored())

/** Makes the button that switches between light and dark. */
export function themeButton() {
  return button(
    icon('theme'),
    () => {
      const { theme } = document.documentElement.dataset
      const dark = theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches
      apply(dark ? 'light' : 'dark')
      try {
        localStorage.setItem(KEY, dark ? 'light' : 'dark')
      } catch {
        // A browser without storage forgets it with the tab.
      }
    },
    { class: 'button icon-only', 'aria-label': 'Light or dark' },
  )
}
