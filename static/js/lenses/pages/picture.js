/**
 * What the pages lens shows of a scene: the look of each block at a progress, the motion of the free queue, the
 * requests in the list. Pure functions of scene and log.
 */
import { phasesOf, within } from '../../core/phases.js';
import { apply } from '../../core/reducer.js';
import { clamp, span } from '../../ui/canvas.js';
/** @import { World, Request, Scene, StepInfo, Phases } from '../../core/types.d.ts' */

/** The current look of a block.
 * @typedef {object} BlockView
 * @property {'blank'|'used'|'cached'} form
 * @property {readonly number[]} owners ids of requests
 * @property {number} filled slots that hold an entry
 * @property {number} fresh how many of those, at the end, are being written or were just written
 * @property {number} freshPart 0-1: share of the layers that have written them
 * @property {number} falling 0-1: how far cached content has fallen away
 * @property {number} ring 0-1: just changed
 * @property {number} count reference count */

/** The last world between a step's allocations and its writes. @type {{step: StepInfo, world: World}|null} */
let between = null;

/** The world once a step has its blocks and before it writes anything. @param {World} before @param {StepInfo} step @returns {World} */
function scheduledWorld(before, step) {
  if (between?.step === step) return between.world;
  const world = before.clone();
  for (let i = 0; i < step.events.length; i += 1) {
    apply(world, [step.firstSeq + i, 0, step.events[i]]);
    if (step.events[i].type === 'step_scheduled') break;
  }
  between = { step, world };
  return world;
}

export class PagesPicture {
  /** @param {Scene} scene @param {number} freshFrom seq from which a write counts as the last step's, at rest @param {StepInfo|null} [last] the step that led here, at rest */
  constructor(scene, freshFrom, last = null) {
    this.scene = scene;
    this.before = scene.before;
    this.after = scene.after;
    /** @type {StepInfo|null} */
    this.step = scene.step;
    /** The step in progress, else the last one. */
    this.told = scene.step ?? last;
    this.freshFrom = freshFrom;
    /** @type {Phases|null} */
    this.phases = scene.step ? phasesOf(scene.step) : null;
    /** The world with the step's blocks but none of its writes. @type {World} */
    this.middle = scene.step ? scheduledWorld(scene.before, scene.step) : scene.before;
    this.ownersBefore = ownerLists(scene.before);
    this.ownersMiddle = scene.step ? ownerLists(this.middle) : this.ownersBefore;
    this.ownersAfter = scene.after === scene.before ? this.ownersBefore : ownerLists(scene.after);
    /** Blocks that the step allocates, with their requests. @type {Map<number, number>} */
    this.taken = new Map();
    /** Blocks that the step hits. @type {Map<number, number>} */
    this.hit = new Map();
    /** @type {Set<number>} */
    this.evicted = new Set();
    /** Blocks that lose a user before the step computes: preemption, swap, window, copy. @type {Set<number>} */
    this.left = new Set();
    /** Blocks that reach count 0 at the end, and whether they stay cached. @type {Map<number, boolean>} */
    this.freed = new Map();
    /** Slots written in the step, by block. @type {Map<number, number>} */
    this.wrote = new Map();
    if (scene.step) this.#read(scene.step);
  }

