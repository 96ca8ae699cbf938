/** Sentences on how requests affect each other: forks, copies, preemption, the host tier, and blocked requests. */
import { strings } from '../strings/main.js';
import { bytes, plural } from '../ui/format.js';
import { segments } from '../ui/text.js';
import { blockList, caption, join, joinLong, letter, letters, thing, token, took } from './parts.js';
/** @import { Scene, World, StepInfo } from '../core/types.d.ts' */
/** @import { Caption, Values } from './parts.js' */

const texts = strings.captions;
const serving = strings.servingCaptions;

/** Bytes and time of a move. @param {{num_bytes: number, copy_us: number}} move @returns {Values} */
function moved({ num_bytes: numBytes, copy_us: us }) {
  return { bytes: bytes(numBytes), time: took(us) };
}

/** The request that lost its blocks, the reason, and the cost. @param {Scene} scene @param {StepInfo} step @returns {Caption|null} */
export function preemptionCaption(scene, step) {
  const [first, ...others] = step.preempted;
  if (!first) return null;
  const { requests, blockSize } = scene.after;
  const { reason } = first;
  const t = serving.preempted;
  const own = reason.for_request_id === first.request_id;
  const because = segments(own ? t.because.own[reason.order] : t.because[reason.order], {
    taker: letter(requests.get(reason.for_request_id)),
    need: plural(texts.need, reason.num_blocks_needed),
    free: reason.num_free,
  });
  const values = {
    request: letter(requests.get(first.request_id)),
    because,
    held: plural(texts.need, reason.num_blocks_held),
    kept: plural(t.kept, reason.num_generated),
    lost: plural(t.lost, reason.num_lost_tokens),
  };
  const out = step.swappedOut.find((event) => event.request_id === first.request_id);
  let told = caption(
    'preempted',
    reason.code === 'swap' ? t.swap : reason.num_lost_tokens === 0 ? t.nothing : t.recompute,
    { ...values, ...(out ? moved(out) : { bytes: '?', time: '?' }) },
  );
  if (reason.code === 'recompute' && reason.num_lost_tokens > 0) {
    const release = step.released.find(
      (event) => event.request_id === first.request_id && event.reason.code === 'preempted',
    );
    const still =
      (release?.block_ids ?? []).filter(
        (block, i) =>
          !release?.prepended.includes(block) &&
          ((release?.logical_indices[i] ?? 0) + 1) * blockSize <= reason.num_lost_tokens,
      ).length * blockSize;
    if (still > 0) told = joinLong(told, caption('preempted', t.cached, { n: still }));
  }
  if (reason.host_full) told = joinLong(told, caption('preempted', t.hostFull));
  if (others.length > 0)
    told = join(
      told,
      caption('preempted', t.others, {
        requests: letters(
          scene.after,
          others.map((event) => event.request_id),
        ),
      }),
    );
  return told;
}

/** A write to a block that other requests also use. @param {Scene} scene @param {StepInfo} step @returns {Caption|null} */
export function copyCaption(scene, step) {
  const [first] = step.copied;
  if (!first) return null;
  const { requests } = scene.after;
  const source = first.from_block_id;
  const before = countBefore(scene, step, source);
  const others = [...scene.before.requests.values()]
    .filter(
      (request) =>
        request.id !== first.request_id &&
        (request.table.includes(source) || (request.lastTable?.includes(source) && isEnding(step, request.id))),
    )
    .map((request) => request.id);
  const values = {
    request: letter(requests.get(first.request_id)),
    source: thing(source),
    block: thing(first.block_id),
    before,
    after: before - 1,
    others: others.length > 0 ? letters(scene.after, others) : serving.copied.nobody,
    n: plural(serving.copied.entries, first.num_tokens),
    ...moved(first),
  };
  const told = caption('copied', serving.copied, values);
  if (step.copied.length === 1) return told;
  return join(
    told,
    caption('copied', serving.copied.more, {
      requests: letters(
        scene.after,
        step.copied.slice(1).map((event) => event.request_id),
      ),
    }),
  );
}

/** @param {StepInfo} step @param {number} requestId */
function isEnding(step, requestId) {
  return step.finished.some((event) => event.request_id === requestId);
}

/** Users of a block just before its first copy. @param {Scene} scene @param {StepInfo} step @param {number} block */
function countBefore(scene, step, block) {
  const uses = (/** @type {readonly {block_ids: readonly (number|null)[]}[]} */ events) =>
    events.filter((event) => event.block_ids.includes(block)).length;
  const given = uses(step.releasedFirst);
  if (scene.step) return Math.max(2, scene.before.refCount[block] - given);
  const copies = step.copied.filter((event) => event.from_block_id === block).length;
  return Math.max(2, scene.after.refCount[block] + copies + uses(step.releasedLast) - uses(step.forked));
}

