/**
 * The batch lens: requests over engine steps, what each step spent of its budget, how full the pool was, and how long
 * each request waited for its tokens, with the cause of the longest wait.
 */
import { CanvasStack, SizeWatch, clamp } from '../../ui/canvas.js';
import { h, replace, setText } from '../../ui/dom.js';
import { fill, percent } from '../../ui/text.js';
import { Tip } from '../../ui/tip.js';
import { texts } from '../shared/texts.js';
import { BatchFrame } from './frame.js';
import { idleShare, latencyOf } from './latency.js';
import { batchLegend } from './legend.js';
import { BatchModel } from './model.js';
import { BatchRows, placesOf } from './rows.js';
import { cellText, describeBatch, fillBatchTable, latencyText, poolText, stepText } from './text.js';
/** @import { Ctx, Scene } from '../../core/types.d.ts' */
/** @import { BatchRequest } from './model.js' */

const t = texts.batch;
const TABLE_MS = 800;
const MAX_ROWS = 200;
/** Steps without anybody stepping the engine take this share of the time before it is said. */
const IDLE_SAID = 0.3;

/** @type {import('../../core/types.d.ts').CreateLens} */
export function create(root, ctx) {
  return new BatchLens(root, ctx);
}

class BatchLens {
  /** The step that the scene shows, or shows the end of. */
  step = 0;
  position = 0;
  playing = false;
  tableAt = 0;
  /** What the table was filled from. */
  told = '';
  /** Where the keyboard is. */
  cursor = { row: 0, step: 0 };
  /** @type {BatchRequest[]} */
  rows = [];

