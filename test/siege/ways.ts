/**
 * The requests of the siege's honest customers. famC's provider speaks responses and chat completions, famA's speaks
 * messages.
 */
export interface Way {
  readonly type: string
  readonly model: string
  readonly path: string
}

/** Customers take these in turn. */
export const WAYS: readonly Way[] = [
  { type: 'famC', model: 'acme/famC-5.5', path: '/v1/chat/completions' },
  { type: 'famC', model: 'acme/famC-5.5', path: '/v1/responses' },
  { type: 'famC', model: 'acme/famC-5.5', path: '/v1/messages' },
  { type: 'famA', model: 'acme/famA-medium-5', path: '/v1/messages' },
  { type: 'famA', model: 'acme/famA-medium-5', path: '/v1/chat/completions' },
]
