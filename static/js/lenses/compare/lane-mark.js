/** The mark of a lane: a shape first, then a hue, the same in tape, table and charts. */
import { svg } from '../../ui/dom.js';

/** In a box of 12, centred on 0. */
const FORMS = ['M-5 0h10', 'M0 -5L5 0L0 5L-5 0Z', 'M0 -4.5L5 4.5L-5 4.5Z', 'M-4 -4H4V4H-4Z'];

/** @param {number} lane @returns {SVGSVGElement} */
export function laneMark(lane) {
  return svg(
    'svg',
    {
      class: `lane-mark lane-ink-${lane % FORMS.length}`,
      viewBox: '-6 -6 12 12',
      'aria-hidden': 'true',
      focusable: 'false',
    },
    svg('path', { d: FORMS[lane % FORMS.length] }),
  );
}
