/**
 * The fold: one case per event type. It checks each event; the first contradiction is recorded in `world.broken`, and
 * the fold continues as well as it can, so that a wrong log is shown and not hidden.
 */
import { digest, extendTokenHash, TOKEN_HASH_START } from './digest.js';
import { forgetAll, laneCases } from './fold-lanes.js';
import { tierCases } from './fold-tiers.js';
import { checkHead, checkTable, contradiction, isBlock, leaveQueue, popHead, putInTable, requestOf } from './fold.js';
import { letterOf } from './state.js';
/** @import { World } from './state.js' */
/** @import { Event, EventRecord } from './events.d.ts' */
/** @import { Cases } from './fold.js' */

/** Number of finished requests that a world keeps, as in kvviz/log/world.py. */
export const MAX_FINISHED_REQUESTS = 256;

/** @type {Cases} */
const cases = {
  ...tierCases,
  ...laneCases,

  request_added(world, event) {
    const id = event.request_id;
    if (world.requests.has(id)) contradiction(world, `request ${id} was added twice`);
    if (event.token_ids.length !== event.pieces.length) {
      contradiction(world, `request ${id} has ${event.token_ids.length} tokens and ${event.pieces.length} pieces`);
    }
    let tokenHash = TOKEN_HASH_START;
    for (const token of event.token_ids) tokenHash = extendTokenHash(tokenHash, token);
    world.requests.set(id, {
      id,
      letter: letterOf(id),
      state: 'waiting',
      prompt: event.prompt,
      template: event.template ?? false,
      salt: event.salt ?? null,
      continues: event.continues ?? null,
      tokens: event.token_ids.slice(),
      pieces: event.pieces.slice(),
      promptLength: event.num_prompt_tokens || event.token_ids.length,
      numComputed: 0,
      numWritten: 0,
      numHitTokens: 0,
      windowStart: 0,
      table: [],
      lastTable: null,
      maxNewTokens: event.max_new_tokens,
      sampling: event.sampling,
      finish: null,
      tokenHash,
      priority: event.priority ?? 0,
      fork: event.fork ?? null,
      numPreemptions: 0,
      forgotten: [],
      numDropped: 0,
      candidates: new Map(),
    });
    world.owned.add(id);
    world.unfinished.push(id);
  },

  step_started(world, event) {
    if (event.step !== world.step + 1) contradiction(world, `step ${event.step} follows step ${world.step}`);
    world.currentStep = event.step;
  },

  prefix_looked_up(world, event) {
    for (const block of event.hit_block_ids) {
      if (isBlock(world, block) && world.hash[block] === null) {
        contradiction(
          world,
          `the lookup of request ${event.request_id} hit block ${block}, which holds no cached prefix`,
        );
      }
    }
  },

  request_started(world, event) {
    const request = requestOf(world, event.request_id);
    if (!request) return;
    if (request.state !== 'waiting' && request.state !== 'preempted')
      contradiction(world, `request ${request.letter} started while ${request.state}`);
    if (request.state === 'waiting') request.numHitTokens = event.num_hit_tokens;
    request.state = 'running';
    request.numComputed = event.num_hit_tokens;
  },

  block_shared(world, event) {
    const request = requestOf(world, event.request_id);
    const block = event.block_id;
    if (!request || !isBlock(world, block)) return;
    if (world.hash[block] === null) contradiction(world, `block ${block} was shared but holds no cached prefix`);
    if (world.refCount[block] === 0) {
      leaveQueue(world, block);
      world.freeSince[block] = -1;
    }
    world.refCount[block]++;
    putInTable(world, request, event.logical_index, block);
  },

  block_evicted(world, event) {
    const block = event.block_id;
    if (!isBlock(world, block)) return;
    checkHead(world, block, 'evicted');
    if (world.hash[block] !== event.hash) contradiction(world, `block ${block} was evicted under a different hash`);
    if (world.freeSince[block] !== event.reason.free_since_step) {
      contradiction(
        world,
        `block ${block} is free since step ${world.freeSince[block]}, not ${event.reason.free_since_step}`,
      );
    }
    world.setHash(block, null);
    world.blankBlock(block);
  },

  block_allocated(world, event) {
    const request = requestOf(world, event.request_id);
    const block = event.block_id;
    if (!request || !isBlock(world, block)) return;
    popHead(world, block, 'allocated');
    putInTable(world, request, event.logical_index, block);
  },

  block_cached(world, event) {
    const request = requestOf(world, event.request_id);
    const block = event.block_id;
    if (!request || !isBlock(world, block)) return;
    checkTable(world, request, event.logical_index, block, 'cached');
    if (world.hash[block] !== null) contradiction(world, `block ${block} was cached but already holds a prefix`);
    world.setHash(block, event.hash);
  },

  step_scheduled(world, event) {
    for (const chunk of event.chunks) {
      const request = world.requests.get(chunk.request_id);
      if (!request) contradiction(world, `request ${chunk.request_id} was scheduled but is unknown`);
      else if (chunk.start !== request.numComputed) {
        contradiction(
          world,
          `request ${request.letter} computes from position ${chunk.start} but has ${request.numComputed} computed tokens`,
        );
      }
    }
  },

  kv_written(world, event) {
    const request = requestOf(world, event.request_id);
    if (!request) return;
    if (request.state !== 'running') contradiction(world, `request ${request.letter} wrote while ${request.state}`);
    const size = world.blockSize;
    const { positions, slots } = event;
    if (positions.length !== slots.length)
      contradiction(world, `${positions.length} positions but ${slots.length} slots`);
    for (let i = 0; i < positions.length; i++) {
      const position = positions[i];
      const slot = slots[i];
      const block = request.table[Math.floor(position / size)] ?? -1;
      if (block < 0 || block * size + (position % size) !== slot) {
        contradiction(
          world,
          `position ${position} of request ${request.letter} was written to slot ${slot}, which isn’t the one in its block table`,
        );
        if (!(slot >= 0 && slot < world.slotToken.length)) continue;
      }
      world.slotRequest[slot] = request.id;
      world.slotPosition[slot] = position;
      world.slotSeq[slot] = world.seq;
      world.slotToken[slot] = request.tokens[position] ?? -1;
    }
    if (positions.length > 0) {
      if (positions[0] !== request.numComputed) {
        contradiction(
          world,
          `request ${request.letter} wrote from position ${positions[0]} but has ${request.numComputed} computed tokens`,
        );
      }
      request.numComputed = positions[positions.length - 1] + 1;
      request.numWritten += positions.length;
    }
  },

  token_sampled(world, event) {
    const request = requestOf(world, event.request_id);
    if (!request) return;
    if (event.position !== request.tokens.length) {
      contradiction(
        world,
        `request ${request.letter} sampled position ${event.position} but has ${request.tokens.length} tokens`,
      );
    }
    request.tokens.push(event.token_id);
    request.pieces.push(event.piece);
    request.tokenHash = extendTokenHash(request.tokenHash, event.token_id);
    request.candidates.set(event.position, event.candidates);
  },

  request_finished(world, event) {
    const request = requestOf(world, event.request_id);
    if (!request) return;
    if (request.state === 'finished') contradiction(world, `request ${request.letter} finished twice`);
    const isWhole = event.reason.code === 'eos' || event.reason.code === 'length';
    if (isWhole && request.numComputed !== request.tokens.length - 1) {
      contradiction(
        world,
        `request ${request.letter} finished with ${request.numComputed} of ${request.tokens.length} tokens computed`,
      );
    }
    if (request.state === 'swapped') leaveHost(world, request.id);
    forgetOldest(world);
    request.state = 'finished';
    request.finish = event.reason;
    request.lastTable = request.table.slice();
    world.numFinished++;
    world.finishedHash = extendTokenHash(world.finishedHash, request.tokenHash);
    const at = world.unfinished.indexOf(request.id);
    if (at >= 0) world.unfinished.splice(at, 1);
  },

  blocks_released(world, event) {
    const request = requestOf(world, event.request_id);
    if (!request) return;
    event.block_ids.forEach((block, i) => {
      if (!isBlock(world, block)) return;
      const index = event.logical_indices[i];
      checkTable(world, request, index, block, 'given back');
      request.table[index] = -1;
      if (world.refCount[block] <= 0) contradiction(world, `the count of block ${block} fell below 0`);
      else world.refCount[block]--;
    });
    for (const block of event.prepended) enterQueue(world, block, false);
    for (const block of event.appended) enterQueue(world, block, true);
    if (event.prepended.length > 0) world.free.unshift(...event.prepended);
    event.appended.forEach((block, i) => {
      const place = event.places?.[i] ?? world.free.length;
      if (place > world.free.length)
        contradiction(world, `block ${block} entered the free queue at place ${place} of ${world.free.length}`);
      world.free.splice(place, 0, block);
    });
    const { code, window_start: windowStart } = event.reason;
    if (code === 'window') request.windowStart = windowStart ?? request.windowStart;
    else if (code !== 'forgotten') request.table = [];
    if (code === 'no_cache') forgetAll(request);
  },

  prefix_cache_reset(world, event) {
    for (const block of event.block_ids) {
      if (!isBlock(world, block)) continue;
      if (world.hash[block] === null) contradiction(world, `block ${block} lost its prefix but holds none`);
      world.setHash(block, null);
      if (world.refCount[block] === 0) world.blankBlock(block);
    }
  },

  miss_measured() {},

  step_finished(world, event) {
    if (event.step !== world.currentStep)
      contradiction(world, `step ${event.step} finished but step ${world.currentStep} was running`);
    world.step = event.step;
    const computed = digest(world);
    world.check = {
      step: event.step,
      expected: event.digest,
      computed,
      ok: computed === event.digest && world.broken === null,
    };
  },
};

