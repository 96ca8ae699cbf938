/**
 * The cache's slots at the end of every step: a fold of the log's records alone, each folded once. It counts slots,
 * which are whole numbers; bytes are slots × bytes per token. A slot is counted in one place: for the one request that
 * holds its block, as shared (several hold the block), wasted (held, but without an entry), or free but cached.
 */
import { MemorySeries } from './series.js';
/** @import { Log } from '../../core/log.js' */
/** @import { Event } from '../../core/types.d.ts' */

export class MemoryModel {
  /** @type {import('../../core/types.d.ts').EventRecord[]} */
  records = [];
  read = 0;
  /** Increases with every change. */
  version = 0;
  blockSize = 1;
  numBlocks = 0;
  numHostBlocks = 0;
  /** Requests that hold each block. @type {number[][]} */
  holders = [];
  hashed = new Uint8Array(0);
  /** Whether a slot has an entry. */
  filled = new Uint8Array(0);
  numFilled = new Int32Array(0);
  /** Dropped entries of a block: a token dropped in half of its heads counts as half. */
  gone = new Float64Array(0);
  /** Block tables of unfinished requests. @type {Map<number, number[]>} */
  tables = new Map();
  /** Host blocks in use: the swapped request, or null for a prefix, and the offsets of its entries.
   * @type {Map<number, {request: number|null, offsets: number[]}>} */
  host = new Map();
  /** Blocks held, blocks free but cached, entries in shared blocks, entries in all held blocks. */
  held = 0;
  cached = 0;
  shared = 0;
  stored = 0;
  /** Entries in blocks that only one request holds, by request. @type {Map<number, number>} */
  own = new Map();
  inStep = false;
  series = new MemorySeries(0);

  /** @param {Log} log */
  constructor(log) {
    this.log = log;
    this.#reset();
  }

