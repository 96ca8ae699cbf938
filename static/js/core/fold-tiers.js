/** The fold of moves between blocks and tiers: forks, copies, preemption, swap, offload. */
import { forgetAlike, forgetAll } from './fold-lanes.js';
import { checkTable, contradiction, expect, isBlock, popHead, requestOf } from './fold.js';
/** @import { World } from './state.js' */
/** @import { HostBlock, HostEntry } from './types.d.ts' */
/** @import { Cases } from './fold.js' */

/** Cases of `reducer.js`.
 * @type {Pick<Cases, 'request_forked'|'request_reprioritised'|'request_preempted'|'blocks_swapped_out'|'blocks_swapped_in'|'block_copied'|'block_offloaded'|'block_fetched'|'host_evicted'>} */
export const tierCases = {
  request_forked(world, event) {
    const request = requestOf(world, event.request_id);
    const parent = world.requests.get(event.parent_id);
    if (!request) return;
    if (!parent)
      return contradiction(world, `request ${request.letter} is a fork of the unknown request ${event.parent_id}`);
    expect(world, request.state === 'waiting', () => `request ${request.letter} forked while ${request.state}`);
    const table = event.block_ids.map((block) => block ?? -1);
    expect(
      world,
      table.every((block, index) => parent.table[index] === block),
      () => `request ${request.letter} shares blocks that ${parent.letter} doesn’t hold`,
    );
    expect(
      world,
      event.num_computed <= parent.numComputed,
      () => `request ${request.letter} has more computed tokens than ${parent.letter}`,
    );
    for (const block of table) if (block >= 0 && isBlock(world, block)) world.refCount[block]++;
    request.state = 'running';
    request.table = table;
    request.numComputed = event.num_computed;
    request.windowStart = event.window_start ?? 0;
    forgetAlike(world, request, parent);
    return undefined;
  },

  request_reprioritised(world, event) {
    const request = requestOf(world, event.request_id);
    if (request) request.priority = event.priority;
  },

  request_preempted(world, event) {
    const request = requestOf(world, event.request_id);
    if (!request) return;
    const { reason } = event;
    expect(world, request.state === 'running', () => `request ${request.letter} was preempted while ${request.state}`);
    expect(
      world,
      reason.num_lost_tokens === request.numComputed,
      () => `request ${request.letter} loses ${reason.num_lost_tokens} tokens but has ${request.numComputed} computed`,
    );
    expect(
      world,
      reason.num_free === world.free.length,
      () => `the event counts ${reason.num_free} free blocks, but ${world.free.length} are free`,
    );
    request.state = reason.code === 'swap' ? 'swapped' : 'preempted';
    request.numPreemptions++;
    if (request.state === 'preempted') {
      forgetAll(request);
      request.windowStart = 0;
    }
  },

  blocks_swapped_out(world, event) {
    const request = requestOf(world, event.request_id);
    if (!request) return;
    expect(
      world,
      request.state === 'swapped',
      () => `blocks of request ${request.letter} were swapped out while ${request.state}`,
    );
    expect(world, sameLength(event), () => 'the lists of a swap out have different lengths');
    event.host_ids.forEach((hostId, i) => {
      const block = event.block_ids[i];
      if (!isBlock(world, block)) return;
      checkTable(world, request, event.logical_indices[i], block, 'swapped out');
      putInHost(world, hostId, { hash: null, requestId: request.id, entries: takeEntries(world, block) });
    });
  },

  blocks_swapped_in(world, event) {
    const request = requestOf(world, event.request_id);
    if (!request) return;
    expect(
      world,
      request.state === 'swapped',
      () => `blocks of request ${request.letter} were swapped in while ${request.state}`,
    );
    expect(world, sameLength(event), () => 'the lists of a swap in have different lengths');
    event.host_ids.forEach((hostId, i) => {
      const block = event.block_ids[i];
      if (!isBlock(world, block)) return;
      checkTable(world, request, event.logical_indices[i], block, 'swapped in');
      const held = takeFromHost(world, hostId);
      if (!held) return;
      expect(
        world,
        held.requestId === request.id,
        () => `host block ${hostId} doesn’t belong to request ${request.letter}`,
      );
      putEntries(world, block, held.entries);
    });
    request.state = 'running';
  },

  block_copied(world, event) {
    const request = requestOf(world, event.request_id);
    const { from_block_id: source, block_id: block, logical_index: index } = event;
    if (!request || !isBlock(world, source) || !isBlock(world, block)) return;
    checkTable(world, request, index, source, 'copied');
    expect(
      world,
      world.refCount[source] > 1,
      () => `block ${source} was copied but its count is ${world.refCount[source]}`,
    );
    popHead(world, block, 'taken for a copy');
    putEntries(
      world,
      block,
      takeEntries(world, source).filter(([offset]) => offset < event.num_tokens),
    );
    world.refCount[source]--;
    request.table[index] = block;
  },

  block_offloaded(world, event) {
    const block = event.block_id;
    if (!isBlock(world, block)) return;
    expect(world, world.hash[block] === event.hash, () => `block ${block} was offloaded under a different hash`);
    putInHost(world, event.host_id, { hash: event.hash, requestId: null, entries: takeEntries(world, block) });
  },

  block_fetched(world, event) {
    if (!isBlock(world, event.block_id)) return;
    const held = takeFromHost(world, event.host_id);
    if (!held) return;
    checkHost(world, event.host_id, held, event.hash);
    putEntries(world, event.block_id, held.entries);
  },

  host_evicted(world, event) {
    const held = takeFromHost(world, event.host_id);
    if (held) checkHost(world, event.host_id, held, event.hash);
  },
};

/** @param {{logical_indices: number[], block_ids: number[], host_ids: number[]}} event @returns {boolean} */
function sameLength({ logical_indices: indices, block_ids: blocks, host_ids: hosts }) {
  return indices.length === blocks.length && blocks.length === hosts.length;
}

/** @param {World} world @param {number} block @returns {HostEntry[]} */
function takeEntries(world, block) {
  /** @type {HostEntry[]} */
  const entries = [];
  const from = block * world.blockSize;
  for (let slot = from; slot < from + world.blockSize; slot++) {
    if (world.slotSeq[slot] >= 0)
      entries.push([
        slot - from,
        world.slotRequest[slot],
        world.slotPosition[slot],
        world.slotSeq[slot],
        world.slotToken[slot],
      ]);
  }
  return entries;
}

/** @param {World} world @param {number} block @param {readonly HostEntry[]} entries */
function putEntries(world, block, entries) {
  for (const [offset, request, position, seq, token] of entries) {
    const slot = block * world.blockSize + offset;
    world.slotRequest[slot] = request;
    world.slotPosition[slot] = position;
    world.slotSeq[slot] = seq;
    world.slotToken[slot] = token;
  }
}

/** @param {World} world @param {number} hostId @param {HostBlock} block */
function putInHost(world, hostId, block) {
  expect(world, !world.host.has(hostId), () => `host block ${hostId} is already in use`);
  world.host.set(hostId, block);
}

/** @param {World} world @param {number} hostId @returns {HostBlock|null} */
function takeFromHost(world, hostId) {
  const block = world.host.get(hostId) ?? null;
  expect(world, block !== null, () => `host block ${hostId} isn’t in use`);
  world.host.delete(hostId);
  return block;
}

/** @param {World} world @param {number} hostId @param {HostBlock} block @param {string} hash */
function checkHost(world, hostId, block, hash) {
  expect(world, block.hash === hash, () => `host block ${hostId} holds a different prefix`);
}
