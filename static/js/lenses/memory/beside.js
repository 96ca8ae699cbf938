/** The cache compared with the pool, one full context and the weights, as bars on one scale. */
import { h, replace } from '../../ui/dom.js';
import { bytes, count, fill } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { crossingTokens, fullContext, tokenBytes } from './formula.js';
/** @import { Header } from '../../core/types.d.ts' */
/** @import { MemoryAt } from './series.js' */

const t = texts.memory.beside;

export class MemoryBeside {
  shown = '';

  constructor() {
    this.list = h('dl', { class: 'memory-bars' });
    this.note = h('p', { class: 'small-note memory-notes' });
    this.root = h(
      'section',
      { class: 'memory-part memory-beside', 'aria-label': t.title },
      h('h2', { class: 'note memory-title' }, t.title),
      this.list,
      this.note,
    );
  }

  /** @param {Header} header @param {MemoryAt} at @param {number|null} crossing the step at which the cache passed the weights */
  show(header, at, crossing) {
    const perToken = tokenBytes(header);
    this.root.hidden = perToken === 0;
    const key = `${perToken}/${header.model.weight_bytes}/${header.pool.num_blocks}/${at.held}/${crossing}`;
    if (perToken === 0 || key === this.shown) return;
    this.shown = key;
    const pool = header.pool.num_blocks * header.pool.block_size;
    const full = fullContext(header);
    const rows = [
      { name: t.now, value: at.held * perToken, kind: 'now' },
      { name: t.pool, value: pool * perToken, kind: 'pool' },
      ...(full ? [{ name: fill(t.full, { tokens: count(full.tokens) }), value: full.bytes, kind: 'full' }] : []),
      ...(header.model.weight_bytes > 0
        ? [{ name: t.weights, value: header.model.weight_bytes, kind: 'weights' }]
        : []),
    ];
    const most = Math.max(...rows.map((row) => row.value), 1);
    replace(
      this.list,
      rows.map(({ name, value, kind }) =>
        h(
          'div',
          { class: 'memory-bar-row' },
          h('dt', {}, name),
          h(
            'dd',
            {},
            h(
              'span',
              { class: 'memory-track', 'aria-hidden': 'true' },
              h('span', {
                class: `memory-length memory-length-${value > 0 ? kind : 'none'}`,
                style: { width: `${(100 * value) / most}%` },
              }),
            ),
            h('b', {}, bytes(value)),
          ),
        ),
      ),
    );
    replace(this.note, noteOf(header, crossing, pool));
  }
}

/** The point where the cache outweighs the weights.
 * @param {Header} header @param {number|null} crossing @param {number} pool tokens @returns {string} */
function noteOf(header, crossing, pool) {
  if (crossing !== null) return fill(t.crossed, { step: crossing });
  const tokens = crossingTokens(header);
  if (tokens === null) return '';
  return fill(tokens > pool ? t.crossingPool : t.crossing, { tokens: count(tokens), pool: count(pool) });
}
