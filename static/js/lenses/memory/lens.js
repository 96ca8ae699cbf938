/**
 * The memory lens: how much of the cache is held now, and the bytes of one more token; the bytes over steps, by
 * request; the formula; and the cache compared with the weights and a full context.
 */
import { h, replace } from '../../ui/dom.js';
import { bytes, count, fill } from '../../ui/format.js';
import { Plot } from '../../ui/plot.js';
import { texts } from '../shared/texts.js';
import { MemoryBeside } from './beside.js';
import { chartOf, numbersOf, partsOf } from './chart.js';
import { FormulaView } from './formula-view.js';
import { crossingTokens, fullContext, tokenBytes } from './formula.js';
import { MemoryModel } from './model.js';
import { MemoryNow, describeMemory } from './now.js';
import { TokenPicture } from './token.js';
/** @import { Ctx, Scene } from '../../core/types.d.ts' */
/** @import { Factor } from './formula.js' */

const t = texts.memory;
/** Minimum milliseconds between two drawings of the chart, or this multiple of one drawing's time. */
const CHART_MS = 160;
const CHART_SHARE = 4;
/** Tokens in the question about another model. */
const LONG_CONTEXT = 131072;

/** @type {import('../../core/types.d.ts').CreateLens} */
export function create(root, ctx) {
  return new MemoryLens(root, ctx);
}

class MemoryLens {
  position = 0;
  /** @type {import('./chart.js').Part[]} */
  parts = [];
  /** The version of the model from which the parts were built. */
  seen = -1;
  drawnAt = 0;
  /** Milliseconds of the last drawing. */
  cost = 0;
  /** What is on the chart. */
  drawn = '';
  timer = 0;
  /** @type {Plot|null} */
  plot = null;
  /** The model whose long context is mentioned. @type {import('../../core/types.d.ts').Header|null} */
  asked = null;
  /** @type {Factor|null} */
  factor = null;

  /** @param {HTMLElement} root @param {Ctx} ctx */
  constructor(root, ctx) {
    this.root = root;
    this.ctx = ctx;
    this.model = new MemoryModel(ctx.log);
    this.now = new MemoryNow();
    this.chart = h('div', { class: 'memory-chart' });
    this.empty = h('div', { class: 'column memory-empty', hidden: true });
    this.formula = new FormulaView((factor) => this.#light(factor));
    this.picture = new TokenPicture();
    this.beside = new MemoryBeside();
    this.whatIf = h('p', { class: 'note memory-what-if' });
    this.bottom = h('div', { class: 'cluster memory-bottom' }, this.formula.root, this.picture.root, this.beside.root);
    root.append(
      h(
        'div',
        { class: 'column memory-scroll', tabindex: '0', role: 'region', 'aria-label': t.label },
        this.now.root,
        this.empty,
        this.chart,
        this.bottom,
        this.whatIf,
      ),
    );
  }

  /** @param {Scene} scene */
  update(scene) {
    const { model, ctx } = this;
    const { header } = ctx.log;
    if (!header) return;
    model.advance();
    if (this.seen !== model.version) this.parts = partsOf(model.series);
    this.seen = model.version;
    this.position = scene.position;
    const at = model.series.at(scene.position);
    const before = model.series.at(scene.position - 1);
    const perToken = tokenBytes(header);
    this.now.show(header, this.parts, at, before, model.series.most(scene.position));
    this.formula.show(header, at);
    this.picture.root.hidden = perToken === 0;
    if (perToken > 0) this.picture.show(header);
    this.beside.show(header, at, this.#crossing());
    this.#whatIf(header);
    this.#emptyState(perToken);
    this.#chart();
  }

  /** The step at which the cache outweighs the weights. @returns {number|null} */
  #crossing() {
    const { header } = this.ctx.log;
    const perToken = header ? tokenBytes(header) : 0;
    return header && crossingTokens(header) !== null
      ? this.model.series.firstWith(header.model.weight_bytes / perToken)
      : null;
  }

  /** @param {import('../../core/types.d.ts').Header} header */
  #whatIf(header) {
    if (this.asked === header) return;
    this.asked = header;
    const long = fullContext(header, LONG_CONTEXT);
    const own = long ? [fill(t.whatIf.text, { bytes: bytes(long.bytes) }), ' '] : [];
    replace(
      this.whatIf,
      ...own,
      t.whatIf.ask,
      ' ',
      h('a', { href: t.whatIf.href }, t.whatIf.link),
      ' ',
      t.whatIf.day,
      ' ',
      h('a', { href: 'traces' }, t.whatIf.traces),
    );
  }

