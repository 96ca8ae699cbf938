/**
 * The digest of a world (docs/wire.md, "Digest"): MurmurHash3 x86 32-bit (Austin Appleby) over unsigned words, with
 * two seeds at once. It uses only integers, not the crypto API, which is missing over http.
 */

/** @import { World } from './state.js' */

const SEED_A = 0x6b76;
const SEED_B = 0x7669;
const VERSION = 1;
const STATE = { waiting: 0, running: 1, preempted: 2, swapped: 3, finished: 0 };

export const TOKEN_HASH_START = 2166136261;

/** First 4 bytes of a prefix hash as a number; 0 without a hash. @param {string|null} hash @returns {number} */
export function shortHashOf(hash) {
  return hash ? parseInt(hash.slice(0, 8), 16) : 0;
}

/** FNV-1a over one whole word. @param {number} hash @param {number} word @returns {number} */
export function extendTokenHash(hash, word) {
  return Math.imul(hash ^ word, 16777619) >>> 0;
}

/** Words of the world being hashed; grows and is reused. */
let words = new Uint32Array(4096);

/** @param {number} size */
function reserve(size) {
  if (words.length < size) words = new Uint32Array(size * 2);
}

/** MurmurHash3 of `length` words with both seeds. @param {Uint32Array} data @param {number} length @returns {string} */
function hash(data, length) {
  let a = SEED_A;
  let b = SEED_B;
  for (let i = 0; i < length; i++) {
    let k = Math.imul(data[i], 0xcc9e2d51);
    k = Math.imul((k << 15) | (k >>> 17), 0x1b873593);
    a ^= k;
    a = (Math.imul((a << 13) | (a >>> 19), 5) + 0xe6546b64) | 0;
    b ^= k;
    b = (Math.imul((b << 13) | (b >>> 19), 5) + 0xe6546b64) | 0;
  }
  return finish(a, length) + finish(b, length);
}

/** @param {number} h @param {number} length @returns {string} */
function finish(h, length) {
  h ^= length * 4;
  h ^= h >>> 16;
  h = Math.imul(h, 0x85ebca6b);
  h ^= h >>> 13;
  h = Math.imul(h, 0xc2b2ae35);
  h ^= h >>> 16;
  return (h >>> 0).toString(16).padStart(8, '0');
}

/** Digest of a list of words. @param {ArrayLike<number>} list @returns {string} */
export function digestWords(list) {
  return hash(Uint32Array.from(list), list.length);
}

/** 16 hex digits. @param {World} world @param {number} [step] @returns {string} */
export function digest(world, step = world.step) {
  const { numBlocks, refCount, shortHash, free, unfinished, host } = world;
  let size = 16 + numBlocks * 3 + free.length + host.size * 2;
  for (const id of unfinished) size += 8 + (world.requests.get(id)?.table.length ?? 0);
  reserve(size);
  const data = words;
  let at = 0;
  data[at++] = VERSION;
  data[at++] = step;
  data[at++] = numBlocks;
  for (let block = 0; block < numBlocks; block++) {
    data[at++] = refCount[block];
    data[at++] = shortHash[block];
    data[at++] = 0;
  }
  data[at++] = free.length;
  for (let i = 0; i < free.length; i++) data[at++] = free[i];
  data[at++] = world.numFinished;
  data[at++] = world.finishedHash;
  data[at++] = unfinished.length;
  for (const id of unfinished) {
    const request = world.requests.get(id);
    if (!request) continue;
    data[at++] = id;
    data[at++] = STATE[request.state];
    data[at++] = request.numComputed;
    data[at++] = request.tokens.length;
    data[at++] = request.tokenHash;
    data[at++] = request.windowStart;
    data[at++] = request.table.length;
    for (let i = 0; i < request.table.length; i++) data[at++] = request.table[i];
  }
  data[at++] = host.size;
  for (const hostId of [...host.keys()].sort((a, b) => a - b)) {
    data[at++] = hostId;
    data[at++] = shortHashOf(host.get(hostId)?.hash ?? null);
  }
  return hash(data, at);
}
