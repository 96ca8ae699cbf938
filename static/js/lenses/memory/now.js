/** Memory held at the cursor, its maximum, and the bytes per token: figures, a bar of the parts, and the parts in words. */
import { h, replace, setAttribute, setText } from '../../ui/dom.js';
import { bytes, count, fill, plural } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { tokenBytes } from './formula.js';
/** @import { Header } from '../../core/types.d.ts' */
/** @import { MemoryAt } from './series.js' */
/** @import { Part } from './chart.js' */

const t = texts.memory;

export class MemoryNow {
  shown = '';

  constructor() {
    this.held = h('span', { class: 'memory-key' });
    this.of = h('span', { class: 'memory-of' });
    this.rate = h('span', { class: 'memory-rate' });
    this.rateName = h('span', { class: 'memory-of' });
    this.bar = h('div', { class: 'memory-bar', 'aria-hidden': 'true' });
    this.legend = h('ul', { class: 'cluster memory-legend' });
    this.root = h(
      'div',
      { class: 'column memory-now' },
      h(
        'div',
        { class: 'cluster memory-figures' },
        h('p', { class: 'memory-figure' }, this.held, ' ', this.of),
        h('p', { class: 'memory-figure' }, this.rate, ' ', this.rateName),
      ),
      this.bar,
      this.legend,
    );
  }

  /** @param {Header} header @param {Part[]} parts @param {MemoryAt} at @param {MemoryAt} before @param {{held: number, step: number}} most so far */
  show(header, parts, at, before, most) {
    const { block_size: size, num_blocks: blocks } = header.pool;
    const perToken = tokenBytes(header);
    const values = parts.map((part) => part.slots(at));
    const key = JSON.stringify([
      at.step,
      at.held,
      before.held,
      most,
      at.host,
      perToken,
      blocks,
      size,
      parts.map((part) => part.id),
      values,
    ]);
    if (key === this.shown) return;
    this.shown = key;
    const capacity = blocks * size;
    setText(this.held, perToken ? bytes(at.held * perToken) : count(at.held));
    const numBlocks = fill(t.figures.blocks, { held: at.held / size, all: blocks });
    const passed =
      most.held > at.held ? ` · ${fill(t.figures.most, { most: amount(most.held, perToken), step: most.step })}` : '';
    setText(
      this.of,
      `${fill(perToken ? t.figures.held : t.figures.heldSlots, { capacity: amount(capacity, perToken) })} · ${numBlocks}${passed}`,
    );
    setText(this.rate, `+${perToken ? bytes(perToken) : '1'}`);
    const grew = at.held - before.held;
    const change =
      at.step === 0
        ? ''
        : ` · ${fill(grew === 0 ? t.figures.same : t.figures.grew, { step: at.step, delta: `${grew > 0 ? '+' : '−'}${amount(Math.abs(grew), perToken)}` })}`;
    setText(this.rateName, (perToken ? t.figures.rate : t.figures.rateSlots) + change);
    this.#bar(parts, values, capacity);
    replace(
      this.legend,
      parts.map((part, index) => item(part, values[index] > 0 ? amount(values[index], perToken) : null)),
      (header.pool.num_host_blocks ?? 0) > 0
        ? h(
            'li',
            { class: 'memory-item', title: t.partHints.host },
            h('span', { class: 'memory-swatch memory-swatch-host', 'aria-hidden': 'true' }),
            `${t.parts.host} `,
            h('b', {}, amount(at.host, perToken)),
          )
        : null,
    );
  }

  /** @param {Part[]} parts @param {number[]} values @param {number} capacity */
  #bar(parts, values, capacity) {
    if (this.bar.childElementCount !== parts.length)
      replace(
        this.bar,
        parts.map(() => h('span', {})),
      );
    parts.forEach((part, index) => {
      const element = /** @type {HTMLElement} */ (this.bar.children[index]);
      setAttribute(element, 'class', swatchClass(part));
      element.style.width = `${(100 * values[index]) / Math.max(1, capacity)}%`;
    });
  }

  /** @param {number} slots @param {'nTokens'|'nSlots'} what @returns {string} */
  words(slots, what) {
    return plural(t.picture[what], Math.round(slots));
  }
}

/** @param {Part} part @param {string|null} value null: nothing now, but the chart has some @returns {HTMLElement} */
function item(part, value) {
  const note = part.id in t.partNotes ? t.partNotes[/** @type {keyof typeof t.partNotes} */ (part.id)] : null;
  const hint = part.id in t.partHints ? t.partHints[/** @type {keyof typeof t.partHints} */ (part.id)] : null;
  return h(
    'li',
    { class: `memory-item${value === null ? ' memory-item-none' : ''}`, title: hint },
    h('span', { class: `memory-swatch ${swatchClass(part)}`, 'aria-hidden': 'true' }),
    part.name,
    value === null ? null : ' ',
    value === null ? null : h('b', {}, value),
    note ? h('span', { class: 'memory-note' }, note) : null,
  );
}

/** @param {Part} part @returns {string} */
function swatchClass({ color, pattern }) {
  const form =
    { '': 'solid', '/': 'rising', '\\': 'falling', x: 'crossed', '.': 'dotted', '+': 'squared', '-': 'lined' }[
      pattern
    ] ?? 'solid';
  return `memory-ink-${color} memory-form-${form}`;
}

/** @param {number} slots @param {number} perToken @returns {string} */
function amount(slots, perToken) {
  return perToken ? bytes(slots * perToken) : fill(t.slots, { n: count(slots) });
}

/** The picture in a sentence or two. @param {Header} header @param {Part[]} parts @param {MemoryAt} at @returns {string} */
export function describeMemory(header, parts, at) {
  const perToken = tokenBytes(header);
  const { block_size: size, num_blocks: blocks } = header.pool;
  const capacity = amount(blocks * size, perToken);
  const rate = perToken ? bytes(perToken) : t.figures.token;
  if (at.held === 0 && at.cached === 0) return fill(t.describeEmpty, { step: at.step, rate, capacity });
  const told = parts
    .filter((part) => part.slots(at) > 0)
    .map((part) => `${part.name} ${amount(part.slots(at), perToken)}`);
  return fill(t.describe, {
    held: amount(at.held, perToken),
    capacity,
    step: at.step,
    blocks: fill(t.figures.blocks, { held: at.held / size, all: blocks }),
    parts: told.join(', '),
    rate,
  });
}
