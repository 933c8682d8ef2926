/** What most stories begin with: a gateway, and a scripted provider behind all of its upstreams. */
import type { Test } from 'tap'
import { type Options, startGateway, type TestGateway } from './gateway.ts'
import type { Edit } from './gateway-file.ts'
import { type Script, ScriptedUpstream } from './upstream.ts'

/** A gateway with its provider. */
export interface Scene {
  readonly g: TestGateway
  readonly upstream: ScriptedUpstream
}

/** Starts a gateway and its provider. @param script how the provider answers, which the test may change */
export async function scene(
  t: Test,
  edit: Edit = file => file,
  { script, ...more }: Options & { readonly script?: Script } = {},
): Promise<Scene> {
  const upstream = await ScriptedUpstream.start(t)
  if (script) upstream.script = script
  return { g: await startGateway(t, { upstream: upstream.url, edit, ...more }), upstream }
}