  /** @param {StepInfo} step */
  #read(step) {
    for (const event of step.allocated) this.taken.set(event.block_id, event.request_id);
    for (const event of step.copied) {
      this.taken.set(event.block_id, event.request_id);
      this.left.add(event.from_block_id);
    }
    for (const event of step.shared) this.hit.set(event.block_id, event.request_id);
    for (const event of step.evicted) this.evicted.add(event.block_id);
    for (const event of step.releasedFirst) for (const block of event.block_ids) this.left.add(block);
    for (const event of step.releasedLast) {
      for (const block of event.prepended) this.freed.set(block, false);
      for (const block of event.appended) this.freed.set(block, true);
    }
    for (const event of step.written) {
      for (const slot of event.slots) {
        const block = Math.floor(slot / this.after.blockSize);
        this.wrote.set(block, (this.wrote.get(block) ?? 0) + 1);
      }
    }
  }

  /** @param {number} block @param {number} progress @returns {BlockView} */
  view(block, progress) {
    const { step, phases } = this;
    if (!step || !phases || progress <= 0) return this.#settled(this.before, this.ownersBefore, block);
    const back = within(phases.release, progress);
    if (phases.release[1] > phases.release[0] && back > 0) {
      if (!this.freed.has(block))
        return back >= 0.45 ? this.#settled(this.after, this.ownersAfter, block) : this.#working(block, progress);
      if (back >= 0.45) return { ...this.#settled(this.after, this.ownersAfter, block), ring: ringOf(back) };
      return { ...this.#working(block, progress), ring: ringOf(back), falling: span(back, 0.2, 0.75) };
    }
    const moves = this.taken.has(block) || this.hit.has(block) || this.left.has(block);
    const taking = phases.blocks[1] > 0 ? within(phases.blocks, progress) : 1;
    if (taking < 1) return this.#taking(block, taking, moves);
    return { ...this.#working(block, progress), ring: moves ? 1 - span(within(phases.layers, progress), 0.1, 0.4) : 0 };
  }

  /** A block on its way to its new user. @param {number} block @param {number} t 0-1 @param {boolean} moves @returns {BlockView} */
  #taking(block, t, moves) {
    const [before, middle] = [
      () => this.#settled(this.before, this.ownersBefore, block),
      () => this.#settled(this.middle, this.ownersMiddle, block),
    ];
    if (!moves) return t < 0.5 ? before() : middle();
    if (this.taken.has(block))
      return t < 0.62
        ? { ...before(), ring: span(t, 0.02, 0.12), falling: span(t, 0.25, 0.6) }
        : { ...middle(), ring: 1 };
    if (this.hit.has(block)) return t < 0.5 ? { ...before(), ring: span(t, 0.1, 0.4) } : { ...middle(), ring: 1 };
    const free = this.middle.refCount[block] === 0;
    return t < 0.5
      ? { ...before(), ring: span(t, 0.02, 0.12), falling: free ? span(t, 0.15, 0.5) : 0 }
      : { ...middle(), ring: 1 };
  }

  /** @param {World} world @param {Owners} owners @param {number} block @returns {BlockView} */
  #settled(world, owners, block) {
    const count = world.refCount[block];
    const all = fillOf(world, block, this.freshFrom);
    const filled = count > 0 ? Math.min(all.filled, owners.reach[block]) : all.filled;
    const fresh = Math.min(all.fresh, filled);
    return {
      form: count > 0 ? 'used' : world.hash[block] !== null ? 'cached' : 'blank',
      owners: owners.of[block] ?? NOBODY,
      filled,
      fresh: count > 0 ? fresh : 0,
      freshPart: 1,
      falling: 0,
      ring: 0,
      count,
    };
  }

  /** While the step computes: what was there, and what is being written.
   * @param {number} block @param {number} progress @returns {BlockView} */
  #working(block, progress) {
    const view = this.#settled(this.middle, this.ownersMiddle, block);
    const wrote = this.wrote.get(block) ?? 0;
    const part = this.phases ? span(within(this.phases.layers, progress), 0, 1) : 1;
    return wrote === 0 || part <= 0 ? view : { ...view, filled: view.filled + wrote, fresh: wrote, freshPart: part };
  }

  /** A request in its current state; null before it exists. @param {number} id @param {number} progress @returns {Request|null} */
  request(id, progress) {
    const { step, phases } = this;
    const was = this.before.requests.get(id) ?? null;
    if (!step || !phases || progress <= 0) return was ?? this.after.requests.get(id) ?? null;
    const taking = phases.blocks[1] > 0 ? within(phases.blocks, progress) : 1;
    if (taking < 0.5) return was;
    const ends = phases.release[1] > phases.release[0] ? within(phases.release, progress) >= 0.5 : progress >= 1;
    const middle = this.middle.requests.get(id) ?? null;
    if (ends || !middle) return this.after.requests.get(id) ?? middle;
    const after = this.after.requests.get(id);
    return after && after.state !== 'finished' && after.table.length === middle.table.length
      ? after
      : { ...middle, numComputed: after?.numComputed ?? middle.numComputed };
  }

  /** Blocks that a request's chain shows now. @param {number} id @param {number} progress
   * @returns {{table: readonly number[], arriving: number, arrived: number}} blocks from `arriving` on come in, `arrived` of the way */
  chain(id, progress) {
    const request = this.request(id, progress);
    const table = request ? (request.lastTable ?? request.table) : [];
    if (!this.step || !this.phases || progress <= 0) return { table, arriving: Infinity, arrived: 1 };
    const taking = this.phases.blocks[1] > 0 ? within(this.phases.blocks, progress) : 1;
    return {
      table,
      arriving: this.before.requests.get(id)?.table.length ?? 0,
      arrived: taking < 0.5 ? 1 : span(taking, 0.5, 0.85),
    };
  }

  /** The host tier in its current state. @param {number} progress @returns {World['host']} */
  host(progress) {
    if (!this.step || !this.phases || progress <= 0) return this.before.host;
    const taking = this.phases.blocks[1] > 0 ? within(this.phases.blocks, progress) : 1;
    return progress >= 1 ? this.after.host : taking < 0.6 ? this.before.host : this.middle.host;
  }

  /** The state of the queue: the order before, after allocations, after releases, and the progress between them.
   * @param {number} progress @returns {{orders: [readonly number[], readonly number[], readonly number[]], taken: number, returned: number}} */
  queue(progress) {
    const { phases, before, after, middle } = this;
    const orders = /** @type {[readonly number[], readonly number[], readonly number[]]} */ ([
      before.free,
      middle.free,
      after.free,
    ]);
    if (!this.step || !phases || progress <= 0) return { orders, taken: 0, returned: 0 };
    const taken = phases.blocks[1] > 0 ? span(within(phases.blocks, progress), 0.47, 0.77) : 1;
    const hasRelease = phases.release[1] > phases.release[0];
    return { orders, taken, returned: hasRelease ? span(within(phases.release, progress), 0.35, 0.8) : 0 };
  }
}

