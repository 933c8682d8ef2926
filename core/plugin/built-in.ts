/** What the built-in plugins of both kinds share. It may change at any time. */
export { type BuiltInGiven, type BuiltInHost, type BuiltInStage, defineBuiltIn } from '../chain/built-in-stage.ts'
export { credentialOf, presented } from '../client/credential.ts'
export { invalidBody } from '../errors.ts'
export type { BuiltInExchange, BuiltInFacts, BuiltInWith } from '../exchange/built-in.ts'
export { beginsAsSecret, prefixesOf, prefixOf, secretsIn } from '../lib/prefixes.ts'
export { modelOf } from '../exchange/model.ts'
export { requestEnd } from '../exchange/request-end.ts'
export { turn } from '../lib/turns.ts'
