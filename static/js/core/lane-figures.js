/** The figures of one lane from its measurements. The command line prints the same ones. Pure. */

/** @import { LaneMeasured } from './events.d.ts' */
/** @import { LaneRun, World, LaneHeader } from './types.d.ts' */

/** An exact lane may differ from the reference only by rounding. */
export const EXACT_LIMIT = 1e-3;

/**
 * @typedef {object} LaneFigures
 * @property {number} count tokens measured
 * @property {number} mean_kl @property {number} top1_agreement @property {number|null} first_divergence @property {number} max_abs_logit_diff
 * @property {number} perplexity @property {number} kv_projections @property {number|null} ms_per_token @property {number} first_token_ms
 * @property {number} num_hit_tokens @property {number} held_bytes @property {number} read_bytes @property {number} copied_bytes @property {number} kept_share
 * @property {number} num_differing tokens at which it says another one
 */

/** Sums over the first tokens of a growing list: `kl[i]` covers i of them.
 * @typedef {{kl: number[], nll: number[], agreeing: number[], most: number[], first: number|null, sorted: number[], numSorted: number}} Sums */

/** @type {WeakMap<readonly LaneMeasured[], Sums>} */
const sumsOf = new WeakMap();

/** @param {readonly LaneMeasured[]} measured @param {number} count @returns {Sums} */
function summed(measured, count) {
  let sums = sumsOf.get(measured);
  if (!sums)
    sumsOf.set(
      measured,
      (sums = { kl: [0], nll: [0], agreeing: [0], most: [0], first: null, sorted: [], numSorted: 0 }),
    );
  for (let i = sums.kl.length - 1; i < count; i++) {
    const one = measured[i];
    sums.kl.push(sums.kl[i] + one.kl);
    sums.nll.push(sums.nll[i] + one.nll);
    sums.agreeing.push(sums.agreeing[i] + Number(one.agrees));
    sums.most.push(Math.max(sums.most[i], one.max_abs_diff));
    if (!one.agrees) sums.first ??= i;
  }
  return sums;
}

/** @param {readonly LaneMeasured[]} measured @param {number} count of them belong to the state @returns {LaneFigures|null} null before the first */
export function figuresOf(measured, count) {
  if (count === 0) return null;
  const sums = summed(measured, count);
  const last = measured[count - 1];
  const agreeing = sums.agreeing[count];
  return {
    count,
    mean_kl: sums.kl[count] / count,
    top1_agreement: agreeing / count,
    first_divergence: sums.first !== null && sums.first < count ? sums.first : null,
    max_abs_logit_diff: sums.most[count],
    perplexity: Math.exp(sums.nll[count] / count),
    kv_projections: last.num_projections,
    ms_per_token: medianMs(measured, count, sums),
    first_token_ms: measured[0].step_us / 1000,
    num_hit_tokens: measured[0].num_hit_tokens,
    held_bytes: last.held_bytes,
    read_bytes: last.read_bytes,
    copied_bytes: last.copied_bytes,
    kept_share: last.kept_share,
    num_differing: count - agreeing,
  };
}

/** Over all tokens but the first. The times stay sorted while tokens are added one by one.
 * @param {readonly LaneMeasured[]} measured @param {number} count @param {Sums} sums @returns {number|null} */
function medianMs(measured, count, sums) {
  if (count < 2) return null;
  if (sums.numSorted > count) [sums.sorted, sums.numSorted] = [[], 0];
  const { sorted } = sums;
  for (let i = Math.max(1, sums.numSorted); i < count; i++) {
    let at = sorted.length;
    while (at > 0 && sorted[at - 1] > measured[i].step_us) at--;
    sorted.splice(at, 0, measured[i].step_us);
  }
  sums.numSorted = count;
  const middle = sorted.length >> 1;
  return (sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2) / 1000;
}

/** Whether a lane keeps nothing between steps. @param {LaneHeader} lane @returns {boolean} */
export function keepsNothing({ spec }) {
  return spec.split('+').includes('no-cache');
}

/** The measurements of the latest measured request. @param {World} world @returns {LaneRun|null} */
export function latestRun(world) {
  let latest = null;
  for (const run of world.lanes.values()) if (!latest || run.requestId > latest.requestId) latest = run;
  return latest;
}

/** Whether the reference has read a token that some lane hasn't read yet, as in the middle of a step.
 * @param {LaneRun} run @returns {boolean} */
export function lagging({ counts: [reference, ...others] }) {
  return others.some((count) => count === reference - 1);
}

/** Whether a lane that should be exact is. @param {LaneFigures} figures @returns {boolean} */
export function isProved(figures) {
  return figures.num_differing === 0 && figures.max_abs_logit_diff <= EXACT_LIMIT;
}

/**
 * K/V computations for `numNew` tokens after a prompt. With a cache, each token is computed once (the last one never);
 * without one, the whole text is computed at every token.
 * @param {number} prompt @param {number} numNew @returns {{cached: number, none: number}}
 */
export function closedForms(prompt, numNew) {
  return numNew === 0
    ? { cached: 0, none: 0 }
    : { cached: prompt + numNew - 1, none: numNew * prompt + (numNew * (numNew - 1)) / 2 };
}
