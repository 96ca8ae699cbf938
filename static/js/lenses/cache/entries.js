/** The contents of each column of one request: the state of every entry, at rest and at the stages of a step. Pure. */
import { phasesOf, within } from '../../core/phases.js';
import { tableOf } from '../../core/selectors.js';
import { clamp, span } from '../../ui/canvas.js';
import { goneEverywhere, goneOf } from './gone.js';
/** @import { World, Request, StepInfo, Chunk } from '../../core/types.d.ts' */

/** States, from least to most present. */
export const ENTRY = /** @type {const} */ ({
  /** No physical block for this position yet. */
  ABSENT: 0,
  /** An unwritten slot of the request. */
  BLANK: 1,
  /** The request's windows have moved on, and the block was released. */
  RELEASED: 2,
  /** A policy has dropped it in every layer and head; its block may still be held. */
  FORGOTTEN: 3,
  /** The request has finished, and the slot is blank or used by another request. */
  GONE: 4,
  /** The request has finished; the block is free (or used by another request) and still holds the entry. */
  KEPT: 5,
  /** Written and in use. */
  STORED: 6,
  /** Written in the last step. */
  FRESH: 7,
});

/**
 * @typedef {object} Entries
 * @property {Uint8Array} states one ENTRY per position
 * @property {number[]} table physical block by logical index, -1 where there is none
 * @property {boolean[]} kept per logical block: cached and unused
 * @property {number} numTokens known tokens
 * @property {number} numStored stored entries
 * @property {import('./gone.js').Gone|null} gone dropped entries
 */

/** @returns {Entries} */
function noEntries() {
  return { states: new Uint8Array(0), table: [], kept: [], numTokens: 0, numStored: 0, gone: null };
}

/**
 * @param {World} world @param {Request|null} request @param {number} numShown positions to describe
 * @param {number} freshFrom seq from which a write counts as the last step's
 * @param {number} endSeq seq after which a write cannot be the request's (Infinity while it runs)
 * @returns {Entries}
 */
export function entriesOf(world, request, numShown, freshFrom, endSeq) {
  if (!request) return noEntries();
  const size = world.blockSize;
  const table = tableOf(request);
  const states = new Uint8Array(numShown);
  const over = request.state === 'finished';
  let numStored = 0;
  const gone = goneOf(world, request, numShown);
  for (let position = 0; position < numShown; position += 1) {
    const block = table[Math.floor(position / size)] ?? -1;
    if (gone && !over && goneEverywhere(gone, position)) {
      states[position] = ENTRY.FORGOTTEN;
      continue;
    }
    if (block < 0) {
      states[position] = position < request.windowStart ? ENTRY.RELEASED : ENTRY.ABSENT;
      continue;
    }
    const slot = block * size + (position % size);
    const seq = world.slotSeq[slot];
    const holds =
      seq >= 0 &&
      seq <= endSeq &&
      world.slotPosition[slot] === position &&
      world.slotToken[slot] === request.tokens[position];
    if (holds) numStored += 1;
    if (over) states[position] = holds ? ENTRY.KEPT : position < request.numComputed ? ENTRY.GONE : ENTRY.ABSENT;
    else if (!holds || position >= request.numComputed) states[position] = ENTRY.BLANK;
    else states[position] = seq >= freshFrom && world.slotRequest[slot] === request.id ? ENTRY.FRESH : ENTRY.STORED;
  }
  const kept = table.map(
    (block, logical) => block >= 0 && states[logical * size] === ENTRY.KEPT && world.refCount[block] === 0,
  );
  return { states, table, kept, numTokens: request.tokens.length, numStored, gone };
}

/** The stages of a step for the shown request: before it, blocks taken, entries written, blocks released.
 * @typedef {object} Stages
 * @property {Entries} before
 * @property {Entries} taken
 * @property {Entries} written
 * @property {Entries} after */

/**
 * @param {Entries} before @param {Entries} after @param {Chunk|null} chunk what the request computes in the step
 * @param {boolean} ended whether it ends in the step
 * @returns {Stages}
 */
export function stagesOf(before, after, chunk, ended) {
  if (!chunk) return { before, taken: after, written: after, after };
  const isNew = (/** @type {number} */ p) => p >= chunk.start && p < chunk.start + chunk.num_tokens;
  const size = after.states.length;
  const taken = new Uint8Array(size);
  const written = new Uint8Array(size);
  for (let p = 0; p < size; p += 1) {
    const was = p < before.states.length ? before.states[p] : ENTRY.ABSENT;
    const is = after.states[p];
    const held = ended ? (p < chunk.start + chunk.num_tokens ? ENTRY.STORED : ENTRY.BLANK) : is;
    const known = ended && is === ENTRY.ABSENT && p >= chunk.start + chunk.num_tokens ? was : held;
    taken[p] = isNew(p) ? ENTRY.BLANK : was === ENTRY.ABSENT ? known : was;
    written[p] = isNew(p) ? ENTRY.FRESH : was === ENTRY.FRESH ? ENTRY.STORED : taken[p];
  }
  const mid = {
    table: ended ? after.table : after.table,
    kept: [],
    numTokens: before.numTokens || after.numTokens,
    numStored: 0,
    gone: before.gone,
  };
  return { before, taken: { ...mid, states: taken }, written: { ...mid, states: written }, after };
}

/** The two stages on screen. `sweep`: rows change from the first to the second one by one; otherwise they fade, at `t`.
 * @param {StepInfo|null} step @param {number} progress @param {Stages} stages
 * @returns {{from: Entries, to: Entries, sweep: boolean, t: number}} */
export function stageAt(step, progress, stages) {
  if (!step || progress <= 0) return { from: stages.before, to: stages.before, sweep: false, t: 1 };
  const phases = phasesOf(step);
  if (progress < phases.blocks[1]) {
    return {
      from: stages.before,
      to: stages.taken,
      sweep: false,
      t: span(within(phases.blocks, progress), 0.35, 0.85),
    };
  }
  if (progress < phases.layers[1]) return { from: stages.taken, to: stages.written, sweep: true, t: 0 };
  const back = phases.release;
  if (back[1] <= back[0] || progress < back[0]) return { from: stages.written, to: stages.written, sweep: false, t: 1 };
  return {
    from: stages.written,
    to: stages.after,
    sweep: false,
    t: span(clamp(within(back, progress), 0, 1), 0.1, 0.7),
  };
}
