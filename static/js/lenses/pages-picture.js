/**
 * What the pages lens shows of a scene: how each block looks at a progress, how the free queue moves, which requests stand
 * in the list. Pure functions of scene and log.
 */
import { clamp, span } from '../canvas.js';
import { phasesOf, within } from '../phases.js';

/** @typedef {import('../types.d.ts').World} World */
/** @typedef {import('../types.d.ts').Request} Request */
/** @typedef {import('../types.d.ts').Scene} Scene */
/** @typedef {import('../types.d.ts').StepInfo} StepInfo */
/** @typedef {import('../types.d.ts').Phases} Phases */

/**
 * How a block looks now.
 * @typedef {object} BlockView
 * @property {'blank'|'used'|'cached'} form
 * @property {readonly number[]} owners ids of requests
 * @property {number} filled slots that hold an entry
 * @property {number} fresh of those, the last so many are being written or were just written
 * @property {number} freshPart 0-1: share of the layers that have written them
 * @property {number} falling 0-1: how far cached content has fallen away
 * @property {number} ring 0-1: just changed
 * @property {number} count reference count
 */

export class PagesPicture {
  /** @param {Scene} scene @param {number} freshFrom seq from which a write counts as the last step's, at rest */
  constructor(scene, freshFrom) {
    this.scene = scene;
    this.before = scene.before;
    this.after = scene.after;
    /** @type {StepInfo|null} */
    this.step = scene.step;
    this.freshFrom = freshFrom;
    /** @type {Phases|null} */
    this.phases = scene.step ? phasesOf(scene.step) : null;
    this.ownersBefore = ownerLists(scene.before);
    this.ownersAfter = scene.after === scene.before ? this.ownersBefore : ownerLists(scene.after);
    /** Blocks that the step takes, and for whom. @type {Map<number, number>} */
    this.taken = new Map();
    /** Blocks that the step hits. @type {Map<number, number>} */
    this.hit = new Map();
    /** @type {Set<number>} */
    this.evicted = new Set();
    /** Blocks that fall to count 0, and whether they stay cached. @type {Map<number, boolean>} */
    this.freed = new Map();
    /** Slots written in the step, by block. @type {Map<number, number>} */
    this.wrote = new Map();
    if (scene.step) this.#read(scene.step);
    this.queueTaken = this.step ? scene.before.free.filter((block) => !this.taken.has(block) && !this.hit.has(block)) : scene.before.free;
  }

