/**
 * The batch lens: requests over engine steps, each step's use of the budget and the pool, and how long each request
 * waited for its tokens, with the cause of the longest wait.
 */
import { CanvasStack, clamp } from '../../ui/canvas.js';
import { h, replace, setText } from '../../ui/dom.js';
import { fill, percent } from '../../ui/format.js';
import { LensShell } from '../shared/lens-shell.js';
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
const MAX_ROWS = 200;
/** Idle time between steps is reported from this share on. */
const IDLE_SAID = 0.3;

/** @type {import('../../core/types.d.ts').CreateLens} */
export function create(root, ctx) {
  return new BatchLens(root, ctx);
}

class BatchLens extends LensShell {
  /** The step that the scene plays or has just finished. */
  step = 0;
  position = 0;
  playing = false;
  /** What the table was built from. */
  told = '';
  /** Place of the keyboard cursor. */
  place = { row: 0, step: 0 };
  /** @type {BatchRequest[]} */
  rows = [];

  /** @param {HTMLElement} root @param {Ctx} ctx */
  constructor(root, ctx) {
    super(root, ctx, h('div', { class: 'column batch-body' }), {
      cursor: t.cursor,
      option: 'batch-cell',
      pages: false,
    });
    this.model = new BatchModel(ctx.log);
    this.idleNote = h('span', { class: 'lens-note' });
    this.problem = h('span', { class: 'batch-problem', role: 'status' });
    this.add = this.drawerButton(t.add, 'prompt', 'lens-choice lens-toggle');
    this.head = h(
      'div',
      { class: 'fine-note batch-head', 'aria-hidden': 'true' },
      h('span', { class: 'batch-head-label' }, t.requests),
      h('span', { class: 'batch-head-first' }, t.first),
      h('span', { class: 'batch-head-rest' }, t.rest),
    );
    this.rowBox = h('div', { class: 'batch-rows' });
    this.sticky = h('div', { class: 'batch-sticky' });
    this.hint = h(
      'div',
      { class: 'cluster note batch-hint', hidden: true },
      h('span', {}, t.alone),
      this.drawerButton(t.scenarios, 'scenarios', 'lens-choice lens-toggle'),
    );
    this.more = h('div', { class: 'small-note batch-more', 'aria-hidden': 'true', hidden: true });
    this.scroll = h(
      'div',
      { class: 'lens-canvas batch-scroll', role: 'group', 'aria-label': t.label },
      this.sticky,
      this.rowBox,
      this.hint,
      this.more,
    );
    this.poolLabel = h('div', { class: 'cluster fine-note batch-chart-label' });
    this.budgetLabel = h('div', { class: 'cluster fine-note batch-chart-label' });
    this.hostLabel = h('div', { class: 'cluster fine-note batch-chart-label batch-chart-label-line' });
    this.now = h('div', { class: 'column small-note batch-now' });
    this.charts = h('div', { class: 'lens-canvas batch-charts' });
    this.stacks = {
      rows: new CanvasStack(this.sticky, ['rows', 'row-marks']),
      charts: new CanvasStack(this.charts, ['charts', 'chart-marks']),
    };
    this.charts.append(this.budgetLabel, this.poolLabel, this.hostLabel, this.now);
    this.box.prepend(this.head, this.scroll, this.charts);
    const bar = h(
      'div',
      { class: 'cluster fine-note lens-bar' },
      batchLegend(),
      h('div', { class: 'cluster lens-bar-end' }, this.problem, this.idleNote, this.add),
    );
    this.mount(bar, this.box);
    this.frame = new BatchFrame(this.model, ctx, this.stacks);
    this.list = new BatchRows(
      this.rowBox,
      ctx,
      (id) => this.#select(id),
      (message) => setText(this.problem, message),
    );
    this.sizes.push(this.watch(this.scroll));
    this.listen(this.scroll, this.charts);
    for (const box of [this.scroll, this.charts]) box.addEventListener('pointerdown', (event) => this.point(event));
    this.scroll.addEventListener('scroll', () => ctx.ui.changes.emit('ui'));
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
    this.rows =
      all.length > MAX_ROWS
        ? all.filter((request, index) => request.end === null || index >= all.length - MAX_ROWS).slice(-MAX_ROWS)
        : all;
    const numHost = header.pool.num_host_blocks ?? 0;
    const space = this.frame.layout({ width: this.scroll.clientWidth, height: this.size.height }, this.rows, numHost);
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
    this.tellInTime();
  }

