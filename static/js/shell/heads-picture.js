/** Which query head reads which KV head, as a small picture. */
import { strings } from '../strings/main.js';
import { svg, h } from '../ui/dom.js';
import { fill } from '../ui/format.js';

const WIDTH = 288;
const MAX_DRAWN = 32;

/** The last picture, reused while nothing in it changes.
 * @type {{model: import('../core/types.d.ts').ModelHeader, chosen: number|null, element: HTMLElement}|null} */
let last = null;

/** @param {import('../core/types.d.ts').ModelHeader} model @param {number|null} chosen query head @returns {HTMLElement} */
export function headsPicture(model, chosen) {
  if (last?.model === model && last.chosen === chosen) return last.element;
  last = { model, chosen, element: draw(model, chosen) };
  return last.element;
}

/** @param {import('../core/types.d.ts').ModelHeader} model @param {number|null} chosen @returns {HTMLElement} */
function draw(model, chosen) {
  const { num_query_heads: q, num_kv_heads: kv } = model;
  const { inspector } = strings;
  const text = kv === q ? inspector.headsSame : kv === 1 ? inspector.headsOne : inspector.heads;
  const label = fill(text, { q, kv });
  if (q > MAX_DRAWN) return h('p', { class: 'note details-note' }, label);
  const names = q <= 12;
  const gap = 12 / kv + 4;
  const group = (WIDTH - gap * (kv - 1)) / kv;
  const per = q / kv;
  const parts = [];
  for (let k = 0; k < kv; k++) {
    const x = k * (group + gap);
    const middle = x + group / 2;
    const slot = group / per;
    for (let i = 0; i < per; i++) {
      const head = k * per + i;
      const center = x + slot * (i + 0.5);
      const marked = chosen === head ? ' marked' : '';
      parts.push(svg('line', { class: `head-wire${marked}`, x1: center, y1: 22, x2: middle, y2: 44 }));
      parts.push(
        svg('rect', {
          class: `head-q${marked}`,
          x: center - slot / 2 + 1,
          y: 2,
          width: Math.max(2, slot - 2),
          height: 20,
          rx: 4,
        }),
      );
      if (names)
        parts.push(svg('text', { class: 'head-q-text', x: center, y: 16.5, 'text-anchor': 'middle' }, `q${head}`));
    }
    parts.push(svg('rect', { class: 'head-kv', x, y: 44, width: group, height: 20, rx: 4 }));
    if (kv <= 6)
      parts.push(
        svg(
          'text',
          { class: 'head-kv-text', x: middle, y: 58.5, 'text-anchor': 'middle' },
          fill(inspector.kvHead, { head: k }),
        ),
      );
  }
  return h(
    'figure',
    { class: 'heads' },
    h('figcaption', {}, label),
    svg('svg', { viewBox: `0 0 ${WIDTH} 66`, role: 'img', 'aria-label': label }, parts),
  );
}