/** @type {readonly number[]} */
const NOBODY = [];

/** Ring of a block that reaches count 0. @param {number} t @returns {number} */
function ringOf(t) {
  return clamp(Math.min(span(t, 0, 0.15), 1 - span(t, 0.8, 1)), 0, 1);
}

/**
 * Requests that use each block, and how many of its first entries one of them has computed. Later entries are left
 * from a request that has its own copy of the block now.
 * @typedef {{of: (number[]|undefined)[], reach: Int32Array}} Owners
 */

/** @param {World} world @returns {Owners} */
function ownerLists(world) {
  /** @type {(number[]|undefined)[]} */
  const of = new Array(world.numBlocks);
  const reach = new Int32Array(world.numBlocks);
  for (const id of world.unfinished) {
    const request = world.requests.get(id);
    request?.table.forEach((block, logical) => {
      if (block < 0) return;
      (of[block] ??= []).push(id);
      reach[block] = Math.max(reach[block], request.numComputed - logical * world.blockSize);
    });
  }
  return { of, reach };
}

/** @param {World} world @param {number} block @param {number} freshFrom @returns {{filled: number, fresh: number}} */
export function fillOf(world, block, freshFrom) {
  const from = block * world.blockSize;
  let filled = 0;
  let fresh = 0;
  for (let slot = from; slot < from + world.blockSize; slot += 1) {
    const seq = world.slotSeq[slot];
    if (seq < 0) continue;
    filled += 1;
    if (seq >= freshFrom) fresh += 1;
  }
  return { filled, fresh };
}
