/**
 * The value of each cell in the views of the cache lens (magnitude, attention so far, age) and their scales. All
 * scales are fixed at the end of prefill (age: by the request's budget), so that they don't change from step to step.
 */
import { heldPack, meanRow } from '../shared/frame-rows.js';
import { percentiles } from './norms.js';
/** @import { Frames } from '../../core/frames.js' */
/** @import { Log } from '../../core/log.js' */
/** @import { Pack, World } from '../../core/types.d.ts' */
/** @import { ColumnEdges } from './columns.js' */
/** @import { Norms } from './norms.js' */

const CHECKPOINT_STEPS = 32;
const MAX_ASKED = 8;

/** Levels 0-255 by [half][layer · count + column], -1 if unknown.
 * @typedef {object} Levels
 * @property {[Int16Array, Int16Array]} halves
 * @property {number} count columns */

/** @param {ColumnEdges} edges @param {number} numLayers @param {Norms} norms @param {boolean} own each layer on its own scale
 * @returns {Levels} */
export function normLevels(edges, numLayers, norms, own) {
  const { count } = edges;
  /** @type {[Int16Array, Int16Array]} */
  const halves = [new Int16Array(numLayers * count), new Int16Array(numLayers * count)];
  const known = norms.scale !== null;
  const { bin } = edges.after.scale;
  /** @param {'key'|'value'} half @param {number} layer @param {number} c */
  const level = (half, layer, c) => {
    if (!known) return -1;
    const [from, to] = [edges.from[c], edges.to[c]];
    return bin > 1 && to - from === bin
      ? norms.binLevel(half, layer, c, bin, own)
      : norms.level(half, layer, from, to, own);
  };
  for (let layer = 0; layer < numLayers; layer += 1) {
    for (let c = 0; c < count; c += 1) {
      const at = layer * count + c;
      halves[0][at] = level('key', layer, c);
      halves[1][at] = level('value', layer, c);
    }
  }
  return { halves, count };
}

/** The age of each entry in steps, the same in all layers.
 * @param {ColumnEdges} edges @param {number} numLayers @param {World} world @param {readonly number[]} table @param {Log} log
 * @param {number} step @param {number} oldest @returns {Levels} */
export function ageLevels(edges, numLayers, world, table, log, step, oldest) {
  const { count } = edges;
  const levels = new Int16Array(numLayers * count);
  for (let c = 0; c < count; c += 1) {
    const position = edges.to[c] - 1;
    const block = table[Math.floor(position / world.blockSize)] ?? -1;
    const seq = block < 0 ? -1 : world.slotSeq[block * world.blockSize + (position % world.blockSize)];
    const age = seq < 0 ? -1 : Math.max(0, step - log.stepOf(seq));
    const level = age < 0 ? -1 : Math.min(255, Math.round((255 * age) / Math.max(1, oldest)));
    for (let layer = 0; layer < numLayers; layer += 1) levels[layer * count + c] = level;
  }
  return { halves: [levels, levels], count };
}

/** Attention that each entry of one request has received, summed over the frames of its steps. Missing frames are skipped and counted. */
export class ReceivedAttention {
  /** @param {Frames} frames @param {number} numLayers @param {number} firstStep of the request */
  constructor(frames, numLayers, firstStep) {
    this.frames = frames;
    this.numLayers = numLayers;
    this.firstStep = firstStep;
    this.step = firstStep - 1;
    this.capacity = 0;
    /** Sum of weights [layers, capacity]. */
    this.sum = new Float32Array(0);
    /** Queries that could read each position. */
    this.queries = new Uint32Array(0);
    this.numKnown = 0;
    this.numMissing = 0;
    /** @type {{step: number, sum: Float32Array, queries: Uint32Array, numKnown: number, numMissing: number, capacity: number}[]} */
    this.checkpoints = [];
    /** 2nd and 98th percentile of the weights at the end of prefill. @type {[number, number]|null} */
    this.scale = null;
  }

