/** Numbers of the bandwidth view as text: decimal units, as vendors give bandwidths, and three significant digits. */
import { experiments } from '../../strings/experiments.js';
import { count, fill, makersBytes, three } from '../../ui/format.js';

const { units } = experiments;

/** 10 GB, 100 MB: a power of ten. @param {number} n @returns {string} */
export function roundBytes(n) {
  return makersBytes(n).replace(/\.0+(?= )/, '');
}

/** 1M, 10K, 100, 0.1: a power of ten. @param {number} n @returns {string} */
export function roundCount(n) {
  if (n < 1) return String(Number(n.toPrecision(1)));
  return n >= 1e6 ? `${count(n / 1e6)}M` : n >= 1e4 ? `${count(n / 1e3)}K` : count(n);
}

/** 3.35 TB/s. @param {number} n bytes per second @returns {string} */
export function speed(n) {
  return fill(units.perSecond, { n: makersBytes(n) });
}

/** 7.36 ms. @param {number} us @returns {string} */
export function time(us) {
  if (us >= 999_500) return fill(units.s, { n: three(us / 1e6) });
  return us >= 999.5 ? fill(units.ms, { n: three(us / 1e3) }) : fill(units.us, { n: three(us) });
}
