/** The result of the probes up to the cursor, from `probe_timed` events alone. */
import { median } from '../batch/latency.js';
/** @import { ProbeTimed } from '../../core/events.d.ts' */

/** The attacker learns from this many of its latest prompts, as in kvviz/experiments/timing.py. */
export const NUM_LESSONS = 5;

/**
 * `first` and `again`: its own prompts, sent for the first time (a miss) and again (a hit). `right` and `wrong`:
 * guesses. `accuracy` is null before the first guess. `thresholdUs`: three quarters of the way from the median hit to
 * the fastest miss, null until it is learnt.
 * @typedef {{probes: readonly ProbeTimed[], shared: boolean|null, first: ProbeTimed[], again: ProbeTimed[], right: ProbeTimed[], wrong: ProbeTimed[],
 *   numGuesses: number, accuracy: number|null, thresholdUs: number|null, rightUs: number|null, wrongUs: number|null, last: ProbeTimed|null}} Attack
 */

/** @param {readonly ProbeTimed[]} probes @returns {Attack} */
export function attackOf(probes) {
  const guesses = probes.filter((probe) => probe.says_secret !== null);
  const lessons = probes.filter((probe) => probe.says_secret === null);
  const first = lessons.filter((probe) => probe.num_hit_tokens === 0);
  const again = lessons.filter((probe) => probe.num_hit_tokens > 0);
  const right = guesses.filter((probe) => probe.is_secret);
  const wrong = guesses.filter((probe) => !probe.is_secret);
  const middle = (/** @type {ProbeTimed[]} */ of) => median(of.map((probe) => probe.first_token_us));
  const hit = middle(again.slice(-NUM_LESSONS));
  const miss = first.length > 0 ? Math.min(...first.slice(-NUM_LESSONS).map((probe) => probe.first_token_us)) : null;
  return {
    probes,
    first,
    again,
    right,
    wrong,
    shared: probes.length > 0 ? probes[0].shared : null,
    numGuesses: guesses.length,
    accuracy:
      guesses.length > 0
        ? guesses.filter((probe) => probe.says_secret === probe.is_secret).length / guesses.length
        : null,
    thresholdUs: hit === null || miss === null ? null : hit + 0.75 * (miss - hit),
    rightUs: middle(right),
    wrongUs: middle(wrong),
    last: probes.length > 0 ? probes[probes.length - 1] : null,
  };
}
