/** The history of each block, to find out since when an old entry is gone. Follows the log as it grows. */

/** @import { Log } from '../../core/log.js' */
/** @typedef {{seq: number, kind: 'allocated'|'evicted'|'shared'|'blanked', request: number|null}} Happening */

export class BlockHistory {
  /** @param {Log} log */
  constructor(log) {
    this.log = log;
    /** @type {Happening[][]} */
    this.blocks = [];
    this.seen = -1;
    /** @type {string|null} */
    this.logId = null;
  }

  /** Reads the log's new records. */
  #follow() {
    const { log } = this;
    if (log.logId !== this.logId || log.firstSeq > this.seen + 1 || log.lastSeq < this.seen) {
      this.blocks = [];
      this.seen = log.firstSeq - 1;
      this.logId = log.logId;
    }
    for (; this.seen < log.lastSeq; this.seen += 1) {
      const record = log.at(this.seen + 1);
      if (!record) break;
      const event = record[2];
      const seq = record[0];
      switch (event.type) {
        case 'block_allocated':
          this.#add(event.block_id, { seq, kind: 'allocated', request: event.request_id });
          break;
        case 'block_copied':
          this.#add(event.block_id, { seq, kind: 'allocated', request: event.request_id });
          break;
        case 'block_evicted':
          this.#add(event.block_id, { seq, kind: 'evicted', request: null });
          break;
        case 'block_shared':
          this.#add(event.block_id, { seq, kind: 'shared', request: event.request_id });
          break;
        case 'blocks_released':
          for (const block of event.prepended) this.#add(block, { seq, kind: 'blanked', request: event.request_id });
          break;
        case 'prefix_cache_reset':
          for (const block of event.block_ids) this.#add(block, { seq, kind: 'blanked', request: null });
          break;
        default:
          break;
      }
    }
  }

  /** @param {number} block @param {Happening} happening */
  #add(block, happening) {
    (this.blocks[block] ??= []).push(happening);
  }

  /** The step since which contents written to a block before record `seq` are gone, and the request that has the block.
   * @param {number} block @param {number} seq last record of the time when it was there @param {number} now last record seen
   * @returns {{step: number, kind: 'allocated'|'evicted'|'blanked', taker: number|null}|null} null while it is there */
  goneSince(block, seq, now) {
    this.#follow();
    const list = this.blocks[block] ?? [];
    for (let i = firstAfter(list, seq); i < list.length && list[i].seq <= now; i += 1) {
      const { kind } = list[i];
      if (kind === 'shared') continue;
      const taker = list.slice(i).find((later) => later.kind === 'allocated' && later.seq <= now);
      return { step: this.log.stepOf(list[i].seq), kind, taker: taker?.request ?? null };
    }
    return null;
  }

  /** The last event of a block up to record `now`. @param {number} block @param {number} now */
  last(block, now) {
    this.#follow();
    const list = this.blocks[block] ?? [];
    return list[firstAfter(list, now) - 1] ?? null;
  }
}

/** @param {Happening[]} list @param {number} seq @returns {number} index of the first one after seq */
function firstAfter(list, seq) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].seq > seq) high = middle;
    else low = middle + 1;
  }
  return low;
}
