/** Cache bytes over steps as a small line; its accessible name has the first and last value. */
import { strings } from '../strings/main.js';
import { svg } from '../ui/dom.js';
import { bytes, fill } from '../ui/format.js';

const WIDTH = 280;
const HEIGHT = 56;
const MAX_POINTS = 280;

/** @param {number[]} series tokens stored at the end of each step from `first` on @param {number} first @param {number} position @param {number} perToken @returns {SVGSVGElement} */
export function bytesLine(series, first, position, perToken) {
  const { inspector } = strings;
  const last = series.length - 1;
  let most = 1;
  for (const value of series) most = Math.max(most, value);
  const x = (/** @type {number} */ index) => (last === 0 ? 0 : (index / last) * WIDTH);
  const y = (/** @type {number} */ value) => HEIGHT - 4 - (value / most) * (HEIGHT - 10);
  const here = Math.min(Math.max(position - first, 0), Math.max(last, 0));
  const stride = Math.max(1, Math.ceil(series.length / MAX_POINTS));
  const label = fill(inspector.bytesOverStepsLabel, {
    from: bytes((series[0] ?? 0) * perToken),
    first,
    to: bytes((series[here] ?? 0) * perToken),
    last: first + here,
  });
  return svg(
    'svg',
    {
      class: 'sparkline',
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: 'img',
      'aria-label': label,
      preserveAspectRatio: 'none',
    },
    svg('line', { class: 'sparkline-base', x1: 0, x2: WIDTH, y1: HEIGHT - 4, y2: HEIGHT - 4 }),
    svg('polyline', { class: 'sparkline-ahead', points: points(series, here, last, stride, x, y) }),
    svg('polyline', { class: 'sparkline-past', points: points(series, 0, here, stride, x, y) }),
    svg('line', { class: 'sparkline-here', x1: x(here), x2: x(here), y1: 2, y2: HEIGHT - 2 }),
  );
}

/** @param {number[]} series @param {number} from @param {number} to @param {number} stride @param {(index: number) => number} x @param {(value: number) => number} y */
function points(series, from, to, stride, x, y) {
  const parts = [];
  for (let index = from; index <= to; index += stride)
    parts.push(`${x(index).toFixed(1)},${y(series[index] ?? 0).toFixed(1)}`);
  if (to > from) parts.push(`${x(to).toFixed(1)},${y(series[to] ?? 0).toFixed(1)}`);
  return parts.join(' ');
}
