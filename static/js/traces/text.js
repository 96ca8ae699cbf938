/** Figures of the page `traces` as words. Pure. */
import { traces as t } from '../strings/traces.js';
import { count, fill } from '../ui/format.js';

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;

/** 88.3 %. @param {number} share @returns {string} */
export function rate(share) {
  return `${(100 * share).toFixed(1)} %`;
}

/** @param {number} blocks 0: no limit @returns {string} */
export function cacheOf(blocks) {
  return blocks === 0 ? t.unbounded : blocks === 1 ? t.holdsOne : fill(t.holds, { n: count(blocks) });
}

/** 3 h 25 min. @param {number} seconds @returns {string} */
export function span(seconds) {
  if (seconds === 0) return fill(t.time.s, { n: 0 });
  if (seconds < 2 * MINUTE) return fill(t.time.s, { n: seconds < 10 ? seconds.toFixed(1) : count(seconds) });
  if (seconds < 2 * HOUR) return fill(t.time.min, { n: count(seconds / MINUTE) });
  const minutes = Math.round(seconds / MINUTE);
  if (seconds < 3 * DAY) return fill(t.time.h, { h: Math.floor(minutes / 60), min: minutes % 60 });
  return fill(t.time.days, { n: count(seconds / DAY) });
}

/** The chosen policies, as words. @param {string[]} policies @returns {string} */
export function named(policies) {
  return policies.map((policy) => nameOf(policy)).join(', ');
}

/** @param {string} policy @returns {string} */
export function nameOf(policy) {
  return /** @type {Record<string, string>} */ (t.policy)[policy] ?? policy;
}

/** The policy in the headline: the first realizable one, else the optimum. @param {string[]} policies @returns {string|null} */
export function leading(policies) {
  return policies.find((policy) => policy !== 'optimum') ?? policies[0] ?? null;
}
