/**
 * One plotly chart as part of the page: themed, resized, zoomable by buttons, saved, and shown as a table.
 *
 * const plot = new Plot(root, { label: 'Bytes over steps', file: 'kvviz-memory' });
 * plot.table({ caption, headers: ['Step', 'Bytes'], rows: () => [[1, 46080]] });
 * plot.draw([{ type: 'scatter', x, y, line: { color: 'var(--k)' } }], { yaxis: { bytes: true, range: [0, capacity] } });
 *
 * Call `draw` whenever numbers change; the user's zoom stays. Colours are named as in CSS (`var(--k)`, `var(--k)/0.4`),
 * and texts are never parsed as tags. An axis with `bytes: true` and a `range` has ticks in KiB, MiB, GiB. Charts don't
 * animate, so reduced motion changes nothing.
 */
import { plotTexts as t } from '../strings/plot.js';
import { reasonOf } from './ask.js';
import { h, replace } from './dom.js';
import { Palette } from './palette.js';
import { loadPlotly } from './plot-load.js';
import { saveText, saveUrl, tableElement, toCsv, toJson } from './plot-table.js';
import { axesOf, byteTicks, fullLayout, themed } from './plot-theme.js';
/** @import { Numbers } from './plot-table.js' */
/** @import { Parts } from './plot-theme.js' */
/** @typedef {'png'|'svg'|'csv'|'json'} Format */
/**
 * `label`: description of the chart. `file`: name of saved files, without an extension. `onZoom`: called when the user
 * chooses another range, so that a long series can be redrawn with more points of `shown`. `onPick`: called for a
 * click in the chart, with its value on the horizontal axis.
 * @typedef {{label: string, file?: string, onZoom?: () => void, onPick?: (x: number) => void}} PlotOptions
 */

const CONFIG = {
  displayModeBar: false,
  displaylogo: false,
  showSendToCloud: false,
  plotlyServerURL: '',
  doubleClick: false,
  responsive: false,
  scrollZoom: false,
};
const ZOOM = 1.6;
const PNG_SCALE = 2;
const TICK_EM = 4;

export class Plot {
  /** @type {import('./plot-load.js').Plotly|null} */
  #plotly = null;
  /** @type {{traces: Parts[], layout: Parts}|null} */
  #drawn = null;
  /** The range the user zoomed to. @type {Record<string, [number, number]>} */
  #view = {};
  /** @type {Numbers} */
  #numbers = { caption: '', headers: [], rows: () => [] };
  #busy = false;
  #stale = false;
  #failed = false;
  #gone = false;
  /** @type {(() => void)[]} */
  #stops = [];

  /** @param {HTMLElement} root an element that the chart owns; its height is the chart's, controls and table are extra @param {PlotOptions} options */
  constructor(root, { label, file = 'kvviz-chart', onZoom = () => undefined, onPick = () => undefined }) {
    this.root = root;
    this.file = file;
    this.onZoom = onZoom;
    this.onPick = onPick;
    this.palette = new Palette();
    this.area = h('div', { class: 'plot-area', role: 'img', 'aria-label': label });
    this.message = h('p', { class: 'note plot-message', role: 'status' }, t.loading);
    this.controls = h(
      'div',
      { class: 'cluster plot-controls', role: 'group', 'aria-label': `${t.controls}: ${label}` },
      h(
        'span',
        { class: 'cluster plot-zoom' },
        this.#button(t.zoomIn, () => this.zoom(ZOOM)),
        this.#button(t.zoomOut, () => this.zoom(1 / ZOOM)),
        this.#button(t.reset, () => this.reset()),
      ),
      h('span', { class: 'small-note' }, t.export),
      /** @type {Format[]} */ (['png', 'svg', 'csv', 'json']).map((format) =>
        this.#button(t[format], () => void this.export(format), t.exportHint[format]),
      ),
    );
    this.body = h('div', { class: 'plot-numbers-body' });
    this.numbers = h(
      'details',
      { class: 'plot-numbers', on: { toggle: () => this.#showNumbers() } },
      h('summary', {}, t.numbers),
      this.body,
    );
    replace(root, this.message, this.area, this.controls, this.numbers);
    root.classList.add('plot');
    this.#watch();
  }

  /** @param {string} text @param {() => void} run @param {string} [title] */
  #button(text, run, title) {
    return h(
      'button',
      {
        type: 'button',
        class: 'small-button plot-button',
        'aria-label': title ?? null,
        title: title ?? null,
        on: { click: run },
      },
      text,
    );
  }

  /** Sizes, theme and print redraw it. */
  #watch() {
    const again = () => {
      this.palette.refresh();
      this.#redraw();
    };
    const sizes = new ResizeObserver(() => this.#redraw());
    sizes.observe(this.area);
    const looks = new MutationObserver(again);
    looks.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme', 'data-projector'] });
    for (const type of ['beforeprint', 'afterprint']) addEventListener(type, again);
    this.#stops = [
      () => sizes.disconnect(),
      () => looks.disconnect(),
      () => ['beforeprint', 'afterprint'].forEach((type) => removeEventListener(type, again)),
    ];
  }

  /** @param {string} label what the chart shows now, in words */
  set label(label) {
    if (this.area.getAttribute('aria-label') !== label) this.area.setAttribute('aria-label', label);
  }

  /** @param {Parts[]} traces @param {Parts} [layout] @returns {Promise<void>} resolves when it is on screen; failures are shown there */
  async draw(traces, layout = {}) {
    this.#drawn = { traces, layout };
    await this.#redraw();
  }

