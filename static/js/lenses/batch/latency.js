/** Time to first token, times between tokens, and the cause of each spike, from the batch model. */

/** @import { BatchModel, BatchRequest, BatchStep } from './model.js' */

/**
 * `preempted` (recomputed: `numTokens`) or `swapped` (moved: `bytes`), for request `by` (`own`: for its own next
 * token), with `numSteps` without a chunk; `held`: other requests used up the budget; `idle`: the engine was idle for
 * `us`, perhaps because a miss was `measured`; `prefill`: a chunk of request `by`, and `others` more requests;
 * `moves`: blocks evicted, offloaded, fetched, copied; `none`.
 * @typedef {{kind: 'preempted'|'swapped', step: number, by: number, own: boolean, numTokens: number, bytes: number, numSteps: number}
 *   | {kind: 'held', step: number, numSteps: number} | {kind: 'idle', step: number, us: number, measured: number|null}
 *   | {kind: 'prefill', step: number, by: number, numTokens: number, others: number}
 *   | {kind: 'moves', step: number, moves: BatchStep['moves']} | {kind: 'none', step: number}} Cause
 */

/** The `index`-th token came `us` after the previous one, in `step`.
 * @typedef {{index: number, us: number, step: number, causes: Cause[]}} Spike */

/** `worstAtWork`: the longest spike not caused by an idle engine.
 * @typedef {{firstUs: number|null, intervals: number[], medianUs: number|null, worst: Spike|null, worstAtWork: Spike|null, spikes: Spike[]}} Latency */

const SPIKE_FACTOR = 1.8;
const SPIKE_US = 20_000;

/** @type {WeakMap<BatchRequest, {settled: number, latency: Latency}>} */
const known = new WeakMap();

/** @param {BatchModel} model @param {BatchRequest} request @returns {Latency} of its tokens in finished steps */
export function latencyOf(model, request) {
  const found = known.get(request);
  if (found?.settled === request.numSettled) return found.latency;
  const { tokenUs, numSettled, addedUs } = request;
  /** @type {number[]} */
  const intervals = [];
  for (let i = 1; i < numSettled; i++) intervals.push(tokenUs[i] - tokenUs[i - 1]);
  const medianUs = median(intervals);
  /** @type {Spike[]} */
  const spikes = [];
  let worst = -1;
  intervals.forEach((us, i) => {
    if (worst < 0 || us > intervals[worst]) worst = i;
    if (medianUs !== null && us > SPIKE_FACTOR * medianUs && us > SPIKE_US)
      spikes.push(spike(model, request, i + 1, us, medianUs));
  });
  let atWork = /** @type {Spike|null} */ (null);
  for (const one of spikes) if (one.causes[0].kind !== 'idle' && (!atWork || one.us > atWork.us)) atWork = one;
  const latency = {
    worstAtWork: atWork,
    firstUs: numSettled > 0 && addedUs !== null ? tokenUs[0] - addedUs : null,
    intervals,
    medianUs,
    spikes,
    worst:
      worst < 0
        ? null
        : (spikes.find((one) => one.index === worst + 1) ?? {
            index: worst + 1,
            us: intervals[worst],
            step: request.tokenStep[worst + 1],
            causes: [],
          }),
  };
  known.set(request, { settled: numSettled, latency });
  return latency;
}