/** @param {Scene} scene @param {StepInfo} step @returns {Caption|null} */
export function swapInCaption(scene, step) {
  const [first] = step.swappedIn;
  if (!first) return null;
  const values = {
    request: letter(scene.after.requests.get(first.request_id)),
    blocks: blockList(first.block_ids),
    n: plural(texts.need, first.block_ids.length),
    ...moved(first),
  };
  return caption('swapped_in', serving.swappedIn, values);
}

/** Cached prefixes that move to the host tier, and those it evicts for them. @param {StepInfo} step @returns {Caption|null} */
export function offloadCaption(step) {
  const { offloaded, hostEvicted } = step;
  if (offloaded.length === 0) return hostCaption(step);
  const t = serving.offloaded;
  const list = blockList(offloaded.map((event) => event.block_id));
  const told = caption('offloaded', offloaded.length === 1 ? t : t.many, {
    blocks: list,
    host: offloaded[0].host_id,
    n: offloaded.length,
    ...moved(sum(offloaded)),
  });
  return hostEvicted.length > 0 ? join(told, hostCaption(step)) : told;
}

/** @param {StepInfo} step @returns {Caption|null} */
function hostCaption({ hostEvicted }) {
  const [first] = hostEvicted;
  if (!first) return null;
  const t = serving.hostEvicted;
  return caption('host_evicted', hostEvicted.length === 1 ? t : t.many, {
    host: first.host_id,
    since: first.since_step,
    n: hostEvicted.length,
  });
}

/** @param {StepInfo} step @param {number} requestId @returns {Caption|null} */
export function fetchCaption(step, requestId) {
  const fetched = step.fetched.filter((event) => event.request_id === requestId);
  if (fetched.length === 0) return null;
  return caption('fetched', fetched.length === 1 ? serving.fetched : serving.fetched.many, {
    n: fetched.length,
    blocks: blockList(fetched.map((event) => event.block_id)),
    ...moved(sum(fetched)),
  });
}

/** @param {readonly {num_bytes: number, copy_us: number}[]} moves */
function sum(moves) {
  return {
    num_bytes: moves.reduce((all, move) => all + move.num_bytes, 0),
    copy_us: moves.reduce((all, move) => all + move.copy_us, 0),
  };
}

/** The blocks that a fork shares with its parent, and the one that will be copied.
 * @param {World} world @param {import('../core/events.d.ts').RequestForked} fork @returns {Caption} */
export function forkCaption(world, fork) {
  const request = world.requests.get(fork.request_id);
  const held = fork.block_ids.filter((block) => block !== null);
  const partial = fork.num_computed % world.blockSize;
  const last = fork.block_ids[fork.block_ids.length - 1];
  const at = request?.fork;
  const t = serving.forked;
  const values = {
    request: letter(request),
    parent: letter(world.requests.get(fork.parent_id)),
    blocks: blockList(held),
    n: plural(serving.forked.count, held.length),
    position: at?.position ?? fork.num_computed,
    last: thing(last ?? -1),
    filled: partial,
    size: world.blockSize,
  };
  const own = at?.token_id === null || at?.token_id === undefined ? t.samples : t.token;
  const told = caption('forked', own, { ...values, token: token(request, at?.position ?? 0) });
  return join(
    told,
    caption('forked', partial > 0 && last !== null && last !== undefined ? t.partial : t.whole, values),
  );
}

/** A fork that couldn't share: its parent's blocks were released, or the limit of requests is reached.
 * @param {World} world @param {import('../core/events.d.ts').RequestAdded} added @returns {Caption} */
export function waitingForkCaption(world, added) {
  const parent = world.requests.get(added.fork?.parent_id ?? -1);
  const over = !parent || parent.state === 'finished';
  return caption('forked', over ? serving.forked.waitsOver : serving.forked.waits, {
    request: letter(world.requests.get(added.request_id)),
    parent: letter(parent),
    position: added.fork?.position ?? 0,
    count: added.token_ids.length,
  });
}

/** The request that isn't admitted, and the reason. @param {World} world @param {StepInfo} step @returns {Caption|null} */
export function blockedCaption(world, step) {
  const { blocked } = step;
  if (!blocked || step.preempted.some((event) => event.request_id === blocked.request_id)) return null;
  const waiting = world.unfinished.filter(
    (id) => world.requests.get(id)?.state !== 'running' && id !== blocked.request_id,
  ).length;
  const values = {
    request: letter(world.requests.get(blocked.request_id)),
    need: plural(texts.need, blocked.num_blocks_needed ?? 0),
    free: blocked.num_free ?? 0,
    running: step.chunks.length,
  };
  const told = caption('blocked', serving.blocked[blocked.code], values);
  return waiting > 0
    ? joinLong(told, caption('blocked', waiting === 1 ? serving.blocked.one : serving.blocked.many, { n: waiting }))
    : told;
}