  /** The numbers of the chart, for the table, CSV and JSON. `rows` can be a function, called when they are needed.
   * @param {Numbers} numbers */
  table(numbers) {
    this.#numbers = numbers;
    this.#showNumbers();
  }

  #showNumbers() {
    if (this.numbers.open) replace(this.body, tableElement(this.#numbers));
  }

  async #redraw() {
    if (this.#busy) this.#stale = true;
    if (this.#busy || this.#failed || this.#gone || !this.#drawn) return;
    this.#busy = true;
    try {
      this.#plotly ??= await loadPlotly();
      do {
        this.#stale = false;
        if (!this.#gone) await this.#paint(this.#plotly);
      } while (this.#stale && !this.#gone);
    } catch (error) {
      this.#failed = true;
      const reason = reasonOf(error);
      this.message.hidden = false;
      replace(
        this.message,
        t.failed.replace('{reason}', reason),
        ' ',
        this.#button(t.again, () => this.#again()),
      );
    } finally {
      this.#busy = false;
    }
  }

  #again() {
    this.#failed = false;
    replace(this.message, t.loading);
    void this.#redraw();
  }

  /** @param {import('./plot-load.js').Plotly} plotly */
  async #paint(plotly) {
    const { clientWidth: width, clientHeight: height } = this.area;
    if (width === 0 || height === 0 || !this.#drawn) return;
    const first = !this.area.classList.contains('js-plotly-plot');
    await plotly.react(this.area, themed(this.#drawn.traces, this.palette), this.#layout(width, height), CONFIG);
    this.message.hidden = true;
    if (!first || this.#gone) return;
    const events = /** @type {any} */ (this.area);
    events.on('plotly_relayout', (/** @type {Parts} */ change) => this.#zoomed(change));
    events.on('plotly_doubleclick', () => this.reset());
    events.on('plotly_click', (/** @type {any} */ { points }) => points.length && this.onPick(points[0].x));
  }

  /** @param {number} width @param {number} height @returns {Parts} */
  #layout(width, height) {
    const layout = fullLayout(this.palette, this.#drawn?.layout ?? {});
    if (matchMedia('(pointer: coarse)').matches) layout.dragmode = false; // a finger scrolls the page; the buttons zoom
    for (const axis of axesOf(layout)) {
      const range = this.#view[axis];
      const { bytes, ...rest } = layout[axis];
      const [from, to] = rest.domain ?? [0, 1];
      const most = Math.max(2, Math.floor((height * (to - from)) / (this.palette.px('text-xs') * TICK_EM)));
      layout[axis] = range ? { ...rest, range, autorange: false } : rest;
      if (bytes && rest.range)
        Object.assign(layout[axis], { tickmode: 'array', ...byteTicks(...rangeOf(layout[axis].range), most) });
    }
    return themed({ ...layout, width, height }, this.palette);
  }

  /** A drag on the chart. @param {Parts} change */
  #zoomed(change) {
    for (const axis of axesOf(this.#layout(1, 1))) {
      const range = change[`${axis}.range`] ?? [change[`${axis}.range[0]`], change[`${axis}.range[1]`]];
      if (typeof range[0] === 'number' && typeof range[1] === 'number') this.#view[axis] = rangeOf(range);
    }
    this.#chosen();
  }

  /** The range of the horizontal axis that the user chose, or null for all of it. @returns {[number, number]|null} */
  get shown() {
    return this.#view.xaxis ?? null;
  }

  /** Whether plotly is loaded. Until then, a drawing waits for its script. */
  get isReady() {
    return this.#plotly !== null;
  }

  #chosen() {
    this.onZoom();
    void this.#redraw();
  }

  /** Along the horizontal axis, around its middle. @param {number} factor above 1: closer */
  zoom(factor) {
    const axis = /** @type {any} */ (this.area)._fullLayout?.xaxis;
    if (!axis || typeof axis.range[0] !== 'number') return;
    const [low, high] = axis.range;
    const middle = (low + high) / 2;
    const half = (high - low) / 2 / factor;
    this.#view.xaxis = [middle - half, middle + half];
    this.#chosen();
  }

  /** Resets the zoom. */
  reset() {
    this.#view = {};
    this.#chosen();
  }

  /** Saves it as a file. @param {Format} format */
  async export(format) {
    if (format === 'csv') return saveText(`${this.file}.csv`, toCsv(this.#numbers), 'text/csv');
    if (format === 'json') return saveText(`${this.file}.json`, toJson(this.#numbers), 'application/json');
    if (this.#failed || !this.#drawn) {
      this.message.hidden = false;
      return replace(this.message, t.notDrawn);
    }
    return saveUrl(`${this.file}.${format}`, await this.image(format));
  }

  /** The chart as a picture on the page's background, as a data URL. @param {'png'|'svg'} format @returns {Promise<string>} */
  async image(format) {
    const plotly = (this.#plotly ??= await loadPlotly());
    const { clientWidth: width, clientHeight: height } = this.area;
    const layout = { ...this.#layout(width, height), paper_bgcolor: this.palette.get('ground') };
    const data = themed(this.#drawn?.traces ?? [], this.palette);
    return plotly.toImage(
      { data, layout, config: CONFIG },
      { format, width, height, scale: format === 'png' ? PNG_SCALE : 1 },
    );
  }

  destroy() {
    this.#gone = true;
    for (const stop of this.#stops) stop();
    this.#plotly?.purge(this.area);
    this.root.replaceChildren();
  }
}

/** @param {readonly number[]} range @returns {[number, number]} low and high */
function rangeOf(range) {
  return [Math.min(range[0], range[1]), Math.max(range[0], range[1])];
}