  /** @param {HTMLElement} root @param {Ctx} ctx */
  constructor(root, ctx) {
    this.root = root;
    this.ctx = ctx;
    this.model = new BatchModel(ctx.log);
    this.idleNote = h('span', { class: 'lens-note' });
    this.problem = h('span', { class: 'batch-problem', role: 'status' });
    this.add = h('button', { type: 'button', class: 'lens-choice lens-toggle', on: { click: () => ctx.ui.set({ drawerOpen: true, drawerAt: 'prompt' }) } }, t.add);
    this.head = h('div', { class: 'fine-note batch-head', 'aria-hidden': 'true' }, h('span', { class: 'batch-head-label' }, t.requests), h('span', { class: 'batch-head-first' }, t.first), h('span', { class: 'batch-head-rest' }, t.rest));
    this.rowBox = h('div', { class: 'batch-rows' });
    this.sticky = h('div', { class: 'batch-sticky' });
    this.hint = h('div', { class: 'cluster note batch-hint', hidden: true }, h('span', {}, t.alone), h('button', { type: 'button', class: 'lens-choice lens-toggle', on: { click: () => ctx.ui.set({ drawerOpen: true, drawerAt: 'scenarios' }) } }, t.scenarios));
    this.more = h('div', { class: 'small-note batch-more', 'aria-hidden': 'true', hidden: true });
    this.scroll = h('div', { class: 'lens-canvas batch-scroll', role: 'group', 'aria-label': t.label }, this.sticky, this.rowBox, this.hint, this.more);
    this.poolLabel = h('div', { class: 'cluster fine-note batch-chart-label' });
    this.budgetLabel = h('div', { class: 'cluster fine-note batch-chart-label' });
    this.hostLabel = h('div', { class: 'cluster fine-note batch-chart-label batch-chart-label-line' });
    this.now = h('div', { class: 'column small-note batch-now' });
    this.charts = h('div', { class: 'lens-canvas batch-charts' });
    this.stacks = { rows: new CanvasStack(this.sticky, ['rows', 'row-marks']), charts: new CanvasStack(this.charts, ['charts', 'chart-marks']) };
    this.charts.append(this.budgetLabel, this.poolLabel, this.hostLabel, this.now);
    this.option = h('div', { class: 'visually-hidden', role: 'option', id: 'batch-cell', 'aria-selected': 'false' });
    this.cursorBox = h('div', { class: 'lens-cursor', role: 'listbox', tabindex: 0, 'aria-label': t.cursor, 'aria-activedescendant': 'batch-cell' }, this.option);
    this.empty = h('div', { class: 'column lens-empty', hidden: true });
    this.body = h('div', { class: 'column batch-body' }, this.head, this.scroll, this.charts, this.cursorBox, this.empty);
    this.table = h('table', {});
    const bar = h('div', { class: 'cluster fine-note lens-bar' }, batchLegend(), h('div', { class: 'cluster lens-bar-end' }, this.problem, this.idleNote, this.add));
    root.append(bar, this.body, h('div', { class: 'visually-hidden' }, this.table));
    this.tip = new Tip(this.body);
    this.frame = new BatchFrame(this.model, ctx, this.stacks);
    this.list = new BatchRows(this.rowBox, ctx, (id) => this.#select(id), (message) => setText(this.problem, message));
    this.sizes = [new SizeWatch(this.scroll, () => ctx.ui.changes.emit('ui')), new SizeWatch(this.body, () => ctx.ui.changes.emit('ui'))];
    this.#listen();
  }

  #listen() {
    const { scroll, charts, cursorBox } = this;
    for (const box of [scroll, charts]) {
      box.addEventListener('pointermove', (event) => this.#point(event));
      box.addEventListener('pointerdown', (event) => this.#point(event));
      box.addEventListener('pointerleave', () => this.#leave());
      box.addEventListener('click', (event) => this.#click(event));
    }
    scroll.addEventListener('scroll', () => this.ctx.ui.changes.emit('ui'));
    cursorBox.addEventListener('keydown', (event) => this.#key(event));
    cursorBox.addEventListener('focus', () => this.#moveCursor(this.cursor.row, this.cursor.step || this.step));
    cursorBox.addEventListener('blur', () => {
      this.frame.focus = null;
      this.#leave();
    });
  }

  /** @param {Scene} scene */
  update(scene) {
    const { ctx, model } = this;
    const { header } = ctx.log;
    if (!header) return;
    model.advance();
    this.step = scene.step ? scene.step.step : scene.position;
    this.position = scene.position;
    this.playing = scene.step !== null;
    const all = [...model.requests.values()];
    this.rows = all.length > MAX_ROWS ? all.filter((request, index) => request.end === null || index >= all.length - MAX_ROWS).slice(-MAX_ROWS) : all;
    const numHost = header.pool.num_host_blocks ?? 0;
    const space = this.frame.layout({ width: this.scroll.clientWidth, height: this.sizes[1].height }, this.rows, numHost);
    const listens = header.capabilities.includes('commands');
    this.add.hidden = !listens;
    this.list.update(model, this.rows, space, listens);
    this.charts.style.height = `${space.chartsHeight}px`;
    this.root.classList.toggle('batch-wide', space.wide);
    for (const [name, value] of Object.entries(placesOf(space))) this.head.style.setProperty(name, value);
    this.frame.resize(this.scroll, space);
    this.#moreBelow(space.rowHeight);
    this.#labels(numHost);
    this.#emptyState();
    const now = performance.now();
    if (!ctx.timeline.moving || now - this.tableAt > TABLE_MS) {
      this.tableAt = now;
      this.#tell();
    }
  }

  /** How many rows are below what is seen, whole or cut. @param {number} rowHeight */
  #moreBelow(rowHeight) {
    const { scroll, more, rows } = this;
    const numSeen = Math.floor((scroll.scrollTop + scroll.clientHeight + rowHeight * 0.2) / Math.max(1, rowHeight));
    const numBelow = Math.max(0, rows.length - numSeen);
    more.hidden = numBelow === 0;
    if (numBelow > 0) setText(more, fill(t.moreBelow, { n: numBelow }));
  }

  /** @param {number} numHost */
  #labels(numHost) {
    const { space } = this.frame;
    const { log } = this.ctx;
    if (!space) return;
    const one = this.model.step(this.step);
    const numBlocks = log.header?.pool.num_blocks ?? 0;
    const place = (/** @type {HTMLElement} */ label, /** @type {{y: number, height: number}|null} */ chart) => {
      label.hidden = chart === null;
      if (!chart) return;
      label.style.top = `${space.wide ? chart.y - 2 : chart.y - Math.round(space.em * 1.5) - 1}px`;
      label.style.left = `${space.wide ? 8 : space.x}px`;
      label.style.width = `${space.wide ? space.label - 8 : space.width - 2 * space.x}px`;
    };
    place(this.budgetLabel, space.budget);
    place(this.poolLabel, space.pool);
    const budget = one && (one.budget === null ? String(one.numTokens) : fill(t.of, { n: one.numTokens, all: one.budget }));
    label(this.budgetLabel, t.tokens, budget, space.wide && one?.budget ? t.budgetDashed : '');
    label(this.poolLabel, t.pool, one && fill(t.of, { n: one.used, all: numBlocks }), one ? fill(t.cachedToo, { n: one.cached }) : '');
    place(this.hostLabel, space.wide ? space.host : null);
    label(this.hostLabel, t.host, one && fill(t.of, { n: one.host, all: numHost }), '');
    this.now.hidden = !space.latency;
    if (space.latency) {
      this.now.style.left = `${space.latency.x}px`;
      this.now.style.top = `${space.budget.y - 2}px`;
      this.now.style.width = `${space.width - space.latency.x - 8}px`;
    }
    replace(this.now, one ? [h('strong', {}, fill(t.step, { step: this.step })), h('span', {}, stepText(this.model, this.step))] : h('span', {}, this.model.steps.length > 0 ? t.before : ''));
    const share = idleShare(this.model);
    setText(this.idleNote, share > IDLE_SAID ? fill(t.idle, { percent: percent(share) }) : '');
    this.idleNote.title = t.idleHint;
  }

  #emptyState() {
    const { empty, ctx, rows } = this;
    const none = rows.length === 0;
    this.hint.hidden = rows.length !== 1;
    if (empty.hidden !== none) return;
    empty.hidden = !none;
    for (const part of [this.head, this.scroll, this.charts, this.cursorBox]) part.hidden = none;
    if (none) {
      replace(empty, h('p', { class: 'lens-empty-title' }, t.empty), h('p', {}, t.emptyLong), h('div', { class: 'cluster batch-empty-buttons' },
        h('button', { type: 'button', class: 'primary', on: { click: () => ctx.ui.set({ drawerOpen: true, drawerAt: 'scenarios' }) } }, t.scenarios),
        h('button', { type: 'button', class: 'secondary', on: { click: () => ctx.ui.set({ drawerOpen: true, drawerAt: 'prompt' }) } }, t.emptyAction)));
    }
  }

  #tell() {
    const told = `${this.model.version}:${this.step}:${this.rows.length}`;
    if (told !== this.told) fillBatchTable(this.table, this.model, this.rows, this.step);
    this.told = told;
    this.#cursorValue();
  }

  /** @param {Scene} scene @returns {string} */
  describe(scene) {
    const pool = this.ctx.log.header?.pool;
    this.#tell();
    return describeBatch(this.model, scene.step ? scene.step.step : scene.position, pool?.num_blocks ?? 0, pool?.num_host_blocks ?? 0);
  }

  /** @param {number} progress */
  draw(progress) {
    this.frame.draw(this.position + (this.playing ? progress : 0), this.step, this.scroll.scrollTop);
  }

  /** @param {MouseEvent} event @returns {{row: number, step: number|null, part: 'rows'|'latency'|'budget'|'pool'|null}} */
  #hit(event) {
    const box = /** @type {HTMLElement} */ (event.currentTarget);
    const area = box.getBoundingClientRect();
    return this.frame.hit(event.clientX - area.left, event.clientY - area.top, box === this.charts ? null : this.scroll.scrollTop);
  }

  /** @param {PointerEvent} event */
  #point(event) {
    const { row, step, part } = this.#hit(event);
    const over = /** @type {Element} */ (event.target).closest('button') !== null;
    const request = this.rows[row];
    const box = /** @type {HTMLElement} */ (event.currentTarget);
    box.classList.toggle('pointing', step !== null && !over);
    this.ctx.ui.hover(request ? { kind: 'request', request: request.id } : null);
    const pool = this.ctx.log.header?.pool;
    if (over || !pool) this.tip.hide();
    else if (part === 'latency' && request) this.tip.show(event, latencyText(latencyOf(this.model, request)));
    else if (step === null) this.tip.hide();
    else if (part === 'rows' && request) this.tip.show(event, cellText(this.model, request, step));
    else if (part === 'budget') this.tip.show(event, `${fill(t.step, { step })}: ${stepText(this.model, step)}`);
    else if (part === 'pool') this.tip.show(event, `${fill(t.step, { step })}: ${poolText(this.model, step, pool.num_blocks, pool.num_host_blocks ?? 0)}`);
    else this.tip.hide();
  }