  /** @param {number} positions */
  #grow(positions) {
    if (positions <= this.capacity) return;
    const capacity = Math.max(64, 2 ** Math.ceil(Math.log2(positions)));
    const sum = new Float32Array(this.numLayers * capacity);
    for (let layer = 0; layer < this.numLayers; layer += 1) {
      sum.set(this.sum.subarray(layer * this.capacity, (layer + 1) * this.capacity), layer * capacity);
    }
    const queries = new Uint32Array(capacity);
    queries.set(this.queries);
    [this.sum, this.queries, this.capacity] = [sum, queries, capacity];
  }

  /** Starts again because missing frames have arrived. */
  reset() {
    this.step = this.firstStep - 1;
    this.sum = new Float32Array(0);
    this.queries = new Uint32Array(0);
    this.capacity = 0;
    this.numKnown = 0;
    this.numMissing = 0;
    this.checkpoints = [];
  }

  /** Sums up to `step`, forward or backward. @param {number} step @param {number} requestId */
  seek(step, requestId) {
    if (step < this.step) this.#back(step);
    let asked = 0;
    while (this.step < step) {
      this.step += 1;
      const pack = heldPack(this.frames, this.step, requestId);
      if (pack) this.#add(pack);
      else if (this.frames.log.lastWork(requestId, this.step) === this.step) {
        this.numMissing += 1;
        if (asked < MAX_ASKED && !this.frames.problem('step', this.step, requestId)) {
          this.frames.step(this.step, requestId);
          asked += 1;
        }
      }
      if (this.step % CHECKPOINT_STEPS === 0) this.#keep();
    }
  }

  /** @param {Pack} pack */
  #add(pack) {
    const numTokens = pack.meta.num_tokens ?? 0;
    this.#grow(numTokens);
    for (let layer = 0; layer < this.numLayers; layer += 1) {
      const row = meanRow(pack, layer);
      if (!row) continue;
      for (let p = 0; p < numTokens; p += 1) {
        const c = Math.floor(p / row.bin);
        const size = Math.min(row.bin, numTokens - c * row.bin);
        this.sum[layer * this.capacity + p] += row.weights[c] / size;
      }
    }
    for (let p = 0; p < numTokens; p += 1) this.queries[p] += 1;
    this.numKnown += 1;
  }

  #keep() {
    const { step, numKnown, numMissing, capacity } = this;
    this.checkpoints.push({
      step,
      numKnown,
      numMissing,
      capacity,
      sum: this.sum.slice(),
      queries: this.queries.slice(),
    });
  }

  /** @param {number} step */
  #back(step) {
    while (this.checkpoints.length > 0 && this.checkpoints[this.checkpoints.length - 1].step > step)
      this.checkpoints.pop();
    const from = this.checkpoints[this.checkpoints.length - 1];
    if (!from) return this.reset();
    Object.assign(this, { ...from, sum: from.sum.slice(), queries: from.queries.slice() });
  }

  /** Fixes the scale from the first frame that covers the whole prompt. @param {Pack|null} pack */
  settle(pack) {
    if (this.scale || !pack) return;
    const all = [];
    for (let layer = 0; layer < this.numLayers; layer += 1) {
      const row = meanRow(pack, layer);
      if (row)
        for (let i = 0; i < row.weights.length; i += 1) if (row.weights[i] > 0) all.push(row.weights[i] / row.bin);
    }
    const range = percentiles(all, 0.02, 0.98);
    if (range && range[1] > 0) this.scale = [Math.max(range[0], range[1] / 1000), range[1]];
  }

  /** @param {ColumnEdges} edges @returns {Levels} on a logarithmic scale */
  levels(edges) {
    const { count } = edges;
    const levels = new Int16Array(this.numLayers * count).fill(-1);
    const { scale } = this;
    for (let layer = 0; scale && layer < this.numLayers; layer += 1) {
      for (let c = 0; c < count; c += 1) {
        const average = this.average(layer, edges.from[c], edges.to[c]);
        if (average === null) continue;
        const t = Math.log(Math.max(average, scale[0]) / scale[0]) / Math.log(scale[1] / scale[0]);
        levels[layer * count + c] = Math.max(0, Math.min(255, Math.round(255 * t)));
      }
    }
    return { halves: [levels, levels], count };
  }

  /** Mean share over the queries that could read it.
   * @param {number} layer @param {number} from @param {number} to @returns {number|null} */
  average(layer, from, to) {
    let sum = 0;
    let queries = 0;
    for (let p = from; p < Math.min(to, this.capacity); p += 1) {
      sum += this.sum[layer * this.capacity + p];
      queries += this.queries[p];
    }
    return queries > 0 ? sum / queries : null;
  }
}
