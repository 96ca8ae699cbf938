/** Values derived from a world, the log and the ui. Figures on screen are computed only here. */

/** @import { World } from './state.js' */
/** @import { Log } from './log.js' */
/** @import { Ui } from '../ui/store.js' */
/** @import { Request, Scene, Header } from './types.d.ts' */

/**
 * The request whose tokens are shown: the chosen one, else the one computed in this scene, else the running one, else
 * the last.
 * @param {Scene} scene @param {Ui} ui @returns {Request|null}
 */
export function shownRequest(scene, ui) {
  const { after, step } = scene;
  if (ui.requestId !== null) {
    const chosen = after.requests.get(ui.requestId);
    if (chosen) return chosen;
  }
  const atWork = step?.chunks[0]?.request_id;
  if (atWork !== undefined) {
    const request = after.requests.get(atWork);
    if (request) return request;
  }
  return currentRequest(after);
}

/**
 * The running request, else the last finished one, else the first waiting one. A request that finished before any
 * token was computed has nothing to show.
 * @param {World} world @returns {Request|null}
 */
function currentRequest(world) {
  /** @type {Request|null} */
  let last = null;
  /** @type {Request|null} */
  let waiting = null;
  for (const request of world.requests.values()) {
    if (request.state === 'running') return request;
    if (request.state === 'waiting') waiting ??= request;
    else if (request.state !== 'finished') waiting ??= request;
    else if (request.numComputed > 0 || last === null) last = request;
  }
  return last && (last.numComputed > 0 || !waiting) ? last : waiting;
}

/** The block table of a request, now or when it finished. @param {Request} request @returns {number[]} */
export function tableOf(request) {
  return request.state === 'finished' ? (request.lastTable ?? []) : request.table;
}

/**
 * The place of a position's entry, or null. It counts as stored if the slot still has it, whichever request uses the
 * block now.
 * @param {World} world @param {Request} request @param {number} position
 * @returns {{block: number, offset: number, slot: number, writeSeq: number, stored: boolean}|null}
 */
export function placeOf(world, request, position) {
  const block = tableOf(request)[Math.floor(position / world.blockSize)] ?? -1;
  if (block < 0) return null;
  const offset = position % world.blockSize;
  const slot = block * world.blockSize + offset;
  const stored =
    world.slotSeq[slot] >= 0 &&
    world.slotPosition[slot] === position &&
    world.slotToken[slot] === request.tokens[position];
  return { block, offset, slot, writeSeq: stored ? world.slotSeq[slot] : -1, stored };
}

/** Requests that use a block, in order of id. @param {World} world @param {number} block @returns {Request[]} */
export function ownersOf(world, block) {
  if (world.refCount[block] === 0) return [];
  const owners = [];
  for (const id of world.unfinished) {
    const request = world.requests.get(id);
    if (request?.table.includes(block)) owners.push(request);
  }
  return owners;
}

/** @param {World} world @param {number} block @returns {'blank'|'used'|'cached'} */
export function blockState(world, block) {
  return world.refCount[block] > 0 ? 'used' : world.hash[block] !== null ? 'cached' : 'blank';
}

/** Slots of a block that hold an entry. @param {World} world @param {number} block @returns {number} */
export function filledSlots(world, block) {
  let filled = 0;
  for (let slot = block * world.blockSize; slot < (block + 1) * world.blockSize; slot++) {
    if (world.slotSeq[slot] >= 0) filled++;
  }
  return filled;
}

/** @param {World} world @returns {{used: number, cached: number, blank: number}} */
export function poolCounts(world) {
  let used = 0;
  let cached = 0;
  for (let block = 0; block < world.numBlocks; block++) {
    if (world.refCount[block] > 0) used++;
    else if (world.hash[block] !== null) cached++;
  }
  return { used, cached, blank: world.numBlocks - used - cached };
}

/** Entries that a request holds now: computed, and not released by its windows. @param {Request} request @returns {number} */
export function storedTokens(request) {
  return request.state === 'finished'
    ? 0
    : Math.max(request.numComputed - request.windowStart - goneTokens(request), 0);
}

/** Tokens that a policy has dropped; one dropped in only some layers or heads counts in part. @param {Request} request @returns {number} */
export function goneTokens(request) {
  const lists = request.forgotten.reduce((sum, heads) => sum + heads.length, 0);
  return lists === 0 ? 0 : request.numDropped / lists;
}

