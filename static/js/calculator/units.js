/** Amounts as people read and write them: GiB beside GB, counts with commas, `128K`. Pure. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { count, fill } from '../ui/text.js';

const BINARY = ['bytes', 'KiB', 'MiB', 'GiB'];
const DECIMAL = ['bytes', 'kB', 'MB', 'GB'];
const SUFFIXES = /** @type {Record<string, number>} */ ({ k: 1024, m: 1024 ** 2 });
export const GIB = 1024 ** 3;

/** In KiB, MiB or GiB of 2¹⁰, 2²⁰, 2³⁰ bytes. @param {number} size @returns {string} */
export function binary(size) {
  return inUnits(size, 1024, BINARY);
}

/** In kB, MB or GB of 10³, 10⁶, 10⁹ bytes. @param {number} size @returns {string} */
export function decimal(size) {
  return inUnits(size, 1000, DECIMAL);
}

/** 1.00 GiB = 1.07 GB. @param {number} size @returns {string} */
export function both(size) {
  return Math.abs(size) < 1000 ? exact(size) : `${binary(size)} = ${decimal(size)}`;
}

/** 131,072 bytes. @param {number} size @returns {string} */
export function exact(size) {
  return fill(size === 1 ? t.units.byte : t.units.bytes, { n: signed(size) });
}

/** @param {number} n @returns {string} */
export function signed(n) {
  return n < 0 ? `−${count(-n)}` : count(n);
}

/** @param {number} size @param {number} base @param {string[]} units */
function inUnits(size, base, units) {
  let value = size;
  let index = 0;
  while (Math.abs(value) >= base && index < units.length - 1) {
    value /= base;
    index++;
  }
  const whole = Math.floor(Math.abs(value));
  const digits = index === 0 || Math.abs(value) >= 1000 ? 0 : Math.max(0, 3 - String(whole).length);
  return `${grouped(value, digits)} ${units[index]}`;
}

/** With commas and so many digits after the point. @param {number} value @param {number} digits @returns {string} */
export function grouped(value, digits) {
  const [whole, rest] = Math.abs(value).toFixed(digits).split('.');
  return `${value < 0 ? '−' : ''}${count(Number(whole))}${rest ? `.${rest}` : ''}`;
}

/** About four digits: 1,612, 38.25. @param {number} value @returns {string} */
export function rate(value) {
  return grouped(value, value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3);
}

/** $0.72. @param {number} value @returns {string} */
export function dollars(value) {
  return `$${grouped(value, value !== 0 && value < 0.1 ? 4 : 2)}`;
}

/** 8.03 billion. @param {number} value @returns {string} */
export function billions(value) {
  return fill(t.units.billions, { n: grouped(value / 1e9, value >= 1e11 ? 0 : value >= 1e10 ? 1 : 2) });
}

/** A multiple, 7.1. @param {number} value @returns {string} */
export function times(value) {
  return grouped(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

/** A whole number out of `131,072`, `128K` (of 1,024) or `1M`; null when it is none. @param {string} text @returns {number|null} */
export function wholeOf(text) {
  const match = /^(\d{1,3}(?:[,\s_]\d{3})+|\d+(?:\.\d+)?)\s*([km])?$/i.exec(text.trim());
  if (!match) return null;
  const value = Number(match[1].replace(/[,\s_]/g, '')) * (match[2] ? SUFFIXES[match[2].toLowerCase()] : 1);
  return Number.isSafeInteger(value) ? value : null;
}

/** A number with or without a point; null when it is none. @param {string} text @returns {number|null} */
export function numberOf(text) {
  const plain = text.trim().replace(/(\d),(?=\d{3}(\D|$))/g, '$1');
  return /^\d+(\.\d*)?$|^\.\d+$/.test(plain) ? Number(plain) : null;
}

/** Parameters out of `8030261248`, `8.03B` or `135M` (of 10⁹ and 10⁶); null when it is none. @param {string} text @returns {number|null} */
export function parametersOf(text) {
  const match = /^([\d.,\s_]+?)\s*([mb])?$/i.exec(text.trim());
  const value = match && numberOf(match[1]);
  if (!match || value === null) return null;
  const whole = Math.round(value * ({ m: 1e6, b: 1e9 }[match[2]?.toLowerCase() ?? ''] ?? 1));
  return whole >= 1 && Number.isSafeInteger(whole) ? whole : null;
}
