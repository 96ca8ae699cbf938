/** The formula with this run's numbers, factor by factor; a factor under the pointer, in focus or pressed lights what it counts. */
import { plural } from '../../captions/parts.js';
import { h, replace } from '../../ui/dom.js';
import { bytes, count, fill } from '../../ui/text.js';
import { texts } from '../shared/texts.js';
import { factorsOf, layerGroups, tokenBytes, windowsOf, fullContext } from './formula.js';
/** @import { Header } from '../../core/types.d.ts' */
/** @import { Factor } from './formula.js' */
/** @import { MemoryAt } from './series.js' */

const t = texts.memory.formula;

export class FormulaView {
  /** @type {Factor|null} */
  pinned = null;
  /** @type {Header|null} */
  header = null;
  shown = '';

  /** @param {(factor: Factor|null) => void} onLight */
  constructor(onLight) {
    this.onLight = onLight;
    this.token = h('div', { class: 'cluster memory-line' });
    this.held = h('div', { class: 'cluster memory-line' });
    this.notes = h('div', { class: 'small-note memory-notes' });
    this.root = h('section', { class: 'memory-part memory-formula', 'aria-label': t.label }, h('h2', { class: 'note memory-title' }, t.title), this.token, this.held, this.notes);
  }

  /** @param {Header} header @param {MemoryAt} at */
  show(header, at) {
    if (header !== this.header) this.#showToken(header);
    this.header = header;
    const perToken = tokenBytes(header);
    const key = `${at.held}/${at.stored}`;
    if (key === this.shown || perToken === 0) return;
    this.shown = key;
    const { block_size: size } = header.pool;
    const inToken = [h('span', { class: 'memory-plain' }, `${number(perToken)} ${t.names.unit}`), sign(t.times)];
    const focused = this.held.contains(document.activeElement) ? [...this.held.querySelectorAll('button')].findIndex((button) => button === document.activeElement) : -1;
    replace(this.held, ...inToken, sign('('), this.#factor({ value: at.stored, name: t.tokens, light: 'tokens' }), sign(t.plus), this.#factor({ value: at.wasted, name: t.wasted, light: 'wasted' }), sign(')'), sign(t.equals),
      h('strong', { class: 'memory-plain' }, fill(t.held, { bytes: exact(at.held * perToken), blocks: plural(t.nBlocks, at.held / size), size })));
    this.held.querySelectorAll('button')[focused]?.focus();
  }

  /** @param {Header} header */
  #showToken(header) {
    this.shown = '';
    this.pinned = null;
    const perToken = tokenBytes(header);
    if (perToken === 0) {
      replace(this.token);
      replace(this.held);
      replace(this.notes, h('p', {}, t.noModel));
      return;
    }
    const groups = layerGroups(header).filter((group) => group.form !== 'none');
    const several = groups.length > 1;
    const parts = groups.flatMap((group, index) => {
      const { common, sums, element } = factorsOf(header, group, t.names);
      const products = [...common.map((factor) => [this.#factor(factor)]), ...(sums.length > 0 ? [this.#sum(sums)] : []), ...element.map((factor) => [this.#factor(factor)])];
      return [...(index > 0 ? [sign(t.plus)] : []), ...products.flatMap((product, i) => (i > 0 ? [sign(t.times), ...product] : product))];
    });
    replace(this.token, parts, sign(t.equals), h('strong', { class: 'memory-plain' }, fill(t.perToken, { bytes: exact(perToken) })));
    this.token.classList.toggle('memory-several', several);
    replace(this.notes, notesOf(header).map((text) => h('p', {}, text)));
  }

  /** @param {Factor[][]} sums @returns {HTMLElement[]} */
  #sum(sums) {
    const inner = sums.flatMap((product, index) => [...(index > 0 ? [sign(t.plus)] : []), ...product.flatMap((factor, i) => (i > 0 ? [sign(t.times), this.#factor(factor)] : [this.#factor(factor)]))]);
    return sums.length > 1 ? [sign('('), ...inner, sign(')')] : inner;
  }

  /** @param {Factor} factor @returns {HTMLElement} */
  #factor(factor) {
    const off = () => this.onLight(this.pinned);
    const on = () => this.onLight(factor);
    const press = () => {
      const same = this.pinned?.light === factor.light && this.pinned.name === factor.name;
      this.pinned = same ? null : factor;
      for (const other of this.root.querySelectorAll('.memory-factor')) other.setAttribute('aria-pressed', 'false');
      button.setAttribute('aria-pressed', String(!same));
      this.onLight(this.pinned);
    };
    const pressed = this.pinned?.light === factor.light && this.pinned.name === factor.name;
    const button = h('button', { type: 'button', class: 'memory-factor', 'aria-pressed': String(pressed), data: { light: factor.light }, on: { pointerenter: on, pointerleave: off, focus: on, blur: off, click: press } },
      h('span', { class: 'memory-factor-value' }, number(factor.value)), ' ', h('span', { class: 'small-note' }, factor.name));
    return button;
  }
}

/** What the product alone does not say. @param {Header} header @returns {string[]} */
function notesOf(header) {
  const notes = [];
  const all = header.model.layers.length;
  const none = header.model.layers.filter((layer) => layer.cache === 'none').length;
  if (none > 0) notes.push(fill(t.none, { n: none, all }));
  const windows = windowsOf(header);
  if (windows.kind === 'all') notes.push(fill(t.windowsAll, { reach: count(windows.reach) }));
  if (windows.kind === 'some') notes.push(fill(t.windowsSome, { n: windows.num, reach: count(windows.reach), needed: bytes(fullContext(header)?.needed ?? 0) }));
  if (header.lane && layerGroups(header).some((group) => group.form === 'stored')) {
    const { bytes: all, num_blocks: blocks, block_size: size } = header.pool;
    const beside = all - blocks * size * tokenBytes(header);
    notes.push(fill(t.codec, { title: header.lane.title }) + (beside >= 1 ? ` ${fill(t.codecBeside, { bytes: bytes(beside) })}` : ''));
  }
  return notes;
}

/** 46,080 B, and 45 KiB beside it. @param {number} value @returns {string} */
function exact(value) {
  const whole = `${number(value)} ${texts.memory.formula.names.unit}`;
  return value < 1024 ? whole : `${whole} (${bytes(value)})`;
}

/** 1,234 or 17.5. @param {number} value @returns {string} */
function number(value) {
  return Math.abs(value - Math.round(value)) < 1e-6 ? count(value) : String(Number(value.toFixed(2)));
}

/** @param {string} text @returns {HTMLElement} */
function sign(text) {
  return h('span', { class: 'memory-sign' }, text);
}
