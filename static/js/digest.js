/**
 * The digest of a world (docs/wire.md, "Digest"): MurmurHash3 x86 32-bit (Austin Appleby) over unsigned words, with two
 * seeds at once. Integers only and no crypto API, which plain http does not have.
 */

/** @typedef {import('./state.js').World} World */

const SEED_A = 0x6b76;
const SEED_B = 0x7669;
const VERSION = 1;
const STATE = { waiting: 0, running: 1, preempted: 2, swapped: 3, finished: 0 };

export const TOKEN_HASH_START = 2166136261;

/** FNV-1a over one whole word. @param {number} hash @param {number} word @returns {number} */
export function extendTokenHash(hash, word) {
  return Math.imul(hash ^ word, 16777619) >>> 0;
}

let a = 0;
let b = 0;
let count = 0;

/** @param {number} word */
function put(word) {
  let k = Math.imul(word, 0xcc9e2d51);
  k = (k << 15) | (k >>> 17);
  k = Math.imul(k, 0x1b873593);
  a ^= k;
  a = (a << 13) | (a >>> 19);
  a = (Math.imul(a, 5) + 0xe6546b64) | 0;
  b ^= k;
  b = (b << 13) | (b >>> 19);
  b = (Math.imul(b, 5) + 0xe6546b64) | 0;
  count++;
}

/** @param {number} h @returns {string} */
function finish(h) {
  h ^= count * 4;
  h ^= h >>> 16;
  h = Math.imul(h, 0x85ebca6b);
  h ^= h >>> 13;
  h = Math.imul(h, 0xc2b2ae35);
  h ^= h >>> 16;
  return (h >>> 0).toString(16).padStart(8, '0');
}

/** Digest of a list of words. @param {ArrayLike<number>} words @returns {string} */
export function digestWords(words) {
  a = SEED_A;
  b = SEED_B;
  count = 0;
  for (let i = 0; i < words.length; i++) put(words[i]);
  return finish(a) + finish(b);
}

/** 16 hex digits. @param {World} world @param {number} [step] @returns {string} */
export function digest(world, step = world.step) {
  a = SEED_A;
  b = SEED_B;
  count = 0;
  put(VERSION);
  put(step);
  const { numBlocks, refCount, shortHash, free } = world;
  put(numBlocks);
  for (let block = 0; block < numBlocks; block++) {
    put(refCount[block]);
    put(shortHash[block]);
    put(0);
  }
  put(free.length);
  for (let i = 0; i < free.length; i++) put(free[i]);
  put(world.numFinished);
  put(world.finishedHash);
  put(world.unfinished.length);
  for (const id of world.unfinished) {
    const request = world.requests.get(id);
    if (!request) continue;
    put(id);
    put(STATE[request.state]);
    put(request.numComputed);
    put(request.tokens.length);
    put(request.tokenHash);
    put(request.windowStart);
    put(request.table.length);
    for (let i = 0; i < request.table.length; i++) put(request.table[i]);
  }
  put(0);
  return finish(a) + finish(b);
}