/** In how many heads of a layer an entry is dropped, and of how many.
 * @param {World} world @param {Request} request @param {number} layer @param {number} position
 * @returns {{gone: number, of: number}} */
export function goneHeads(world, request, layer, position) {
  const heads = request.forgotten.length === 1 ? request.forgotten[0] : (request.forgotten[layer] ?? []);
  return { gone: heads.filter((since) => (since.get(position) ?? Infinity) <= world.seq).length, of: heads.length };
}

/**
 * K/V computations of a request so far, with the cache, and as if every step computed its whole prefix (not again
 * after a preemption).
 * @param {Request} request @returns {{withCache: number, without: number}}
 */
export function workCounts(request) {
  const prompt = request.promptLength;
  const computed =
    request.tokens.length > prompt ? Math.max(request.numComputed, request.tokens.length - 1) : request.numComputed;
  if (computed <= prompt) return { withCache: request.numWritten, without: computed };
  const decoded = computed - prompt;
  const without = prompt + decoded * prompt + (decoded * (decoded + 1)) / 2;
  return { withCache: request.numWritten, without };
}

/** Whether this is the log of a block workload, in which no layer stores anything. @param {Header} header @returns {boolean} */
export function hasNoModel(header) {
  return header.model.layers.every((layer) => layer.cache === 'none');
}

/** Bytes of one token in one layer and in all, and the factors of the formula. @param {Header} header @param {number} layer */
export function entryBytes(header, layer) {
  const geometry = header.model.layers[layer] ?? null;
  const inLayer = geometry ? geometry.bytes_per_token : header.pool.bytes_per_token / header.model.num_layers;
  return { inLayer, total: header.pool.bytes_per_token, element: elementBytes(header.model.dtype), geometry };
}

/** @param {string} dtype @returns {number} */
export function elementBytes(dtype) {
  return { float64: 8, float32: 4, float16: 2, bfloat16: 2, fp32: 4, fp16: 2, bf16: 2 }[dtype] ?? 4;
}

/** `fp32` for `float32`. @param {string} dtype */
export function shortDtype(dtype) {
  return { float64: 'fp64', float32: 'fp32', float16: 'fp16', bfloat16: 'bf16' }[dtype] ?? dtype;
}

/**
 * Milliseconds of a request's prefill (the sum of its steps up to the first sampled token, once finished) and of its
 * last finished decode step, at the scene's position.
 * @param {Log} log @param {Request} request @param {number} position
 * @returns {{prefillMs: number|null, prefillTokens: number, tokenMs: number|null}}
 */
export function stepTimes(log, request, position) {
  const span = log.spanOf(request.id);
  if (!span) return { prefillMs: null, prefillTokens: 0, tokenMs: null };
  const prefillTokens = request.promptLength - request.numHitTokens;
  let prefillUs = 0;
  let complete = false;
  for (let step = span.firstStep; step <= Math.min(span.lastStep, position); step++) {
    if (span.firstTokenStep === 0 && log.kindAt(step) === 'decode') {
      complete = true;
      break;
    }
    prefillUs += log.stepUs(step);
    if (step >= span.firstTokenStep && span.firstTokenStep > 0) {
      complete = true;
      break;
    }
  }
  const last = Math.min(span.lastStep, position);
  const decodes =
    last >= span.firstStep &&
    (log.step(last)?.chunks.some((chunk) => chunk.request_id === request.id && chunk.kind === 'decode') ?? false);
  const tokenMs = decodes ? log.stepUs(last) / 1000 : null;
  return { prefillMs: complete ? prefillUs / 1000 : null, prefillTokens, tokenMs };
}

/** The time to first token with a prefix hit and with the measured miss, once both are known.
 * @param {Log} log @param {number} requestId @param {number} seq last record seen */
export function missOf(log, requestId, seq) {
  const miss = log.misses.get(requestId);
  return miss && miss.seq <= seq ? miss.event : null;
}

/** The request that `request` continues, back to the first of the conversation.
 * @param {World} world @param {Request} request @returns {Request[]} */
export function conversation(world, request) {
  const turns = [request];
  let at = request;
  while (at.continues !== null) {
    const former = world.requests.get(at.continues);
    if (!former || turns.includes(former)) break;
    turns.unshift(former);
    at = former;
  }
  return turns;
}
