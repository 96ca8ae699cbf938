/** One token's bytes as a small picture: a column per layer, a row per KV head, K above V. Factors highlight what they count. */
import { h, replace, setAttribute, setText, svg } from '../../ui/dom.js';
import { bytes, count, fill } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { tokenBytes } from './formula.js';
/** @import { Header, LayerGeometry } from '../../core/types.d.ts' */
/** @import { Factor } from './formula.js' */
/** @typedef {'k'|'v'} Half */
/** @typedef {{rect: SVGRectElement, layer: number, head: number, half: Half}} Cell */

const t = texts.memory.picture;
/** More cells than this are drawn as one per layer and half. */
const MAX_CELLS = 3000;
const WIDTH = 10;
const HEIGHT = 7;
const GAP = 2;

export class TokenPicture {
  /** @type {Cell[]} */
  cells = [];
  /** @type {Header|null} */
  header = null;

  constructor() {
    this.picture = svg('svg', { class: 'memory-token', role: 'img', preserveAspectRatio: 'xMinYMid meet' });
    this.caption = h('p', { class: 'small-note memory-token-caption' });
    this.root = h(
      'div',
      { class: 'memory-part memory-picture' },
      h('h2', { class: 'note memory-title' }, t.title),
      this.picture,
      this.caption,
    );
  }

  /** @param {Header} header */
  show(header) {
    if (header === this.header) return;
    this.header = header;
    const { layers } = header.model;
    const numCells = layers.reduce((sum, layer) => sum + headsOf(layer, 'k') + headsOf(layer, 'v'), 0);
    const merged = numCells > MAX_CELLS;
    this.cells = layers.flatMap((layer, index) =>
      /** @type {Half[]} */ (['k', 'v']).flatMap((half) => {
        const heads = merged ? Math.min(1, headsOf(layer, half)) : headsOf(layer, half);
        const most = merged ? 1 : Math.max(...layers.map((each) => headsOf(each, 'k')));
        return Array.from({ length: heads }, (_, head) => ({
          layer: index,
          head,
          half,
          rect: svg('rect', {
            class: `memory-cell memory-cell-${half}`,
            x: index * (WIDTH + GAP),
            y: (half === 'k' ? 0 : most * (HEIGHT + GAP) + GAP * 2) + head * (HEIGHT + GAP),
            width: WIDTH,
            height: HEIGHT,
            rx: 1,
          }),
        }));
      }),
    );
    const most = merged ? 1 : Math.max(1, ...layers.map((layer) => headsOf(layer, 'k')));
    const least = merged ? 1 : Math.max(1, ...layers.map((layer) => headsOf(layer, 'v')));
    setAttribute(
      this.picture,
      'viewBox',
      `0 0 ${Math.max(1, layers.length) * (WIDTH + GAP) - GAP} ${(most + least) * (HEIGHT + GAP) + GAP}`,
    );
    replace(
      this.picture,
      this.cells.map((cell) => cell.rect),
    );
    this.light(null, '');
  }

  /** Highlights what a factor counts; null highlights all.
   * @param {Factor|null} factor @param {string} said about tokens, where it counts those */
  light(factor, said) {
    const { header } = this;
    if (!header) return;
    for (const cell of this.cells)
      setAttribute(cell.rect, 'data-dim', String(factor !== null && !lit(factor.light, cell)));
    const text = captionOf(header, factor, said);
    setText(this.caption, text);
    setAttribute(this.picture, 'aria-label', fill(t.label, { layers: header.model.layers.length, caption: text }));
  }
}

/** @param {import('./formula.js').Light} light @param {Cell} cell @returns {boolean} */
function lit(light, { layer, head, half }) {
  switch (light) {
    case 'pair':
      return layer === 0 && head === 0;
    case 'layers':
      return head === 0 && half === 'k';
    case 'heads':
      return layer === 0 && half === 'k';
    case 'dim':
    case 'element':
      return layer === 0 && head === 0 && half === 'k';
    case 'latent':
      return half === 'k';
    case 'rotary':
      return half === 'v';
    case 'stored':
      return layer === 0;
    case 'tokens':
      return true;
    case 'wasted':
      return false;
  }
}

/** @param {Header} header @param {Factor|null} factor @param {string} said @returns {string} */
function captionOf(header, factor, said) {
  const { layers, num_query_heads: q } = header.model;
  const [first] = layers;
  const values = { n: factor ? count(factor.value) : layers.length, q, bytes: bytes(tokenBytes(header)) };
  if (factor === null) return fill(first.cache === 'latent' ? t.allLatent : t.all, values);
  if (factor.light === 'tokens' || factor.light === 'wasted') return fill(t[factor.light], { n: said });
  if (factor.light === 'pair')
    return fill(t.pair, { bytes: bytes(first.bytes_per_token / Math.max(1, headsOf(first, 'k'))) });
  return fill(t[factor.light], { ...values, bytes: bytes(first.bytes_per_token) });
}

/** @param {LayerGeometry} layer @param {Half} half @returns {number} */
function headsOf(layer, half) {
  return layer.cache === 'none' ? 0 : ((half === 'k' ? layer.key_shape : layer.value_shape)?.[0] ?? 0);
}
