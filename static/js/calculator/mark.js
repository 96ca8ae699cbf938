/** The marks of up to four models: a letter and a dash, then a colour. */
import { h, svg } from '../ui/dom.js';

export const LETTERS = ['A', 'B', 'C', 'D'];
/** Names of dashes in plotly. */
export const DASHES = ['solid', 'dash', 'dot', 'dashdot'];
export const COLORS = ['var(--lane-0)', 'var(--lane-1)', 'var(--lane-2)', 'var(--lane-3)'];

/** @param {number} index @returns {HTMLElement} */
export function mark(index) {
  return h(
    'span',
    { class: `calc-mark calc-mark-${index}` },
    svg(
      'svg',
      { viewBox: '0 0 22 6', 'aria-hidden': 'true', focusable: 'false' },
      svg('line', { x1: 0, y1: 3, x2: 22, y2: 3 }),
    ),
    LETTERS[index],
  );
}
