/** The folded state of a cache, from which pictures are drawn. Only reducer.js writes it. */

import { shortHashOf, TOKEN_HASH_START } from './digest.js';
/** @import { Request, Check, HostBlock, LaneRun } from './types.d.ts' */
/** @import { ProbeTimed } from './events.d.ts' */

const LETTERS = 26;

/** A, B, … Z, A2, B2, … in order of id. @param {number} id @returns {string} */
export function letterOf(id) {
  const letter = String.fromCharCode(65 + (id % LETTERS));
  const round = Math.floor(id / LETTERS);
  return round === 0 ? letter : letter + String(round + 1);
}

/**
 * Per block: reference count, full prefix hash or null, step since which it is free (-1 in use; 0 from the start). Per
 * slot (block × block size + offset): request, position, seq of the write, token; -1 if blank.
 */
export class World {
  /** @param {number} numBlocks @param {number} blockSize */
  constructor(numBlocks, blockSize) {
    const numSlots = numBlocks * blockSize;
    this.numBlocks = numBlocks;
    this.blockSize = blockSize;
    /** Last record folded. */
    this.seq = -1;
    /** Last finished step. */
    this.step = 0;
    /** The step being folded, or the last finished one. */
    this.currentStep = 0;
    this.refCount = new Int32Array(numBlocks);
    /** First 4 bytes of each block's hash as a number, for the digest. */
    this.shortHash = new Uint32Array(numBlocks);
    this.freeSince = new Int32Array(numBlocks);
    /** @type {(string|null)[]} */
    this.hash = new Array(numBlocks).fill(null);
    /** Free queue, head first. @type {number[]} */
    this.free = Array.from({ length: numBlocks }, (_, block) => block);
    this.slotRequest = new Int32Array(numSlots).fill(-1);
    this.slotPosition = new Int32Array(numSlots).fill(-1);
    this.slotSeq = new Float64Array(numSlots).fill(-1);
    this.slotToken = new Int32Array(numSlots).fill(-1);
    /** Blocks of the host tier in use, by id. Each is replaced, never changed. @type {Map<number, HostBlock>} */
    this.host = new Map();
    /** In order of id. @type {Map<number, Request>} */
    this.requests = new Map();
    /** Ids of the unfinished requests, ascending. @type {number[]} */
    this.unfinished = [];
    this.numFinished = 0;
    /** Hash over the token hashes of the finished requests, in the order in which they finished. */
    this.finishedHash = TOKEN_HASH_START;
    /** Measurements of a comparison, by request. Each is replaced, never changed. @type {Map<number, LaneRun>} */
    this.lanes = new Map();
    /** Number of lanes in the run; null if unknown. @type {number|null} */
    this.numLanes = null;
    /** Times that an attacker observed; replaced, never changed. @type {readonly ProbeTimed[]} */
    this.probes = [];
    /** Digest of the last finished step. @type {Check|null} */
    this.check = null;
    /** First contradiction between an event and this world. @type {string|null} */
    this.broken = null;
    /** Events of unknown types. */
    this.numUnknown = 0;
    /** Requests that only this world holds; others are copied before a change. @type {Set<number>} */
    this.owned = new Set();
  }

  /** A world that can be folded further without changing this one. Requests are copied when first changed. */
  clone() {
    /** @type {World} */
    const copy = Object.create(World.prototype);
    copy.numBlocks = this.numBlocks;
    copy.blockSize = this.blockSize;
    copy.seq = this.seq;
    copy.step = this.step;
    copy.currentStep = this.currentStep;
    copy.refCount = this.refCount.slice();
    copy.shortHash = this.shortHash.slice();
    copy.freeSince = this.freeSince.slice();
    copy.hash = this.hash.slice();
    copy.free = this.free.slice();
    copy.slotRequest = this.slotRequest.slice();
    copy.slotPosition = this.slotPosition.slice();
    copy.slotSeq = this.slotSeq.slice();
    copy.slotToken = this.slotToken.slice();
    copy.host = new Map(this.host);
    copy.requests = new Map(this.requests);
    copy.unfinished = this.unfinished.slice();
    copy.numFinished = this.numFinished;
    copy.finishedHash = this.finishedHash;
    copy.lanes = new Map(this.lanes);
    copy.numLanes = this.numLanes;
    copy.probes = this.probes;
    copy.check = this.check;
    copy.broken = this.broken;
    copy.numUnknown = this.numUnknown;
    copy.owned = new Set();
    this.owned.clear();
    return copy;
  }

  /** Approximate bytes of a clone. */
  get cloneBytes() {
    let tokens = 0;
    for (const id of this.unfinished) tokens += this.requests.get(id)?.tokens.length ?? 0;
    return (
      this.slotToken.length * 20 + this.numBlocks * 24 + this.requests.size * 40 + this.host.size * 40 + tokens * 16
    );
  }

  /** The request, safe to change. @param {number} id @returns {Request|undefined} */
  mutable(id) {
    const request = this.requests.get(id);
    if (!request || this.owned.has(id)) return request;
    const copy = {
      ...request,
      tokens: request.tokens.slice(),
      pieces: request.pieces.slice(),
      table: request.table.slice(),
    };
    this.requests.set(id, copy);
    this.owned.add(id);
    return copy;
  }

  /** @param {number} block */
  blankBlock(block) {
    const from = block * this.blockSize;
    const to = from + this.blockSize;
    this.slotRequest.fill(-1, from, to);
    this.slotPosition.fill(-1, from, to);
    this.slotSeq.fill(-1, from, to);
    this.slotToken.fill(-1, from, to);
  }

  /** @param {number} block @param {string|null} hash */
  setHash(block, hash) {
    this.hash[block] = hash;
    this.shortHash[block] = shortHashOf(hash);
  }
}
