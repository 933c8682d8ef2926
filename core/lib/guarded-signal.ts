/** Abort signals for code that is not ours: what their listeners throw does not end the process. */

type Callback = (event: Event) => unknown
type Listener = Callback | { handleEvent(event: Event): unknown }

/**
 * Returns a signal that aborts when another does. An exception or a rejection of its listeners goes to `failed`; without
 * this, Node ends the process.
 */
export function guardedSignal(source: AbortSignal, failed: (cause: unknown) => void): AbortSignal {
  const signal = AbortSignal.any([source])
  const guards = new WeakMap<object, Callback>()
  const guardOf = (listener: Listener): Callback => {
    const guard =
      guards.get(listener) ??
      (async event => {
        try {
          await (typeof listener === 'function' ? listener.call(signal, event) : listener.handleEvent(event))
        } catch (cause) {
          failed(cause)
        }
      })
    guards.set(listener, guard)
    return guard
  }
  for (const name of ['addEventListener', 'removeEventListener'] as const) {
    const method = signal[name].bind(signal) as (type: string, listener: unknown, options?: unknown) => void
    const guarded = (type: string, listener: unknown, options?: unknown): void =>
      method(type, isListener(listener) ? guardOf(listener) : listener, options)
    Object.defineProperty(signal, name, { value: guarded })
  }
  let own: { readonly listener: Callback; readonly added: Callback } | undefined
  Object.defineProperty(signal, 'onabort', {
    get: () => own?.listener ?? null,
    set: (listener: unknown) => {
      if (own) signal.removeEventListener('abort', own.added)
      // Another function than the listener, which may be added by `addEventListener` too.
      own =
        typeof listener === 'function'
          ? { listener: listener as Callback, added: event => (listener as Callback).call(signal, event) }
          : undefined
      if (own) signal.addEventListener('abort', own.added)
    },
  })
  return signal
}

function isListener(value: unknown): value is Listener {
  return typeof value === 'function' || (typeof value === 'object' && value !== null)
}
