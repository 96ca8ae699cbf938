/** Numbers of the bandwidth view as texts: decimal units, as makers give bandwidths, and three significant digits. */
import { experiments } from '../../strings/experiments.js';
import { count, fill } from '../../ui/text.js';

const { units } = experiments;

/** 136, 44.6, 1.56. @param {number} n @returns {string} */
export function digits(n) {
  if (n >= 100) return count(n);
  return n >= 9.995 ? n.toFixed(1) : n.toFixed(2);
}

/** 16.1 GB, 8.59 GB, 131 kB: powers of 1000. @param {number} n @returns {string} */
export function decimalBytes(n) {
  let value = n;
  let unit = 0;
  while (value >= 999.5 && unit < units.bytes.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 ? count(value) : digits(value)} ${units.bytes[unit]}`;
}

/** 10 GB, 100 MB: a power of ten. @param {number} n @returns {string} */
export function roundBytes(n) {
  return decimalBytes(n).replace(/\.0+(?= )/, '');
}

/** 1M, 10K, 100, 0.1: a power of ten. @param {number} n @returns {string} */
export function roundCount(n) {
  if (n < 1) return String(Number(n.toPrecision(1)));
  return n >= 1e6 ? `${count(n / 1e6)}M` : n >= 1e4 ? `${count(n / 1e3)}K` : count(n);
}

/** 3.35 TB/s. @param {number} n bytes per second @returns {string} */
export function speed(n) {
  return fill(units.perSecond, { n: decimalBytes(n) });
}

/** 7.36 ms. @param {number} us @returns {string} */
export function time(us) {
  if (us >= 999_500) return fill(units.s, { n: digits(us / 1e6) });
  return us >= 999.5 ? fill(units.ms, { n: digits(us / 1e3) }) : fill(units.us, { n: digits(us) });
}
