/** Fills in texts, and formats numbers. */
import { strings } from '../strings/main.js';
import { singular } from './agreement.js';

/** Fills in a text, as plain text that agrees with its counts. @param {string} template @param {Record<string, string|number>} [values] @returns {string} */
export function fill(template, values = {}) {
  const [first, ...rest] = template.split(/\{(\w+)\}/);
  let out = first;
  for (let at = 0; at < rest.length; at += 2) {
    const name = rest[at];
    const value = name in values ? String(values[name]) : name === 'K' || name === 'V' ? name : `{${name}}`;
    const next = value === '1' ? singular(rest[at + 1], out) : rest[at + 1];
    out += value + next;
  }
  return out;
}

/** Fills `{n}` in a text. A text that doesn't just agree with its count has both forms.
 * @param {string|{one: string, many: string}} text @param {number} n @returns {string} */
export function plural(text, n) {
  return fill(typeof text === 'string' ? text : n === 1 ? text.one : text.many, { n: count(n) });
}

/** 46,080. @param {number} n @returns {string} */
export function count(n) {
  return Math.round(n)
    .toString()
    .replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

/** With commas and this many digits after the point. @param {number} value @param {number} [digits] @returns {string} */
export function grouped(value, digits = 0) {
  const [whole, rest] = Math.abs(value).toFixed(digits).split('.');
  return `${value < 0 ? '−' : ''}${count(Number(whole))}${rest ? `.${rest}` : ''}`;
}

/** Three digits: 1,612, 136, 44.6, 1.56. @param {number} value @returns {string} */
export function three(value) {
  return grouped(value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
}

/** Few digits at any magnitude: 0.31, 2.1e-5. @param {number} value @returns {string} */
export function small(value) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  return size >= 100
    ? value.toFixed(0)
    : size >= 10
      ? value.toFixed(1)
      : size >= 0.01
        ? value.toFixed(2)
        : size >= 0.0001
          ? value.toFixed(4).replace(/0+$/, '')
          : value.toExponential(1).replace('.0e', 'e');
}

/** 128K, 1M, of 1,024; other numbers in full. @param {number} n @returns {string} */
export function thousands(n) {
  for (const [unit, size] of /** @type {const} */ ([
    ['M', 1024 ** 2],
    ['K', 1024],
  ]))
    if (n >= size && n % size === 0) return `${count(n / size)}${unit}`;
  return count(n);
}

/** @param {number} n @param {number} base @param {readonly string[]} units @param {(value: number, unit: number) => string} write @param {number} [full] from here on the next unit is taken */
function inUnits(n, base, units, write, full = base) {
  let value = n;
  let unit = 0;
  while (Math.abs(value) >= full && unit < units.length - 1) {
    value /= base;
    unit++;
  }
  return `${write(value, unit)} ${units[unit]}`;
}

/** 3.21 MiB. @param {number} n @returns {string} */
export function bytes(n) {
  const { B, KiB, MiB, GiB } = strings.units;
  return inUnits(n, 1024, [B, KiB, MiB, GiB], (value, unit) =>
    unit === 0 ? count(value) : value.toFixed(value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2),
  );
}

/** 1.00 GiB, always three digits, of 2¹⁰, 2²⁰, 2³⁰ bytes. @param {number} n @returns {string} */
export function binary(n) {
  return inUnits(n, 1024, ['bytes', 'KiB', 'MiB', 'GiB'], threeOf);
}

/** 1.07 GB, of 10³, 10⁶, 10⁹ bytes. @param {number} n @returns {string} */
export function decimal(n) {
  return inUnits(n, 1000, ['bytes', 'kB', 'MB', 'GB'], threeOf);
}

/** 16.1 GB, 3.35 TB, as vendors give sizes and bandwidths. @param {number} n @returns {string} */
export function makersBytes(n) {
  return inUnits(
    n,
    1000,
    ['B', 'kB', 'MB', 'GB', 'TB', 'PB'],
    (value, unit) => (unit === 0 ? count(value) : three(value)),
    999.5,
  );
}

/** @param {number} value @param {number} unit */
function threeOf(value, unit) {
  return grouped(
    value,
    unit === 0 || Math.abs(value) >= 1000 ? 0 : Math.max(0, 3 - String(Math.floor(Math.abs(value))).length),
  );
}

/** 74 ms, 1.8 s. @param {number} ms @returns {string} */
export function duration(ms) {
  const { units } = strings;
  if (ms >= 1000) return `${(ms / 1000).toFixed(ms >= 10000 ? 0 : 1)} ${units.s}`;
  return `${ms.toFixed(ms >= 10 ? 0 : 1)} ${units.ms}`;
}

/** 41 %, 0.3 %. @param {number} share 0-1 @returns {string} */
export function percent(share) {
  const value = share * 100;
  if (value > 0 && value < 0.05) return '< 0.1 %';
  return `${value >= 9.95 ? value.toFixed(0) : value.toFixed(1)} %`;
}
