/** Abort signals for code that is not ours: what their listeners throw does not end the process. */

type Callback = (event: Event) => unknown
type Listener = Callback | { handleEvent(event: Event): unknown }

/**
 * Returns a signal that aborts with another. An exception or a rejection of its listeners goes to `failed`; without this,
 * Node ends the process.
 */
export function guardedSignal(source: AbortSignal, failed: (cause: unknown) => void): AbortSignal {
  const signal = AbortSignal.any([source])
  const guards = new WeakMap<object, (event: Event) => Promise<void>>()
  const guardOf = (listener: Listener): ((event: Event) => Promise<void>) => {
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
    const guarded = (type: string, listener: Listener | null, options?: unknown): void =>
      method(type, listener && guardOf(listener), options)
    Object.defineProperty(signal, name, { value: guarded })
  }
  let onabort: Callback | null = null
  Object.defineProperty(signal, 'onabort', {
    get: () => onabort,
    set: (listener: Callback | null) => {
      if (onabort) signal.removeEventListener('abort', onabort)
      onabort = listener
      if (listener) signal.addEventListener('abort', listener)
    },
  })
  return signal
}
