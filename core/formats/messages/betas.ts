/**
 * What happens to the values of `anthropic-beta`. A beta that only enables members or tools passes, because these have
 * decisions of their own. One that changes by itself who pays, or that belongs to endpoints which the gateway does not
 * serve, is removed. An unknown value passes: clients are newer than this list. docs/providers.md has the same table.
 */

/** What happens to a beta, by its name without its date. */
export type BetaDecision = 'pass' | 'remove'

/** The betas of the SDKs. A test fails for one that is missing. */
export const BETAS: Readonly<Record<string, BetaDecision>> = {
  'admin-user-sign-out': 'remove',
  'advisor-tool': 'pass',
  'agent-memory': 'remove',
  'analytics-usage-cost': 'remove',
  'cache-diagnosis': 'pass',
  'ce-claude-code-managed-settings': 'remove',
  'ce-plugins': 'remove',
  'ce-user-management': 'remove',
  'code-execution': 'pass',
  compact: 'pass',
  'computer-use': 'pass',
  'context-1m': 'pass',
  'context-management': 'pass',
  'dev-full-thinking': 'pass',
  dreaming: 'remove',
  'experimental-claude-tag': 'pass',
  'extended-cache-ttl': 'pass',
  'fallback-credit': 'pass',
  'fast-mode': 'pass',
  'files-api': 'pass',
  'inline-tools': 'pass',
  'interleaved-thinking': 'pass',
  'managed-agents': 'remove',
  'mcp-client': 'pass',
  'mcp-tunnels': 'pass',
  'message-batches': 'remove',
  'message-threads': 'pass',
  'mid-conversation-output-config': 'pass',
  'mid-conversation-system-clear-at': 'pass',
  'mid-conversation-tool-changes': 'pass',
  'model-context-window-exceeded': 'pass',
  'output-128k': 'pass',
  'output-300k': 'pass',
  pdfs: 'pass',
  'prompt-caching': 'pass',
  'server-side-fallback': 'pass',
  skills: 'pass',
  'spend-limit-reads': 'remove',
  'structured-outputs': 'pass',
  'task-budgets': 'pass',
  'telemetry-destinations': 'remove',
  'thinking-binding-controls': 'pass',
  'thinking-display-updates': 'pass',
  'thinking-token-count': 'pass',
  'token-counting': 'pass',
  'token-efficient-tools': 'pass',
  'user-profiles': 'remove',
  'user-profiles-billing': 'remove',
  webhooks: 'remove',
}

/** Returns the name of a beta without its date. */
export function betaName(value: string): string {
  return value.replace(/-\d{4}-\d{2}-\d{2}$/, '')
}

/** Returns the value of an `anthropic-beta` header without the betas that are removed; undefined if none is left. */
export function passedBetas(header: string): string | undefined {
  const values = header.split(',').map(value => value.trim())
  const passed = values.filter(value => !isRemoved(value))
  if (passed.length === values.length) return header
  return passed.length === 0 ? undefined : passed.join(',')
}

/** The betas that are removed, with any date. */
const REMOVED = new RegExp(
  `^(?:${Object.keys(BETAS)
    .filter(name => BETAS[name] === 'remove')
    .join('|')})(?:-[0-9-]+(?:-research-preview)?)?$`,
)

/** Whether a value names a beta that is removed, in any spelling that a provider may accept. */
function isRemoved(value: string): boolean {
  const plain = value.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-')
  return REMOVED.test(plain.replace(/^-/, ''))
}
