/**
 * Positions of a request's tokens from left to right: one column each, grouped by block. In a longer context, the last
 * tokens keep their full width, and the older ones become pixels, then bins. Pure functions of their input.
 */

/**
 * @typedef {object} ColumnInput
 * @property {number} numTokens known tokens, stored or not
 * @property {number} numSlots slots of all blocks that are shown, at least numTokens
 * @property {number} blockSize
 * @property {number} x left edge @property {number} width CSS pixels
 * @property {number} [maxPitch] widest column
 */

/** Tokens that keep their width in a long context, and their share of the total width. */
const TAIL_TOKENS = 32;
const TAIL_SHARE = 0.3;
/** The tail moves in steps of this many tokens, so that decode adds columns to a still picture. */
const TAIL_STRIDE = 8;
/** Below this pitch a context counts as long. */
const MIN_PITCH = 5;
const TAIL_GAP = 14;
/** Column counts between which the scale doesn't change. */
const LEVELS = [16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 224, 256, 320, 384];

export class Columns {
  /**
   * @param {ColumnInput} input
   * @param {{pitch: number, blockGap: number, tailStart: number, bin: number, bodyPitch: number, bodyWidth: number}} scale
   */
  constructor(input, scale) {
    this.input = input;
    this.scale = scale;
    /** Number of tokens (or empty slots) with a place. */
    this.numShown = 0;
  }

  get x() {
    return this.input.x;
  }

  /** Whether part of the row has less than one column per token. */
  get long() {
    return this.scale.tailStart > 0;
  }

  /** Left edge of position p. @param {number} p @returns {number} */
  left(p) {
    const { tailStart, pitch, blockGap, bodyPitch, bodyWidth } = this.scale;
    if (p < tailStart) return this.x + p * bodyPitch;
    const { blockSize } = this.input;
    const gaps =
      tailStart > 0 ? Math.floor(p / blockSize) - Math.floor(tailStart / blockSize) : Math.floor(p / blockSize);
    return this.x + bodyWidth + (p - tailStart) * pitch + gaps * blockGap;
  }

  /** Right edge of position p. @param {number} p @returns {number} */
  right(p) {
    return this.left(p) + (p < this.scale.tailStart ? this.scale.bodyPitch : this.scale.pitch);
  }
}

/** @param {number} needed @returns {number} the next level */
function levelOf(needed) {
  return LEVELS.find((level) => level >= needed) ?? Math.ceil(needed / 64) * 64;
}

/** @param {ColumnInput} input @returns {Columns} */
export function layoutColumns(input) {
  const { numTokens, numSlots, blockSize, width } = input;
  const level = Math.max(1, Math.min(levelOf(numTokens), Math.max(numSlots, levelOf(numTokens))));
  const maxPitch = input.maxPitch ?? 48;
  const numBlocks = Math.ceil(level / blockSize);
  const blockGap = blockSize === 1 ? 1 : blockSize < 4 ? 3 : 7;
  const pitch = Math.min(maxPitch, (width - (numBlocks - 1) * blockGap) / level);
  if (pitch >= MIN_PITCH) {
    const columns = new Columns(input, { pitch, blockGap, tailStart: 0, bin: 1, bodyPitch: pitch, bodyWidth: 0 });
    columns.numShown = Math.max(numTokens, Math.min(numSlots, level));
    return columns;
  }
  return layoutLong(input);
}

