/**
 * Division of a step's progress 0-1: first its blocks (lookup, hits, evictions, allocations), then the sweep through
 * the layers, then the sampled token, then the blocks that a finished request releases. Pure functions of the step.
 */

/** @import { StepInfo, Phases, LayerMoment } from './types.d.ts' */

/** Milliseconds at 1×. */
const PREFILL_MS = 1500;
const DECODE_MS = 900;
const RARE_MS = 900;
const CALM_MS = 250;
/** Share of a decode layer's time in which its entry is written; in the rest, the query reads the row. */
export const WRITE_SHARE = 0.3;
/** From this speed on, layers aren't shown one after the other, so that no large area flickers. */
export const CUT_SPEED = 4;

/** @type {WeakMap<StepInfo, Phases>} */
const known = new WeakMap();

/** @param {StepInfo} step @returns {Phases} */
export function phasesOf(step) {
  const cached = known.get(step);
  if (cached) return cached;
  const rare =
    step.evicted.length +
      step.shared.length +
      step.copied.length +
      step.preempted.length +
      step.swappedIn.length +
      step.offloaded.length +
      step.fetched.length >
      0 || step.lookups.some((lookup) => lookup.num_hit_tokens > 0);
  const before = rare ? RARE_MS : step.allocated.length + step.releasedFirst.length > 0 ? CALM_MS : 0;
  const work = step.kind === 'empty' ? 0 : step.kind === 'decode' ? DECODE_MS : PREFILL_MS;
  const sweep = work * 0.78;
  const drop = step.sampled.length > 0 ? work - sweep : work * 0.05;
  const after =
    step.releasedLast.length > 0 || step.forked.length > 0 || step.finished.length > 0
      ? RARE_MS
      : step.forgotten.length > 0
        ? CALM_MS
        : 0;
  const duration = Math.max(before + sweep + drop + after, CALM_MS);
  const a = before / duration;
  const b = (before + sweep) / duration;
  const c = (before + sweep + drop) / duration;
  /** @type {Phases} */
  const phases = { blocks: [0, a], layers: [a, b], sample: [b, c], release: [c, 1], duration };
  known.set(step, phases);
  return phases;
}

/** Progress within one part, clamped to 0-1. @param {readonly [number, number]} part @param {number} progress */
export function within(part, progress) {
  const [from, to] = part;
  if (progress <= from) return 0;
  if (progress >= to) return 1;
  return (progress - from) / (to - from);
}

/** Layers in the order in which the step wrote them. @param {StepInfo} step @returns {number[]} */
export function layerOrder(step) {
  return step.written[0]?.layers ?? [];
}

/** The layer in progress, or null outside the sweep. @param {StepInfo|null} step @param {number} progress @returns {LayerMoment|null} */
export function layerAt(step, progress) {
  if (!step) return null;
  const [from, to] = phasesOf(step).layers;
  const order = layerOrder(step);
  if (order.length === 0 || progress < from || progress >= to) return null;
  const at = Math.min(((progress - from) / (to - from)) * order.length, order.length - 1e-9);
  const index = Math.floor(at);
  const part = at - index;
  return {
    layer: order[index],
    index,
    within: part,
    stage: step.kind === 'decode' && part < WRITE_SHARE ? 'write' : 'read',
  };
}

/** Progress at which the `index`-th layer of the order is reading its row. @param {StepInfo} step @param {number} index @returns {number} */
export function progressOfLayer(step, index) {
  const [from, to] = phasesOf(step).layers;
  const count = Math.max(layerOrder(step).length, 1);
  return from + ((to - from) * (index + 0.65)) / count;
}

/** Whether this step has yet to write a position's entry in a layer.
 * @param {StepInfo|null} step @param {number} progress @param {number} requestId @param {number} position @param {number} layer */
export function isAhead(step, progress, requestId, position, layer) {
  const written = step?.written.find((event) => event.request_id === requestId);
  if (!step || !written || written.positions.length === 0) return false;
  const first = written.positions[0];
  if (position < first || position >= first + written.positions.length) return false;
  return written.layers.indexOf(layer) >= numLayersWritten(step, progress);
}

/** How many layers of the order have written so far (0 before the sweep, all after it).
 * @param {StepInfo} step @param {number} progress @returns {number} */
export function numLayersWritten(step, progress) {
  const [from, to] = phasesOf(step).layers;
  const count = layerOrder(step).length;
  if (progress < from) return 0;
  if (progress >= to) return count;
  const at = ((progress - from) / (to - from)) * count;
  const index = Math.floor(at);
  return Math.min(index + (at - index >= (step.kind === 'decode' ? WRITE_SHARE : 0.5) ? 1 : 0), count);
}