  #leave() {
    this.ctx.ui.hover(null);
    this.tip.hide();
  }

  /** @param {MouseEvent} event */
  #click(event) {
    if (/** @type {Element} */ (event.target).closest('button')) return;
    const { row, step } = this.#hit(event);
    if (step === null) return;
    this.cursor = { row: Math.max(0, row), step };
    this.#go(step, this.rows[row] ?? null);
  }

  /** @param {number} step @param {BatchRequest|null} request */
  #go(step, request) {
    const { timeline } = this.ctx;
    timeline.pause();
    timeline.seek(step);
    if (request) this.#select(request.id);
  }

  /** @param {number} id */
  #select(id) {
    const { ui } = this.ctx;
    const { pinned } = ui.selection;
    if (pinned?.kind === 'request' && pinned.request === id) ui.set({ requestId: id });
    else ui.pin({ kind: 'request', request: id });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const { row, step } = this.cursor;
    /** @type {Record<string, [number, number]>} */
    const moves = { ArrowLeft: [row, step - 1], ArrowRight: [row, step + 1], ArrowUp: [row - 1, step], ArrowDown: [row + 1, step], Home: [row, 0], End: [row, Infinity] };
    if (event.key in moves) this.#moveCursor(...moves[event.key]);
    else if (event.key === 'Enter' && this.rows.length > 0) this.#go(step, this.rows[row] ?? null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {number} row @param {number} step */
  #moveCursor(row, step) {
    const { model, frame } = this;
    this.cursor = { row: clamp(row, 0, Math.max(0, this.rows.length - 1)), step: clamp(step, model.base + 1, Math.max(model.base + 1, model.headStep)) };
    const request = this.rows[this.cursor.row];
    frame.focus = this.cursor;
    const top = this.cursor.row * (frame.space?.rowHeight ?? 0);
    const bottom = top + (frame.space?.rowHeight ?? 0);
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    else if (bottom > this.scroll.scrollTop + this.scroll.clientHeight) this.scroll.scrollTop = bottom - this.scroll.clientHeight;
    this.#cursorValue();
    if (request) this.ctx.ui.hover({ kind: 'request', request: request.id });
    this.ctx.ui.changes.emit('ui');
  }

  #cursorValue() {
    const request = this.rows[this.cursor.row];
    const { pinned } = this.ctx.ui.selection;
    this.option.setAttribute('aria-selected', String(request !== undefined && pinned?.kind === 'request' && pinned.request === request.id && this.cursor.step === this.position));
    setText(this.option, request ? cellText(this.model, request, this.cursor.step || this.step) : t.empty);
  }

  destroy() {
    for (const size of this.sizes) size.disconnect();
    this.tip.remove();
    this.root.replaceChildren();
  }
}

/** @param {HTMLElement} element @param {string} name @param {string|null|undefined} value @param {string} note */
function label(element, name, value, note) {
  const text = `${name}|${value}|${note}`;
  if (element.dataset.text === text) return;
  element.dataset.text = text;
  replace(element, h('span', {}, name), value && h('strong', {}, value), note && h('span', {}, note));
}
