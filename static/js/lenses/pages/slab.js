/**
 * The same requests in a contiguous allocator that follows the log. Each request reserves prompt + new tokens in one
 * piece, first fit, from as many slots as the pool has. The piece is freed when the request finishes and never moved.
 * A pure fold over events.
 */

/** @import { Log } from '../../core/log.js' */

/** One request in its reserved piece. @typedef {{request: number, start: number, size: number}} Slab */
/** @typedef {{slabs: Slab[], refused: {request: number, size: number}[]}} SlabState */
/** @typedef {{seq: number, request: number, size: number}} Change `size` 0: the request ended */

/** The start of the first hole that is long enough, or -1. @param {readonly Slab[]} slabs by start @param {number} size @param {number} capacity */
function firstFit(slabs, size, capacity) {
  let start = 0;
  for (const slab of slabs) {
    if (slab.start - start >= size) return start;
    start = slab.start + slab.size;
  }
  return capacity - start >= size ? start : -1;
}

/** @param {SlabState} state @param {Change} change @param {number} capacity @returns {SlabState} */
export function applyChange(state, change, capacity) {
  const { request, size } = change;
  if (size === 0) {
    return {
      slabs: state.slabs.filter((slab) => slab.request !== request),
      refused: state.refused.filter((one) => one.request !== request),
    };
  }
  const start = firstFit(state.slabs, size, capacity);
  if (start < 0) return { ...state, refused: [...state.refused, { request, size }] };
  const slabs = [...state.slabs, { request, start, size }].sort((a, b) => a.start - b.start);
  return { ...state, slabs };
}

/** Lengths of the holes between the pieces and after the last.
 * @param {SlabState} state @param {number} capacity @returns {{start: number, size: number}[]} */
export function holesOf({ slabs }, capacity) {
  const holes = [];
  let start = 0;
  for (const slab of [...slabs, { start: capacity, size: 0 }]) {
    if (slab.start > start) holes.push({ start, size: slab.start - start });
    start = slab.start + slab.size;
  }
  return holes;
}

/** Follows a log and gives the state at any seq. `full`: each request reserves the model's whole context. */
export class SlabHistory {
  /** @param {Log} log @param {boolean} [full] */
  constructor(log, full = false) {
    this.log = log;
    this.full = full;
    this.logId = log.logId;
    this.seen = log.firstSeq - 1;
    /** @type {Change[]} */
    this.changes = [];
    /** State before change i. @type {SlabState[]} */
    this.states = [{ slabs: [], refused: [] }];
    /** @type {Map<number, number>} */
    this.sizes = new Map();
  }

  #begin() {
    this.logId = this.log.logId;
    this.seen = this.log.firstSeq - 1;
    this.changes = [];
    this.states = [{ slabs: [], refused: [] }];
    this.sizes = new Map();
  }

  get capacity() {
    const pool = this.log.header?.pool;
    return pool ? pool.num_blocks * pool.block_size : 0;
  }

  #follow() {
    const { log } = this;
    if (log.logId !== this.logId || log.lastSeq < this.seen) this.#begin();
    for (; this.seen < log.lastSeq; this.seen += 1) {
      const record = log.at(this.seen + 1);
      if (!record) break;
      const [seq, , event] = record;
      if (event.type === 'request_added') this.sizes.set(event.request_id, this.#sizeOf(event));
      else if (event.type === 'request_started' || event.type === 'request_forked') this.#start(seq, event.request_id);
      else if (event.type === 'request_finished') this.#add({ seq, request: event.request_id, size: 0 });
    }
  }

  /** @param {import('../../core/events.d.ts').RequestAdded} event */
  #sizeOf(event) {
    const { header } = this.log;
    return this.full && header
      ? header.model.max_positions
      : (event.num_prompt_tokens || event.token_ids.length) + event.max_new_tokens;
  }

  /** A preempted request can start again, but a contiguous allocator never preempts. @param {number} seq @param {number} request */
  #start(seq, request) {
    const { slabs, refused } = this.states[this.states.length - 1];
    if ([...slabs, ...refused].some((one) => one.request === request)) return;
    this.#add({ seq, request, size: this.sizes.get(request) ?? 0 });
  }

  /** @param {Change} change */
  #add(change) {
    this.changes.push(change);
    this.states.push(applyChange(this.states[this.states.length - 1], change, this.capacity));
  }

  /** @param {number} seq last record seen @returns {SlabState} */
  at(seq) {
    this.#follow();
    let low = 0;
    let high = this.changes.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.changes[middle].seq <= seq) low = middle + 1;
      else high = middle;
    }
    return this.states[low];
  }
}
