/** A small event emitter: listeners get the name of the event and a value. */

/** @typedef {(what: string, value?: any) => void} Listener */

export function emitter() {
  /** @type {Set<Listener>} */
  const listeners = new Set();
  return {
    /** @param {Listener} listener @returns {() => void} stops listening */
    on(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    /** @param {string} what @param {any} [value] */
    emit(what, value) {
      for (const listener of listeners) listener(what, value);
    },
  };
}
