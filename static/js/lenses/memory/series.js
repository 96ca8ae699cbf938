/** Slots at each position of the timeline: by part, and by request only while it holds some. */

/** @import { MemoryModel } from './model.js' */
/**
 * Slots at one position. `held` = `own` of all requests + `shared` + `wasted`; `own` are those that only one request
 * holds; `cached` are free, `host` in the other tier.
 * @typedef {{step: number, held: number, stored: number, shared: number, wasted: number, cached: number, host: number, own: (request: number) => number}} MemoryAt
 */

export class MemorySeries {
  /** @type {number[]} */
  held = [];
  /** @type {number[]} */
  stored = [];
  /** @type {number[]} */
  shared = [];
  /** @type {number[]} */
  cached = [];
  /** @type {number[]} */
  host = [];
  /** @type {Map<number, {first: number, values: number[], peak: number}>} */
  requests = new Map();

  /** @param {number} base the first position */
  constructor(base) {
    this.base = base;
  }

  /** Last known position. */
  get head() {
    return this.base + Math.max(0, this.held.length - 1);
  }

  /** Sets the state at a position; a later record of the same position replaces it. @param {number} step @param {MemoryModel} model */
  note(step, model) {
    const index = step - this.base;
    if (index < 0) return;
    this.held[index] = model.held * model.blockSize;
    this.stored[index] = model.stored;
    this.shared[index] = model.shared;
    this.cached[index] = model.cached * model.blockSize;
    this.host[index] = model.host.size * model.blockSize;
    for (const [id, slots] of model.own) {
      const known = this.requests.get(id);
      if (slots > 1e-9) this.#noteRequest(id, index, slots);
      else if (known && known.first + known.values.length > index) known.values.length = index - known.first;
      if (slots <= 1e-9) model.own.delete(id);
    }
  }

  /** @param {number} id @param {number} index @param {number} slots */
  #noteRequest(id, index, slots) {
    let known = this.requests.get(id);
    if (!known) this.requests.set(id, (known = { first: index, values: [], peak: 0 }));
    while (known.values.length < index - known.first) known.values.push(0);
    known.values[index - known.first] = slots;
    known.peak = Math.max(known.peak, slots);
  }

  /** @param {number} request @param {number} step @returns {number} slots that only this request holds */
  own(request, step) {
    const known = this.requests.get(request);
    return known?.values[step - this.base - known.first] ?? 0;
  }

  /** @param {number} step @returns {MemoryAt} the nearest known position when there is no such one */
  at(step) {
    const index = Math.max(0, Math.min(step - this.base, this.held.length - 1));
    const held = this.held[index] ?? 0;
    const stored = this.stored[index] ?? 0;
    return {
      step: this.base + index,
      held,
      stored,
      shared: this.shared[index] ?? 0,
      wasted: held - stored,
      cached: this.cached[index] ?? 0,
      host: this.host[index] ?? 0,
      own: (request) => this.own(request, this.base + index),
    };
  }

  /** The first step that ends with this many slots held, or null. @param {number} slots @returns {number|null} */
  firstWith(slots) {
    const index = this.held.findIndex((held) => held >= slots);
    return index < 0 ? null : this.base + index;
  }

  /** The maximum held up to a position, and its first step. @param {number} step @returns {{held: number, step: number}} */
  most(step) {
    const last = Math.min(step - this.base, this.held.length - 1);
    let index = 0;
    for (let i = 1; i <= last; i++) if (this.held[i] > this.held[index]) index = i;
    return { held: this.held[index] ?? 0, step: this.base + index };
  }

  /** Requests that ever held a block alone, the largest first, by their maximum. @returns {number[]} */
  largest() {
    return [...this.requests].sort((a, b) => b[1].peak - a[1].peak || a[0] - b[0]).map(([id]) => id);
  }
}