/** @param {readonly number[]} values @returns {number|null} */
export function median(values) {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** @param {BatchModel} model @param {BatchRequest} request @param {number} index @param {number} us @param {number} medianUs @returns {Spike} */
function spike(model, request, index, us, medianUs) {
  const from = request.tokenStep[index - 1];
  const step = request.tokenStep[index];
  const steps = [];
  for (let k = from + 1; k <= step; k++) {
    const one = model.step(k);
    if (one) steps.push(one);
  }
  const causes = [
    preempted(request, steps),
    held(request, steps),
    idle(model, steps, us, medianUs),
    prefill(request, steps),
    moves(steps),
  ].filter((cause) => cause !== null);
  return { index, us, step, causes: causes.length > 0 ? causes : [{ kind: 'none', step }] };
}

/** @param {BatchRequest} request @param {BatchStep[]} steps @returns {Cause|null} */
function preempted(request, steps) {
  const mine = steps.flatMap((one) =>
    one.preempted.filter((event) => event.request_id === request.id).map((event) => ({ event, step: one.step })),
  );
  if (mine.length === 0) return null;
  const { event, step } = mine[0];
  let numTokens = 0;
  let bytes = 0;
  for (const one of steps) {
    numTokens += one.again.get(request.id) ?? 0;
    for (const swap of [...one.swappedOut, ...one.swappedIn])
      if (swap.request_id === request.id) bytes += swap.num_bytes;
  }
  return {
    kind: event.reason.code === 'swap' ? 'swapped' : 'preempted',
    step,
    by: event.reason.for_request_id,
    own: event.reason.for_request_id === request.id,
    numTokens,
    bytes,
    numSteps: without(request, steps),
  };
}

/** @param {BatchRequest} request @param {BatchStep[]} steps @returns {Cause|null} */
function held(request, steps) {
  if (steps.some((one) => one.preempted.some((event) => event.request_id === request.id))) return null;
  const numSteps = without(request, steps);
  return numSteps > 0 ? { kind: 'held', step: steps[0].step, numSteps } : null;
}

/** @param {BatchRequest} request @param {BatchStep[]} steps @returns {number} steps that computed nothing of it */
function without(request, steps) {
  return steps.filter((one) => !one.chunks.some((chunk) => chunk.request_id === request.id)).length;
}

/** @param {BatchModel} model @param {BatchStep[]} steps @param {number} us @param {number} medianUs @returns {Cause|null} */
function idle(model, steps, us, medianUs) {
  if (steps.length !== 1) return null;
  const gap = idleBefore(model, steps[0]);
  return gap > us / 2 && gap > medianUs
    ? { kind: 'idle', step: steps[0].step, us: gap, measured: steps[0].measured }
    : null;
}

/** @param {BatchModel} model @param {BatchStep} step @returns {number} microseconds between the end of the step before and its start */
export function idleBefore(model, step) {
  const before = model.step(step.step - 1);
  return before ? step.startUs - before.endUs : 0;
}

/** @param {BatchRequest} request @param {BatchStep[]} steps @returns {Cause|null} the one with the most tokens, and how many more */
function prefill(request, steps) {
  /** @type {Map<number, {numTokens: number, step: number}>} */
  const by = new Map();
  for (const one of steps)
    for (const chunk of one.chunks) {
      if (chunk.kind !== 'prefill' || chunk.request_id === request.id) continue;
      const sum = by.get(chunk.request_id) ?? { numTokens: 0, step: one.step };
      by.set(chunk.request_id, { ...sum, numTokens: sum.numTokens + chunk.num_tokens });
    }
  const most = [...by].sort((a, b) => b[1].numTokens - a[1].numTokens)[0];
  return most ? { kind: 'prefill', by: most[0], ...most[1], others: by.size - 1 } : null;
}

/** @param {BatchStep[]} steps @returns {Cause|null} */
function moves(steps) {
  const sum = { evicted: 0, offloaded: 0, fetched: 0, copied: 0, forgotten: 0, bytes: 0 };
  for (const one of steps)
    for (const name of /** @type {(keyof typeof sum)[]} */ (Object.keys(sum))) sum[name] += one.moves[name];
  if (sum.evicted + sum.offloaded + sum.fetched + sum.copied + sum.forgotten === 0) return null;
  return { kind: 'moves', step: steps[steps.length - 1].step, moves: sum };
}

/** Share of the time between the first start and the last end of a step in which the engine was idle.
 * @param {BatchModel} model @returns {number} 0-1 */
export function idleShare(model) {
  const { steps } = model;
  if (steps.length < 2) return 0;
  const all = steps[steps.length - 1].endUs - steps[0].startUs;
  let gaps = 0;
  for (const step of steps) gaps += idleBefore(model, step);
  return all > 0 ? gaps / all : 0;
}