/** @param {ColumnInput} input @returns {Columns} */
function layoutLong(input) {
  const { numTokens, numSlots, blockSize, width } = input;
  const tailStart = Math.max(0, Math.floor((numTokens - TAIL_TOKENS) / TAIL_STRIDE) * TAIL_STRIDE);
  const blockGap = blockSize < 4 ? 1 : 4;
  const pitch = (width * TAIL_SHARE - Math.floor(TAIL_TOKENS / blockSize) * blockGap) / TAIL_TOKENS;
  const capacity = TAIL_TOKENS + TAIL_STRIDE;
  const tailWidth = capacity * pitch + Math.ceil(capacity / blockSize) * blockGap;
  const room = Math.max(40, width - tailWidth - TAIL_GAP);
  let bin = 1;
  while (tailStart / bin > room) bin *= 2;
  const bodyPitch = room / (Math.ceil(tailStart / bin) * bin);
  const columns = new Columns(input, { pitch, blockGap, tailStart, bin, bodyPitch, bodyWidth: room + TAIL_GAP });
  columns.numShown = Math.min(Math.max(numTokens, numSlots), tailStart + capacity);
  columns.numShown = Math.max(columns.numShown, numTokens);
  return columns;
}

/** A paintable layout: the edges of each drawn column and its tokens. Between two layouts, the edges are interpolated. */
export class ColumnEdges {
  /** @param {Columns} before @param {Columns} after @param {number} t 0-1, how far on the way */
  constructor(before, after, t) {
    this.before = before;
    this.after = after;
    this.t = t;
    const { tailStart, bin } = after.scale;
    const numBins = Math.ceil(tailStart / bin);
    this.count = numBins + Math.max(0, after.numShown - tailStart);
    this.numBins = numBins;
    /** Tokens of column c: from[c] … to[c] - 1. */
    this.from = new Int32Array(this.count);
    this.to = new Int32Array(this.count);
    this.x0 = new Float64Array(this.count);
    this.x1 = new Float64Array(this.count);
    for (let c = 0; c < this.count; c += 1) {
      const from = c < numBins ? c * bin : tailStart + (c - numBins);
      const to = c < numBins ? Math.min(tailStart, from + bin) : from + 1;
      this.from[c] = from;
      this.to[c] = to;
      this.x0[c] = this.leftOf(from);
      this.x1[c] = this.rightOf(to - 1);
    }
  }

  /** @param {number} p position @returns {number} */
  leftOf(p) {
    const end = this.after.left(p);
    return this.t >= 1 || this.before === this.after ? end : this.before.left(p) * (1 - this.t) + end * this.t;
  }

  /** @param {number} p position @returns {number} */
  rightOf(p) {
    const end = this.after.right(p);
    return this.t >= 1 || this.before === this.after ? end : this.before.right(p) * (1 - this.t) + end * this.t;
  }

  get left() {
    return this.count > 0 ? this.x0[0] : this.after.x;
  }

  get right() {
    return this.count > 0 ? this.x1[this.count - 1] : this.after.x;
  }

  /** Pixels from one column to the next in the widest part. */
  get pitch() {
    return this.after.scale.pitch;
  }

  /** The column of a position. @param {number} position @returns {number} */
  columnOf(position) {
    const { tailStart, bin } = this.after.scale;
    return position < tailStart ? Math.floor(position / bin) : this.numBins + position - tailStart;
  }

  /** The column under x, or -1. @param {number} x @returns {number} */
  columnAt(x) {
    let low = 0;
    let high = this.count - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (x < this.x0[middle]) high = middle - 1;
      else if (x >= this.x1[middle]) low = middle + 1;
      else return middle;
    }
    return -1;
  }
}

/**
 * The groups of columns that share a block, for the chips above them.
 * @param {ColumnEdges} edges @param {readonly number[]} table physical block by logical index, -1 where there is none
 * @param {number} blockSize
 * @returns {{logical: number, block: number, x0: number, x1: number, from: number, to: number}[]}
 */
export function blockGroups(edges, table, blockSize) {
  const groups = [];
  const end = edges.after.numShown;
  for (let logical = 0; logical * blockSize < end; logical += 1) {
    const from = logical * blockSize;
    const to = Math.min(end, from + blockSize);
    groups.push({ logical, block: table[logical] ?? -1, x0: edges.leftOf(from), x1: edges.rightOf(to - 1), from, to });
  }
  return groups;
}