  #reset() {
    const { log } = this;
    const pool = log.header?.pool ?? { num_blocks: 0, block_size: 1, num_host_blocks: 0 };
    const { num_blocks: numBlocks, block_size: blockSize } = pool;
    Object.assign(this, {
      records: log.records,
      read: 0,
      blockSize,
      numBlocks,
      numHostBlocks: pool.num_host_blocks ?? 0,
      holders: Array.from({ length: numBlocks }, () => []),
      hashed: new Uint8Array(numBlocks),
      filled: new Uint8Array(numBlocks * blockSize),
      numFilled: new Int32Array(numBlocks),
      gone: new Float64Array(numBlocks),
      tables: new Map(),
      host: new Map(),
      held: 0,
      cached: 0,
      shared: 0,
      stored: 0,
      own: new Map(),
      inStep: false,
      series: new MemorySeries(log.baseStep),
    });
    this.version += 1;
    if (log.checkpoint) this.#resume(log.checkpoint);
    this.series.note(log.baseStep, this);
  }

  /** The state before the first record. @param {any} checkpoint as `World.to_json` writes it */
  #resume(checkpoint) {
    for (const [slot] of checkpoint.slots) this.#fill(slot);
    for (const [id, { request_id: request, entries }] of checkpoint.host ?? [])
      this.host.set(id, { request, offsets: entries.map((/** @type {number[]} */ entry) => entry[0]) });
    for (const request of checkpoint.requests) {
      if (request.state === 'finished') continue;
      this.tables.set(request.id, request.table.slice());
      for (const block of request.table) if (block >= 0) this.holders[block].push(request.id);
    }
    checkpoint.hash.forEach((/** @type {string|null} */ hash, /** @type {number} */ block) => {
      this.hashed[block] = hash === null ? 0 : 1;
      this.#count(block, 1);
    });
    for (const request of checkpoint.requests)
      if (request.state !== 'finished') this.#drop(request.id, request.forgotten ?? []);
  }

  /** Folds new records. @returns {boolean} whether anything had */
  advance() {
    const { log } = this;
    if (log.records !== this.records || log.records.length < this.read) this.#reset();
    if (this.read === log.records.length) return false;
    while (this.read < log.records.length) this.#apply(log.records[this.read++][2]);
    if (!this.inStep) this.series.note(this.series.head, this);
    this.version += 1;
    return true;
  }

  /** Adds or subtracts the counts of a block. @param {number} block @param {1|-1} sign */
  #count(block, sign) {
    const holders = this.holders[block];
    const stored = this.numFilled[block] - this.gone[block];
    if (holders.length === 0) {
      this.cached += sign * this.hashed[block];
      return;
    }
    this.held += sign;
    this.stored += sign * stored;
    if (holders.length > 1) this.shared += sign * stored;
    else this.own.set(holders[0], (this.own.get(holders[0]) ?? 0) + sign * stored);
  }

  /** Changes a block and updates the counts. @param {number} block @param {() => void} change */
  #change(block, change) {
    if (!this.holders[block]) return; // a contradiction, which the page already reports
    this.#count(block, -1);
    change();
    this.#count(block, 1);
  }

  /** @param {number} slot */
  #fill(slot) {
    if (this.filled[slot] || slot >= this.filled.length) return;
    this.filled[slot] = 1;
    this.numFilled[Math.floor(slot / this.blockSize)] += 1;
  }

  /** @param {number} block */
  #blank(block) {
    this.filled.fill(0, block * this.blockSize, (block + 1) * this.blockSize);
    this.numFilled[block] = 0;
    this.gone[block] = 0;
  }

  /** @param {number} block @returns {number[]} offsets of its entries */
  #offsets(block) {
    const first = block * this.blockSize;
    return Array.from({ length: this.blockSize }, (_, offset) => offset).filter(
      (offset) => this.filled[first + offset],
    );
  }

  /** @param {number} block @param {readonly number[]} offsets */
  #put(block, offsets) {
    this.#change(block, () => offsets.forEach((offset) => this.#fill(block * this.blockSize + offset)));
  }

  /** A request gets a block; one from the free queue is blank.
   * @param {number} request @param {number} index @param {number} block @param {boolean} blank */
  #take(request, index, block, blank) {
    this.#change(block, () => {
      if (blank) this.#blank(block);
      this.holders[block].push(request);
    });
    const table = this.tables.get(request) ?? [];
    this.tables.set(request, table);
    while (table.length <= index) table.push(-1);
    table[index] = block;
  }

  /** @param {number} request @param {number} block */
  #leave(request, block) {
    this.#change(block, () => {
      this.holders[block] = this.holders[block].filter((holder) => holder !== request);
    });
  }

  /** @param {number} request @param {readonly (readonly (readonly number[])[])[]} dropped positions by layer and head */
  #drop(request, dropped) {
    const table = this.tables.get(request) ?? [];
    const numLists = dropped.reduce((sum, heads) => sum + heads.length, 0);
    for (const heads of dropped)
      for (const positions of heads)
        for (const position of positions) {
          const block = table[Math.floor(position / this.blockSize)] ?? -1;
          if (block >= 0)
            this.#change(block, () => {
              this.gone[block] += 1 / numLists;
            });
        }
  }

  /** @param {Event} event */
  #apply(event) {
    switch (event.type) {
      case 'step_started':
        this.series.note(event.step - 1, this);
        this.inStep = true;
        break;
      case 'step_finished':
        this.inStep = false;
        this.series.note(event.step, this);
        break;
      case 'block_allocated':
        this.#take(event.request_id, event.logical_index, event.block_id, true);
        break;
      case 'block_shared':
        this.#take(event.request_id, event.logical_index, event.block_id, false);
        break;
      case 'request_forked':
        event.block_ids.forEach((block, index) => {
          if (block !== null) this.#take(event.request_id, index, block, false);
        });
        break;
      case 'block_copied': {
        const offsets = this.#offsets(event.from_block_id).filter((offset) => offset < event.num_tokens);
        this.#leave(event.request_id, event.from_block_id);
        this.#take(event.request_id, event.logical_index, event.block_id, true);
        this.#put(event.block_id, offsets);
        break;
      }
      case 'kv_written':
        for (const slot of event.slots) this.#change(Math.floor(slot / this.blockSize), () => this.#fill(slot));
        break;
      case 'kv_forgotten':
        this.#drop(event.request_id, event.dropped);
        break;
      case 'block_cached':
        this.#hash([event.block_id], 1);
        break;
      case 'prefix_cache_reset':
        this.#hash(event.block_ids, 0);
        break;
      case 'block_evicted':
        this.#hash([event.block_id], 0);
        this.#change(event.block_id, () => this.#blank(event.block_id));
        break;
      case 'blocks_released':
        for (const block of event.block_ids) this.#leave(event.request_id, block);
        for (const block of event.prepended) this.#change(block, () => this.#blank(block));
        break;
      case 'request_finished':
        for (const [id, { request }] of this.host) if (request === event.request_id) this.host.delete(id);
        this.tables.delete(event.request_id);
        break;
      default:
        this.#applyTier(event);
    }
  }

  /** @param {readonly number[]} blocks @param {0|1} hashed */
  #hash(blocks, hashed) {
    for (const block of blocks)
      this.#change(block, () => {
        this.hashed[block] = hashed;
      });
  }

  /** Moves between the pool and the host. @param {Event} event */
  #applyTier(event) {
    switch (event.type) {
      case 'blocks_swapped_out':
        event.host_ids.forEach((id, i) =>
          this.host.set(id, { request: event.request_id, offsets: this.#offsets(event.block_ids[i]) }),
        );
        break;
      case 'blocks_swapped_in':
        event.host_ids.forEach((id, i) => this.#fetch(id, event.block_ids[i]));
        break;
      case 'block_offloaded':
        this.host.set(event.host_id, { request: null, offsets: this.#offsets(event.block_id) });
        break;
      case 'block_fetched':
        this.#fetch(event.host_id, event.block_id);
        break;
      case 'host_evicted':
        this.host.delete(event.host_id);
        break;
      default:
        break;
    }
  }

  /** @param {number} hostId @param {number} block */
  #fetch(hostId, block) {
    this.#put(block, this.host.get(hostId)?.offsets ?? []);
    this.host.delete(hostId);
  }
}
