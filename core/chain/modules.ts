/** Makes the modules for plugins and their tests known to Node. Importing this file is enough. */
import { registerHooks } from 'node:module'
import { suggest } from '../lib/suggest.ts'

/** The modules that plugins and their tests import, from any folder, whether or not Tollgate is installed there. */
const MODULES: Readonly<Record<string, string>> = {
  'tollgate/plugin': '../plugin/index.ts',
  'tollgate/plugin/metering': '../plugin/metering.ts',
  'tollgate/plugin/operator': '../plugin/operator.ts',
  'tollgate/testing': '../testing/index.ts',
}

registerHooks({
  resolve: (specifier, context, next) => {
    const file = MODULES[specifier]
    if (file !== undefined) return { url: new URL(file, import.meta.url).href, shortCircuit: true }
    if (specifier.startsWith('tollgate/'))
      throw new Error(`there is no module "${specifier}"; ${suggest(specifier, Object.keys(MODULES))}`)
    return next(specifier, context)
  },
})
