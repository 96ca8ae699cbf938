/** A chart's numbers as a table, CSV and JSON, and saving files. */
import { plotTexts as t } from '../strings/plot.js';
import { h } from './dom.js';
import { fill } from './format.js';
import { rowOf, tableParts } from './table.js';

/** @typedef {string|number|null} Cell */
/**
 * `rows` can be a function, called when the numbers are needed. `cell` formats a value in the table; files have the
 * raw values.
 * @typedef {{caption: string, headers: string[], rows: Cell[][] | (() => Cell[][]), cell?: (value: Cell, column: number) => string}} Numbers
 */

/** Longer tables are thinned on the page; files have all rows. */
const MAX_TABLE_ROWS = 200;
const RELEASE_MS = 10000;

/** @param {Numbers} numbers @returns {Cell[][]} */
function rowsOf({ rows }) {
  return typeof rows === 'function' ? rows() : rows;
}

/** A table with the first column as row headers. @param {Numbers} numbers @returns {HTMLElement} */
export function tableElement(numbers) {
  const all = rowsOf(numbers);
  const rows = thinned(all, MAX_TABLE_ROWS);
  const cell = numbers.cell ?? ((value) => (value === null ? '' : String(value)));
  const note = rows.length < all.length ? ` ${fill(t.tableNote, { shown: rows.length, all: all.length })}` : '';
  return h(
    'div',
    { class: 'plot-table', tabindex: '0', role: 'region', 'aria-label': numbers.caption },
    h(
      'table',
      {},
      tableParts(
        numbers.caption + note,
        numbers.headers,
        rows.map((row) => rowOf(.../** @type {[string]} */ (row.map(cell)))),
      ),
    ),
  );
}

/** At most `most` of the rows, evenly spaced, including the last one. @template T @param {T[]} rows @param {number} most @returns {T[]} */
function thinned(rows, most) {
  if (rows.length <= most) return rows;
  return Array.from({ length: most }, (_, index) => rows[Math.round(((index + 1) * rows.length) / most) - 1]);
}

/** RFC 4180, with a prefix for values that a spreadsheet would read as a formula. @param {Numbers} numbers @returns {string} */
export function toCsv(numbers) {
  return [numbers.headers, ...rowsOf(numbers)].map((row) => row.map(csvCell).join(',')).join('\r\n') + '\r\n';
}

/** @param {Cell} value @returns {string} */
function csvCell(value) {
  if (typeof value === 'number') return String(value);
  const text = value === null ? '' : /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

/** An object with caption, headers and rows. @param {Numbers} numbers @returns {string} */
export function toJson(numbers) {
  return `${JSON.stringify({ caption: numbers.caption, headers: numbers.headers, rows: rowsOf(numbers) }, null, 1)}\n`;
}

/** @param {string} name of the file @param {string} text @param {string} type media type */
export function saveText(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  saveUrl(name, url);
  setTimeout(() => URL.revokeObjectURL(url), RELEASE_MS);
}

/** @param {string} name of the file @param {string} url */
export function saveUrl(name, url) {
  const link = h('a', { href: url, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
}
