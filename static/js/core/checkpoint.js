/** Reads and writes a folded world as JSON, in the format of kvviz/log/world.py (`hello.checkpoint`). */
import { World, letterOf } from './state.js';
/** @import { Request } from './types.d.ts' */

/** @param {any} data @returns {World} */
export function fromCheckpoint(data) {
  const world = new World(data.num_blocks, data.block_size);
  world.seq = data.seq;
  world.step = data.step;
  world.currentStep = data.step;
  world.numFinished = data.num_finished;
  world.finishedHash = data.finished_hash;
  world.numUnknown = data.num_unknown;
  world.check = data.check;
  world.broken = data.broken;
  world.refCount.set(data.ref_count);
  world.freeSince.set(data.free_since);
  world.free = data.free.slice();
  data.hash.forEach((/** @type {string|null} */ hash, /** @type {number} */ block) => world.setHash(block, hash));
  for (const [slot, request, position, seq, token] of data.slots) {
    world.slotRequest[slot] = request;
    world.slotPosition[slot] = position;
    world.slotSeq[slot] = seq;
    world.slotToken[slot] = token;
  }
  for (const [hostId, block] of data.host ?? [])
    world.host.set(hostId, { hash: block.hash, requestId: block.request_id, entries: block.entries });
  for (const request of data.requests) {
    world.requests.set(request.id, requestFrom(request));
    world.owned.add(request.id);
    if (request.state !== 'finished') world.unfinished.push(request.id);
  }
  return world;
}

/** @param {any} data @returns {Request} */
function requestFrom(data) {
  return {
    id: data.id,
    letter: letterOf(data.id),
    state: data.state,
    prompt: data.prompt,
    template: data.template,
    salt: data.salt,
    continues: data.continues,
    tokens: data.tokens.slice(),
    pieces: data.pieces.slice(),
    promptLength: data.prompt_length,
    numComputed: data.num_computed,
    numWritten: data.num_written ?? Math.max(0, data.num_computed - data.num_hit_tokens),
    numHitTokens: data.num_hit_tokens,
    windowStart: data.window_start,
    table: data.table.slice(),
    lastTable: data.state === 'finished' ? data.last_table.slice() : null,
    maxNewTokens: data.max_new_tokens,
    sampling: data.sampling,
    finish: data.finish,
    tokenHash: data.token_hash,
    priority: data.priority ?? 0,
    fork: data.fork ?? null,
    numPreemptions: data.num_preemptions ?? 0,
    ...forgottenFrom(data.forgotten ?? []),
    candidates: new Map(),
  };
}

/** @param {number[][][]} lists @returns {Pick<Request, 'forgotten'|'numDropped'>} */
function forgottenFrom(lists) {
  const forgotten = lists.map((heads) =>
    heads.map((positions) => new Map(positions.map((position) => [position, -1]))),
  );
  return { forgotten, numDropped: forgotten.flat().reduce((sum, gone) => sum + gone.size, 0) };
}

/** @param {World} world @returns {object} */
export function toCheckpoint(world) {
  const slots = [];
  for (let slot = 0; slot < world.slotSeq.length; slot++) {
    if (world.slotSeq[slot] < 0) continue;
    slots.push([slot, world.slotRequest[slot], world.slotPosition[slot], world.slotSeq[slot], world.slotToken[slot]]);
  }
  return {
    seq: world.seq,
    step: world.currentStep,
    block_size: world.blockSize,
    num_blocks: world.numBlocks,
    ref_count: Array.from(world.refCount),
    hash: world.hash.slice(),
    free_since: Array.from(world.freeSince),
    free: world.free.slice(),
    slots,
    host: hostTo(world),
    requests: [...world.requests.values()].map((request) => requestTo(request, world.seq)),
    num_finished: world.numFinished,
    finished_hash: world.finishedHash,
    num_unknown: world.numUnknown,
    check: world.check,
    broken: world.broken,
  };
}

/** @param {World} world */
function hostTo(world) {
  const ids = [...world.host.keys()].sort((a, b) => a - b);
  return ids.map((hostId) => {
    const block = /** @type {import('./types.d.ts').HostBlock} */ (world.host.get(hostId));
    return [hostId, { hash: block.hash, request_id: block.requestId, entries: block.entries }];
  });
}

/** @param {Request} request @param {number} seq */
function requestTo(request, seq) {
  return {
    id: request.id,
    prompt: request.prompt,
    template: request.template,
    salt: request.salt,
    continues: request.continues,
    tokens: request.tokens,
    pieces: request.pieces,
    prompt_length: request.promptLength,
    max_new_tokens: request.maxNewTokens,
    sampling: request.sampling,
    state: request.state,
    num_computed: request.numComputed,
    num_written: request.numWritten,
    num_hit_tokens: request.numHitTokens,
    window_start: request.windowStart,
    table: request.table,
    last_table: request.lastTable ?? [],
    finish: request.finish,
    token_hash: request.tokenHash,
    priority: request.priority,
    fork: request.fork,
    num_preemptions: request.numPreemptions,
    forgotten: request.forgotten.map((heads) =>
      heads.map((gone) => [...gone].filter(([, since]) => since <= seq).map(([position]) => position)),
    ),
  };
}
