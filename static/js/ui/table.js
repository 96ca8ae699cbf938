/** Tables: column headers, and rows with a row header. */
import { h } from './dom.js';
/** @import { Child } from './dom.js' */

/** @param {readonly (Child|Child[])[]} columns @returns {HTMLElement} */
export function headOf(columns) {
  return h(
    'thead',
    {},
    h(
      'tr',
      {},
      columns.map((text) => h('th', { scope: 'col' }, text)),
    ),
  );
}

/** @param {Child|Child[]} name @param {...(Child|Child[])} cells @returns {HTMLElement} */
export function rowOf(name, ...cells) {
  return h(
    'tr',
    {},
    h('th', { scope: 'row' }, name),
    cells.map((cell) => h('td', {}, cell)),
  );
}

/** @param {Child} caption @param {readonly Child[]} columns @param {HTMLElement[]} rows @returns {HTMLElement[]} */
export function tableParts(caption, columns, rows) {
  return [h('caption', {}, caption), headOf(columns), h('tbody', {}, rows)];
}
