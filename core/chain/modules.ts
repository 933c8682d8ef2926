/** Makes the modules for plugins and their tests known to Node. Importing this file is enough. */
import { registerHooks } from 'node:module'
import { didYouMean, suggest } from '../lib/suggest.ts'

/** The modules that plugins and their tests import, from any folder, whether or not Tollgate is installed there. */
const MODULES: Readonly<Record<string, string>> = {
  'tollgate/plugin': '../plugin/index.ts',
  'tollgate/plugin/metering': '../plugin/metering.ts',
  'tollgate/plugin/operator': '../plugin/operator.ts',
  'tollgate/testing': '../testing/index.ts',
}

const NAMES = Object.keys(MODULES)

/** Returns the module with the same last part, such as `tollgate/plugin/metering` for `tollgate/metering`. */
function endingLike(specifier: string): string | undefined {
  return NAMES.find(name => name.endsWith(specifier.slice('tollgate'.length)))
}

registerHooks({
  resolve: (specifier, context, next) => {
    const file = MODULES[specifier]
    if (file !== undefined) return { url: new URL(file, import.meta.url).href, shortCircuit: true }
    if (specifier.startsWith('tollgate/'))
      throw new Error(
        `there is no module "${specifier}"; ${didYouMean(endingLike(specifier)) ?? suggest(specifier, NAMES)}`,
      )
    return next(specifier, context)
  },
})