/** @param {World} world @param {number} block @param {boolean} cached */
function enterQueue(world, block, cached) {
  if (!isBlock(world, block)) return;
  if (world.refCount[block] !== 0)
    contradiction(world, `block ${block} entered the free queue with count ${world.refCount[block]}`);
  if ((world.hash[block] !== null) !== cached) {
    contradiction(
      world,
      `block ${block} entered the free queue ${cached ? 'as cached, but it is blank' : 'as blank, but it is cached'}`,
    );
  }
  world.freeSince[block] = world.currentStep;
  if (!cached) world.blankBlock(block);
}

/** Its host blocks are free. @param {World} world @param {number} requestId */
function leaveHost(world, requestId) {
  for (const [hostId, block] of world.host) if (block.requestId === requestId) world.host.delete(hostId);
}

/** Older finished requests are only counted, so that a world stays small. @param {World} world */
function forgetOldest(world) {
  let surplus = world.requests.size - world.unfinished.length + 1 - MAX_FINISHED_REQUESTS;
  for (const [id, request] of world.requests) {
    if (surplus <= 0) return;
    if (request.state !== 'finished') continue;
    world.requests.delete(id);
    world.lanes.delete(id);
    world.owned.delete(id);
    surplus--;
  }
}

/** Folds one record into the world. @param {World} world @param {EventRecord} record */
export function apply(world, record) {
  const event = record[2];
  if (record[0] !== world.seq + 1) contradiction(world, `record ${record[0]} follows record ${world.seq}`);
  world.seq = record[0];
  const fold = /** @type {((world: World, event: Event) => void)|undefined} */ (cases[event.type]);
  if (!fold) {
    world.numUnknown++;
    return;
  }
  try {
    fold(world, event);
  } catch (error) {
    contradiction(world, `${event.type} can’t be read (${error instanceof Error ? error.message : error})`);
  }
}

/** Event types that the fold knows, for tests. */
export const knownTypes = Object.keys(cases);
