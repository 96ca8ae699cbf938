/** The formula with this run's numbers, factor by factor. A factor that is hovered, focused or pressed highlights what it counts. */
import { h, replace, replaceButtons } from '../../ui/dom.js';
import { bytes, count, fill, plural } from '../../ui/format.js';
import { factorButton, joined } from '../../ui/formula.js';
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
    this.root = h(
      'section',
      { class: 'memory-part memory-formula', 'aria-label': t.label },
      h('h2', { class: 'note memory-title' }, t.title),
      this.token,
      this.held,
      this.notes,
    );
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
    replaceButtons(
      this.held,
      ...inToken,
      sign('('),
      this.#factor({ value: at.stored, name: t.tokens, light: 'tokens' }),
      sign(t.plus),
      this.#factor({ value: at.wasted, name: t.wasted, light: 'wasted' }),
      sign(')'),
      sign(t.equals),
      h(
        'strong',
        { class: 'memory-plain' },
        fill(t.held, { bytes: exact(at.held * perToken), blocks: plural(t.nBlocks, at.held / size), size }),
      ),
    );
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
    const parts = groups.map((group) => {
      const { common, sums, element } = factorsOf(header, group, t.names);
      return joined(
        [
          ...common.map((factor) => this.#factor(factor)),
          ...(sums.length > 0 ? [this.#sum(sums)] : []),
          ...element.map((factor) => this.#factor(factor)),
        ],
        times,
      );
    });
    replace(
      this.token,
      joined(parts, plus),
      sign(t.equals),
      h('strong', { class: 'memory-plain' }, fill(t.perToken, { bytes: exact(perToken) })),
    );
    this.token.classList.toggle('memory-several', several);
    replace(
      this.notes,
      notesOf(header).map((text) => h('p', {}, text)),
    );
  }

  /** @param {Factor[][]} sums */
  #sum(sums) {
    const inner = joined(
      sums.map((product) =>
        joined(
          product.map((factor) => this.#factor(factor)),
          times,
        ),
      ),
      plus,
    );
    return sums.length > 1 ? [sign('('), ...inner, sign(')')] : inner;
  }

  /** @param {Factor} factor @returns {HTMLElement} */
  #factor(factor) {
    const isPinned = () => this.pinned?.light === factor.light && this.pinned.name === factor.name;
    const press = (/** @type {HTMLElement} */ button) => {
      this.pinned = isPinned() ? null : factor;
      for (const other of this.root.querySelectorAll('.memory-factor'))
        other.setAttribute('aria-pressed', String(other === button && this.pinned !== null));
      this.onLight(this.pinned);
    };
    return factorButton(
      'memory-factor',
      { value: number(factor.value), label: factor.name, data: { light: factor.light }, pressed: isPinned() },
      () => this.onLight(factor),
      () => this.onLight(this.pinned),
      press,
    );
  }
}

const times = () => sign(t.times);
const plus = () => sign(t.plus);

/** Notes that the product alone doesn't show. @param {Header} header @returns {string[]} */
function notesOf(header) {
  const notes = [];
  const all = header.model.layers.length;
  const none = header.model.layers.filter((layer) => layer.cache === 'none').length;
  if (none > 0) notes.push(fill(t.none, { n: none, all }));
  const windows = windowsOf(header);
  if (windows.kind === 'all') notes.push(fill(t.windowsAll, { reach: count(windows.reach) }));
  if (windows.kind === 'some')
    notes.push(
      fill(t.windowsSome, {
        n: windows.num,
        reach: count(windows.reach),
        needed: bytes(fullContext(header)?.needed ?? 0),
      }),
    );
  if (header.lane && layerGroups(header).some((group) => group.form === 'stored')) {
    const { bytes: all, num_blocks: blocks, block_size: size } = header.pool;
    const beside = all - blocks * size * tokenBytes(header);
    notes.push(
      fill(t.codec, { title: header.lane.title }) +
        (beside >= 1 ? ` ${fill(t.codecBeside, { bytes: bytes(beside) })}` : ''),
    );
  }
  return notes;
}

/** 46,080 B, with 45 KiB after it. @param {number} value @returns {string} */
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
