/** Amounts in the calculator's notation: GiB and GB, dollars, `128K`. Pure. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { binary, decimal, fill, grouped, three } from '../ui/format.js';

const SUFFIXES = /** @type {Record<string, number>} */ ({ k: 1024, m: 1024 ** 2 });
export const GIB = 1024 ** 3;

/** 1.00 GiB = 1.07 GB. @param {number} size @returns {string} */
export function both(size) {
  return Math.abs(size) < 1000 ? exact(size) : `${binary(size)} = ${decimal(size)}`;
}

/** 131,072 bytes. @param {number} size @returns {string} */
export function exact(size) {
  return fill(size === 1 ? t.units.byte : t.units.bytes, { n: grouped(size) });
}

/** About four digits: 1,612, 38.25. @param {number} value @returns {string} */
export function rate(value) {
  return value >= 1 ? three(value) : grouped(value, 3);
}

/** $0.72. @param {number} value @returns {string} */
export function dollars(value) {
  return `$${grouped(value, value !== 0 && value < 0.1 ? 4 : 2)}`;
}

/** 8.03 billion. @param {number} value @returns {string} */
export function billions(value) {
  return fill(t.units.billions, { n: three(value / 1e9) });
}

/** A whole number from `131,072`, `128K` (of 1,024) or `1M`; null if it isn't one. @param {string} text @returns {number|null} */
export function wholeOf(text) {
  const match = /^(\d{1,3}(?:[,\s_]\d{3})+|\d+(?:\.\d+)?)\s*([km])?$/i.exec(text.trim());
  if (!match) return null;
  const value = Number(match[1].replace(/[,\s_]/g, '')) * (match[2] ? SUFFIXES[match[2].toLowerCase()] : 1);
  return Number.isSafeInteger(value) ? value : null;
}

/** A number with or without a decimal point; null if it isn't one. @param {string} text @returns {number|null} */
export function numberOf(text) {
  const plain = text.trim().replace(/(\d),(?=\d{3}(\D|$))/g, '$1');
  return /^\d+(\.\d*)?$|^\.\d+$/.test(plain) ? Number(plain) : null;
}

/** A parameter count from `8030261248`, `8.03B` or `135M` (of 10⁹ and 10⁶); null if it isn't one.
 * @param {string} text @returns {number|null} */
export function parametersOf(text) {
  const match = /^([\d.,\s_]+?)\s*([mb])?$/i.exec(text.trim());
  const value = match && numberOf(match[1]);
  if (!match || value === null) return null;
  const whole = Math.round(value * ({ m: 1e6, b: 1e9 }[match[2]?.toLowerCase() ?? ''] ?? 1));
  return whole >= 1 && Number.isSafeInteger(whole) ? whole : null;
}