  /** Number of rows below the visible part, also partly visible ones. @param {number} rowHeight */
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
    const budget =
      one && (one.budget === null ? String(one.numTokens) : fill(t.of, { n: one.numTokens, all: one.budget }));
    label(this.budgetLabel, t.tokens, budget, space.wide && one?.budget ? t.budgetDashed : '');
    label(
      this.poolLabel,
      t.pool,
      one && fill(t.of, { n: one.used, all: numBlocks }),
      one ? fill(t.cachedToo, { n: one.cached }) : '',
    );
    place(this.hostLabel, space.wide ? space.host : null);
    label(this.hostLabel, t.host, one && fill(t.of, { n: one.host, all: numHost }), '');
    this.now.hidden = !space.latency;
    if (space.latency) {
      this.now.style.left = `${space.latency.x}px`;
      this.now.style.top = `${space.budget.y - 2}px`;
      this.now.style.width = `${space.width - space.latency.x - 8}px`;
    }
    replace(
      this.now,
      one
        ? [h('strong', {}, fill(t.step, { step: this.step })), h('span', {}, stepText(this.model, this.step))]
        : h('span', {}, this.model.steps.length > 0 ? t.before : ''),
    );
    const share = idleShare(this.model);
    setText(this.idleNote, share > IDLE_SAID ? fill(t.idle, { percent: percent(share) }) : '');
    this.idleNote.title = t.idleHint;
  }

  #emptyState() {
    const { length } = this.rows;
    this.hint.hidden = length !== 1;
    const changed = this.showEmpty(length === 0 ? 'none' : '', () => [
      h('p', { class: 'lens-empty-title' }, t.empty),
      h('p', {}, t.emptyLong),
      h(
        'div',
        { class: 'cluster batch-empty-buttons' },
        this.drawerButton(t.scenarios, 'scenarios'),
        this.drawerButton(t.emptyAction, 'prompt', 'secondary'),
      ),
    ]);
    if (changed) for (const part of [this.head, this.scroll, this.charts, this.cursor]) part.hidden = length === 0;
  }

  /** @override */
  tell() {
    const told = `${this.model.version}:${this.step}:${this.rows.length}`;
    if (told !== this.told) fillBatchTable(this.table, this.model, this.rows, this.step);
    this.told = told;
    this.#cursorValue();
  }

  /** @param {Scene} scene @returns {string} */
  describe(scene) {
    const pool = this.ctx.log.header?.pool;
    this.tell();
    return describeBatch(
      this.model,
      scene.step ? scene.step.step : scene.position,
      pool?.num_blocks ?? 0,
      pool?.num_host_blocks ?? 0,
    );
  }

  /** @param {number} progress */
  draw(progress) {
    this.frame.draw(this.position + (this.playing ? progress : 0), this.step, this.scroll.scrollTop);
  }

  /** @param {MouseEvent} event @returns {{row: number, step: number|null, part: 'rows'|'latency'|'budget'|'pool'|null}} */
  #hit(event) {
    const box = /** @type {HTMLElement} */ (event.currentTarget);
    const { x, y } = this.at(event);
    return this.frame.hit(x, y, box === this.charts ? null : this.scroll.scrollTop);
  }

  /** @override @param {PointerEvent} event */
  point(event) {
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
    else if (part === 'pool')
      this.tip.show(
        event,
        `${fill(t.step, { step })}: ${poolText(this.model, step, pool.num_blocks, pool.num_host_blocks ?? 0)}`,
      );
    else this.tip.hide();
  }

  /** @override */
  blur() {
    this.frame.focus = null;
    this.leave();
  }

  /** @override @param {MouseEvent} event */
  click(event) {
    if (/** @type {Element} */ (event.target).closest('button')) return;
    const { row, step } = this.#hit(event);
    if (step === null) return;
    this.place = { row: Math.max(0, row), step };
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

  /** @override */
  enter() {
    if (this.rows.length === 0) return false;
    this.#go(this.place.step, this.rows[this.place.row] ?? null);
  }

  /** @override @param {number} columns steps @param {number} rows */
  move(columns, rows) {
    const { model, frame, place } = this;
    const first = model.base + 1;
    this.place = {
      row: clamp(place.row + rows, 0, Math.max(0, this.rows.length - 1)),
      step: clamp((place.step || this.step) + columns, first, Math.max(first, model.headStep)),
    };
    const request = this.rows[this.place.row];
    frame.focus = this.place;
    const top = this.place.row * (frame.space?.rowHeight ?? 0);
    const bottom = top + (frame.space?.rowHeight ?? 0);
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    else if (bottom > this.scroll.scrollTop + this.scroll.clientHeight)
      this.scroll.scrollTop = bottom - this.scroll.clientHeight;
    this.#cursorValue();
    if (request) this.ctx.ui.hover({ kind: 'request', request: request.id });
    this.ctx.ui.changes.emit('ui');
  }

  #cursorValue() {
    const request = this.rows[this.place.row];
    const { pinned } = this.ctx.ui.selection;
    this.option.setAttribute(
      'aria-selected',
      String(
        request !== undefined &&
          pinned?.kind === 'request' &&
          pinned.request === request.id &&
          this.place.step === this.position,
      ),
    );
    setText(this.option, request ? cellText(this.model, request, this.place.step || this.step) : t.empty);
  }
}

/** @param {HTMLElement} element @param {string} name @param {string|null|undefined} value @param {string} note */
function label(element, name, value, note) {
  const text = `${name}|${value}|${note}`;
  if (element.dataset.text === text) return;
  element.dataset.text = text;
  replace(element, h('span', {}, name), value && h('strong', {}, value), note && h('span', {}, note));
}
