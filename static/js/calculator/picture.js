/** One token in the cache: layers from left to right, KV heads from top to bottom, K above V. A term highlights its part. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { replace, svg } from '../ui/dom.js';
import { count, fill } from '../ui/format.js';
/** @import { Group } from './types.d.ts' */

const WIDTH = 560;
const HEIGHT = 120;
const BETWEEN = 14;
/** At most this many heads are drawn. */
const MAX_ROWS = 32;
const NUMBERS_SHOWN = 16;
const ENTRY_WIDTH = 150;
const ROW_MAX = 24;

export class Picture {
  /** @type {Group[]} */
  #groups = [];
  /** @type {SVGElement[]} */
  #lit = [];
  /** Position of each group. @type {{x: number, y: number, width: number, height: number, column: number, row: number}[]} */
  #places = [];

  constructor() {
    this.element = svg('svg', {
      class: 'calc-picture',
      viewBox: `0 0 ${WIDTH} ${HEIGHT + 4}`,
      role: 'img',
      'aria-label': t.picture.label,
    });
  }

  /** @param {Group[]} groups */
  update(groups) {
    const text = groups
      .map((group) =>
        fill(group.type === 'mla_latent' ? t.picture.latent : t.picture.heads, {
          layers: count(group.layers),
          heads: count(group.kv_heads),
        }),
      )
      .join('; ');
    this.element.setAttribute('aria-label', `${t.picture.label} ${text}`);
    this.element.toggleAttribute('hidden', groups.length === 0);
    this.#groups = groups;
    const layers = groups.reduce((sum, group) => sum + group.layers, 0);
    const column = Math.min(16, (WIDTH - ENTRY_WIDTH - 30 - BETWEEN * (groups.length - 1)) / Math.max(1, layers));
    const most = Math.max(...groups.map((group) => Math.min(group.kv_heads, MAX_ROWS)));
    const row = Math.min(ROW_MAX, HEIGHT / most);
    let x = 1;
    this.#places = groups.map((group) => {
      const place = {
        x,
        y: 2,
        width: column * group.layers,
        height: row * Math.min(group.kv_heads, MAX_ROWS),
        column,
        row,
      };
      x += place.width + BETWEEN;
      return place;
    });
    replace(
      this.element,
      svg(
        'defs',
        {},
        groups.map((group, index) => this.#pattern(group, index)),
      ),
      groups.map((_, index) => this.#rect(this.#places[index], `calc-cells`, `url(#calc-cells-${index})`)),
      svg('g', { class: 'calc-lit' }),
    );
    this.#lit = [/** @type {SVGElement} */ (this.element.lastElementChild)];
  }

  /** One entry, repeated in its group. @param {Group} group @param {number} index */
  #pattern(group, index) {
    const { column, row, x, y } = this.#places[index];
    const gap = Math.min(1, column / 6, row / 6);
    const share = group.k_dim / (group.k_dim + group.v_dim);
    const height = row - gap;
    return svg(
      'pattern',
      { id: `calc-cells-${index}`, width: column, height: row, x, y, patternUnits: 'userSpaceOnUse' },
      svg('rect', { class: 'calc-cell-k', width: column - gap, height: height * share }),
      svg('rect', { class: 'calc-cell-v', y: height * share, width: column - gap, height: height * (1 - share) }),
    );
  }

  /** @param {{x: number, y: number, width: number, height: number}} place @param {string} className @param {string} [paint] */
  #rect({ x, y, width, height }, className, paint) {
    return svg('rect', { class: className, x, y, width: Math.max(1, width), height: Math.max(1, height), fill: paint });
  }

  /** @param {string|null} term @param {number|null} index of the group */
  light(term, index) {
    const [lit] = this.#lit;
    if (!lit) return;
    const at = index ?? 0;
    const place = this.#places[at];
    const group = this.#groups[at];
    if (!place || !group) return replace(lit);
    replace(lit, this.#entry(group, term), term !== null && this.#marks(place, term));
  }

  /** @param {{x: number, y: number, width: number, height: number, column: number, row: number}} place @param {string} term */
  #marks({ x, y, width, height, column, row }, term) {
    if (term === 'layers')
      return [this.#rect({ x, y, width, height }, 'calc-ring'), ...ticks(x, y + height + 1, column, width)];
    if (term === 'kv_heads') return this.#rect({ x, y, width: column, height }, 'calc-ring');
    if (term === 'bytes_per_token' || term === 'tokens' || term === 'batch')
      return this.#rect({ x, y, width, height }, 'calc-ring');
    return this.#rect({ x, y, width: column, height: row }, 'calc-ring');
  }

  /** One head's entry in one layer, enlarged: the vector of K above that of V, value by value.
   * @param {Group} group @param {string|null} term */
  #entry(group, term) {
    const last = this.#places[this.#places.length - 1];
    const x = Math.min(WIDTH - ENTRY_WIDTH, last.x + last.width + 2 * BETWEEN);
    const cell = ENTRY_WIDTH / NUMBERS_SHOWN;
    const one = term === 'element_bytes' || term === 'scales';
    const latent = group.type === 'mla_latent';
    const vectors = /** @type {const} */ ([
      ['k', latent ? t.picture.latentPart : 'K', group.k_dim, 22],
      ['v', latent ? t.picture.rotaryPart : 'V', group.v_dim, 68],
    ]);
    return svg(
      'g',
      {},
      vectors.map(([name, label, dim, y]) =>
        svg(
          'g',
          {},
          svg(
            'text',
            { class: `calc-entry-text calc-entry-${name}`, x, y: y - 5 },
            fill(t.picture.vector, { label, n: count(dim) }),
          ),
          Array.from({ length: NUMBERS_SHOWN }, (_, index) =>
            svg('rect', { class: `calc-cell-${name}`, x: x + index * cell, y, width: cell - 1, height: 18 }),
          ),
          (term === 'tensors' || term === 'head_dim' || term === 'entry' || term === 'vector_bytes') &&
            this.#rect({ x, y, width: ENTRY_WIDTH - 1, height: 18 }, 'calc-ring'),
          one && name === 'k' && this.#rect({ x, y, width: cell - 1, height: 18 }, 'calc-ring'),
        ),
      ),
    );
  }
}

/** A mark under every layer. @param {number} x @param {number} y @param {number} column @param {number} width */
function ticks(x, y, column, width) {
  const path = Array.from(
    { length: Math.round(width / column) },
    (_, index) => `M${(x + (index + 0.5) * column).toFixed(2)} ${y}v3`,
  ).join('');
  return [svg('path', { class: 'calc-ticks', d: path })];
}
