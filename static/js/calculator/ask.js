/** Requests to the server, one per model, so that a rejected model doesn't affect the others. Only the latest request counts. */

/** @import { Asked, Choices, Reply, Settings } from './types.d.ts' */

const ADDRESS = 'api/calculator';
const PAUSE_MS = 30;
const RETRY_MS = 2000;

/** The server can't be reached. */
export class Gone extends Error {}

/** @returns {Promise<Choices>} what can be chosen. Throws `Gone`. */
export async function getChoices() {
  return read(await fetched(ADDRESS, {}));
}

/**
 * `onReplies` gets the replies in the order of the models. `onWait` is called when a request starts and ends. `onGone`
 * is called when the server stops responding, which starts retries, and when it responds again.
 */
export class Asker {
  /** @type {AbortController|null} */
  #running = null;
  /** @type {number|undefined} */
  #timer;
  #gone = false;

  /** @param {{onReplies: (replies: Reply[]) => void, onWait: (waits: boolean) => void, onGone: (gone: boolean) => void}} listeners */
  constructor(listeners) {
    this.listeners = listeners;
  }

  /** @param {Asked[]} models @param {Settings} settings @param {number} [pauseMs] during which a newer question takes its place */
  ask(models, settings, pauseMs = PAUSE_MS) {
    this.#running?.abort();
    clearTimeout(this.#timer);
    this.listeners.onWait(true);
    const bodies = models.map((asked) => JSON.stringify({ models: [asked], settings }));
    this.#timer = setTimeout(() => void this.#send(bodies), pauseMs);
  }

  /** @param {string[]} bodies */
  async #send(bodies) {
    const running = (this.#running = new AbortController());
    try {
      const replies = await Promise.all(bodies.map((body) => replyTo(body, running.signal)));
      if (running.signal.aborted) return;
      this.#told(false);
      this.listeners.onWait(false);
      this.listeners.onReplies(replies);
    } catch (error) {
      if (running.signal.aborted) return;
      if (!(error instanceof Gone)) throw error;
      this.#told(true);
      this.#timer = setTimeout(() => void this.#send(bodies), RETRY_MS);
    }
  }

  /** @param {boolean} gone */
  #told(gone) {
    if (gone === this.#gone) return;
    this.#gone = gone;
    this.listeners.onGone(gone);
  }
}

/** @param {string} body @param {AbortSignal} signal @returns {Promise<Reply>} */
async function replyTo(body, signal) {
  const response = await fetched(ADDRESS, {
    method: 'POST',
    body,
    signal,
    headers: { 'Content-Type': 'application/json' },
  });
  const found = await read(response);
  return response.ok ? { answer: found, fault: null } : { answer: null, fault: found };
}

/** @param {string} address @param {RequestInit} options */
async function fetched(address, options) {
  try {
    return await fetch(address, options);
  } catch {
    throw new Gone();
  }
}

/** @param {Response} response @returns {Promise<any>} a proxy that answers for a server that is gone sends no JSON */
async function read(response) {
  try {
    return await response.json();
  } catch {
    throw new Gone();
  }
}