  /** @param {StepInfo} step */
  #read(step) {
    for (const event of step.allocated) this.taken.set(event.block_id, event.request_id);
    for (const event of step.shared) this.hit.set(event.block_id, event.request_id);
    for (const event of step.evicted) this.evicted.add(event.block_id);
    for (const event of step.released) {
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
    const taking = within(phases.blocks, progress);
    const back = within(phases.release, progress);
    if (this.freed.has(block) && phases.release[1] > phases.release[0]) {
      const t = span(back, 0.2, 0.75);
      if (back >= 0.45) return { ...this.#settled(this.after, this.ownersAfter, block), ring: ringOf(back), falling: 0 };
      return { ...this.#held(block, progress), ring: ringOf(back), falling: t };
    }
    if (this.taken.has(block)) {
      const arrived = phases.blocks[1] > 0 ? taking >= 0.62 : true;
      if (!arrived) {
        const old = this.#settled(this.before, this.ownersBefore, block);
        return { ...old, ring: span(taking, 0.02, 0.12), falling: span(taking, 0.25, 0.6) };
      }
      return { ...this.#held(block, progress), ring: 1 - span(within(phases.layers, progress), 0.1, 0.4) };
    }
    if (this.hit.has(block) && taking < 0.5) return { ...this.#settled(this.before, this.ownersBefore, block), ring: span(taking, 0.1, 0.4) };
    if (this.hit.has(block) || this.wrote.has(block)) {
      const ring = this.hit.has(block) ? 1 - span(within(phases.layers, progress), 0.1, 0.4) : 0;
      return { ...this.#held(block, progress), ring };
    }
    const now = progress >= phases.layers[0] ? this.#settled(this.after, this.ownersAfter, block) : this.#settled(this.before, this.ownersBefore, block);
    return { ...now, fresh: 0 };
  }

  /** @param {World} world @param {readonly (readonly number[]|undefined)[]} owners @param {number} block @returns {BlockView} */
  #settled(world, owners, block) {
    const count = world.refCount[block];
    const { filled, fresh } = fillOf(world, block, this.freshFrom);
    return {
      form: count > 0 ? 'used' : world.hash[block] !== null ? 'cached' : 'blank', owners: owners[block] ?? NOBODY, filled,
      fresh: count > 0 ? fresh : 0, freshPart: 1, falling: 0, ring: 0, count,
    };
  }

  /** In use during the step: what was there, and what is being written. @param {number} block @param {number} progress @returns {BlockView} */
  #held(block, progress) {
    const { phases, before, taken, hit } = this;
    const wrote = this.wrote.get(block) ?? 0;
    const owner = taken.get(block) ?? hit.get(block);
    const owners = owner === undefined ? this.ownersBefore[block] ?? NOBODY : [...(this.ownersBefore[block] ?? NOBODY), owner];
    const old = taken.has(block) ? 0 : fillOf(before, block, Infinity).filled;
    const part = phases ? span(within(phases.layers, progress), 0, 1) : 1;
    return {
      form: 'used', owners, filled: old + (part > 0 ? wrote : 0), fresh: part > 0 ? wrote : 0, freshPart: part, falling: 0, ring: 0,
      count: Math.max(1, before.refCount[block] + (owner === undefined ? 0 : 1)),
    };
  }

  /** Blocks that a request's chain shows now. @param {Request|undefined} was @param {Request|undefined} is @param {number} progress
   * @returns {{table: readonly number[], arriving: number, arrived: number}} blocks from `arriving` on come in, `arrived` of the way */
  chain(was, is, progress) {
    const tableIs = is ? is.lastTable ?? is.table : [];
    const tableWas = was ? was.lastTable ?? was.table : [];
    if (!this.step || !this.phases || progress <= 0) return { table: was ? tableWas : tableIs, arriving: Infinity, arrived: 1 };
    const taking = within(this.phases.blocks, progress);
    const grown = this.phases.blocks[1] > 0 ? span(taking, 0.5, 0.85) : 1;
    return { table: grown > 0 ? tableIs : tableWas, arriving: tableWas.length, arrived: grown };
  }

  /** How the queue stands: the order before, after blocks were taken, after blocks came back, and how far on the way.
   * @param {number} progress @returns {{orders: [readonly number[], readonly number[], readonly number[]], taken: number, returned: number}} */
  queue(progress) {
    const { phases, before, after, queueTaken } = this;
    const orders = /** @type {[readonly number[], readonly number[], readonly number[]]} */ ([before.free, queueTaken, after.free]);
    if (!this.step || !phases || progress <= 0) return { orders, taken: 0, returned: 0 };
    const taken = phases.blocks[1] > 0 ? span(within(phases.blocks, progress), 0.6, 0.95) : Number(this.taken.size + this.hit.size > 0);
    const hasRelease = phases.release[1] > phases.release[0];
    return { orders, taken, returned: hasRelease ? span(within(phases.release, progress), 0.35, 0.8) : 0 };
  }
}

/** @type {readonly number[]} */
const NOBODY = [];

/** Ring of a block that falls to count 0. @param {number} t @returns {number} */
function ringOf(t) {
  return clamp(Math.min(span(t, 0, 0.15), 1 - span(t, 0.8, 1)), 0, 1);
}

/** Requests that use each block. @param {World} world @returns {(number[]|undefined)[]} */
function ownerLists(world) {
  /** @type {(number[]|undefined)[]} */
  const owners = new Array(world.numBlocks);
  for (const id of world.unfinished) {
    for (const block of world.requests.get(id)?.table ?? []) if (block >= 0) (owners[block] ??= []).push(id);
  }
  return owners;
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

/**
 * The requests in the list: all that have not ended, then the latest that have, in order of id.
 * @param {World} world @param {number} room how many fit @param {number|null} wanted a request that must be there
 * @returns {{requests: Request[], numHidden: number}}
 */
export function listedRequests(world, room, wanted) {
  const all = [...world.requests.values()];
  const live = all.filter((request) => request.state !== 'finished');
  const over = all.filter((request) => request.state === 'finished');
  const picked = new Set(live.slice(0, room));
  const chosen = wanted === null ? undefined : world.requests.get(wanted);
  if (chosen) picked.add(chosen);
  for (let i = over.length - 1; i >= 0 && picked.size < room; i -= 1) picked.add(over[i]);
  const requests = [...picked].slice(0, Math.max(1, room)).sort((a, b) => a.id - b.id);
  return { requests, numHidden: all.length - requests.length };
}