  /** Before the first write: what will fill the lens. @param {number} perToken */
  #emptyState(perToken) {
    const { header } = this.ctx.log;
    const isEmpty = !this.model.series.held.some((held) => held > 0);
    this.empty.hidden = !isEmpty;
    this.chart.hidden = isEmpty;
    if (!isEmpty || !header) return;
    const { block_size: size, num_blocks: blocks } = header.pool;
    const long =
      perToken > 0
        ? fill(t.empty.long, {
            bytes: bytes(perToken),
            size,
            capacity: bytes(blocks * size * perToken),
            tokens: count(blocks * size),
          })
        : fill(t.empty.longSlots, { size, capacity: count(blocks * size) });
    if (this.empty.textContent !== t.empty.title + long)
      replace(this.empty, h('p', { class: 'strong memory-empty-title' }, t.empty.title), h('p', {}, long));
  }

  /** The chart has its own rate: figures update with every step, but drawing the chart takes longer. */
  #chart() {
    if (this.chart.hidden) return;
    const wait = this.drawnAt + Math.max(CHART_MS, CHART_SHARE * this.cost) - performance.now();
    clearTimeout(this.timer);
    this.timer = 0;
    if (wait > 0) this.timer = setTimeout(() => this.#drawChart(), wait);
    else this.#drawChart();
  }

  #drawChart() {
    const { model, ctx, position } = this;
    const { header } = ctx.log;
    if (!header) return;
    const counts = this.factor?.light;
    const light = counts === 'tokens' ? 'stored' : counts === 'wasted' ? 'wasted' : null;
    const range = this.plot?.shown ?? null;
    const key = `${ctx.log.logId}/${model.version}/${position}/${light}/${range}/${ctx.palette.version}`;
    if (key === this.drawn) return;
    this.drawn = key;
    this.drawnAt = performance.now();
    const perToken = tokenBytes(header);
    const inBytes = perToken > 0;
    const unit = perToken || 1;
    const { num_blocks: blocks, block_size: size } = header.pool;
    const hosts = header.pool.num_host_blocks ?? 0;
    this.plot ??= new Plot(this.chart, { label: t.label, file: 'kvviz-memory', onZoom: () => this.#drawChart() });
    const { traces, layout } = chartOf({
      series: model.series,
      parts: this.parts,
      position,
      unit,
      inBytes,
      capacity: blocks * size * unit,
      weights: inBytes ? (header.model.weight_bytes ?? 0) : 0,
      crossing: this.#crossing(),
      hostBlocks: hosts * size * unit,
      range,
      light,
      size: ctx.palette.px('text-xs'),
    });
    this.plot.label = fill(t.chart.label, { what: inBytes ? t.chart.bytes : t.chart.slots, now: this.describe() });
    this.plot.table({
      caption: inBytes ? t.table.caption : t.table.captionSlots,
      ...numbersOf(model.series, this.parts, unit, hosts > 0),
      cell: (value) => (typeof value === 'number' ? count(value) : String(value)),
    });
    void this.#paint(this.plot, traces, layout);
  }

  /** @param {Plot} plot @param {object[]} traces @param {object} layout */
  async #paint(plot, traces, layout) {
    const isFirst = !plot.isReady;
    const from = performance.now();
    await plot.draw(traces, layout);
    if (!isFirst) this.cost = performance.now() - from;
  }

  /** @param {Factor|null} factor */
  #light(factor) {
    this.factor = factor;
    const at = this.model.series.at(this.position);
    this.picture.light(
      factor,
      this.now.words(
        factor?.light === 'wasted' ? at.wasted : at.stored,
        factor?.light === 'wasted' ? 'nSlots' : 'nTokens',
      ),
    );
    if (!this.chart.hidden) this.#drawChart();
  }

  draw() {}

  /** @returns {string} */
  describe() {
    const { header } = this.ctx.log;
    return header ? describeMemory(header, this.parts, this.model.series.at(this.position)) : '';
  }

  destroy() {
    clearTimeout(this.timer);
    this.plot?.destroy();
    this.root.replaceChildren();
  }
}
