/** The lanes of a run side by side, or the form that starts one. Everything is a function of the world at the cursor. */
import { latestRun } from '../../core/lane-figures.js';
import { SizeWatch } from '../../ui/canvas.js';
import { h, replace, setAttribute, setText } from '../../ui/dom.js';
import { texts } from '../shared/texts.js';
import { CompareCharts } from './charts.js';
import { CompareClaims } from './claims.js';
import { CompareErrors } from './errors.js';
import { CompareFigures } from './figures.js';
import { CompareKept } from './kept.js';
import { laneMark } from './lane-mark.js';
import { lanesAt } from './model.js';
import { CompareNeedle } from './needle.js';
import { CompareSetup } from './setup.js';
import { CompareSummary } from './summary.js';
import { CompareTape } from './tape.js';
import { describeLanes } from './text.js';
/** @import { Ctx, Scene, Dirty } from '../../core/types.d.ts' */
/** @import { Lanes } from './model.js' */

const t = texts.compare;
/** Below this width, the parts are stacked. */
const WIDE_EM = 62;
const TELL_MS = 200;

export class CompareLanes {
  /** The form is open although there are lanes. */
  changing = false;
  /** Two columns are side by side. */
  wide = false;
  /** @type {Lanes|null} */
  lanes = null;
  key = '';
  /** During fast playback, figures and charts update at this rate. */
  toldAt = -Infinity;
  timer = 0;

  /** @param {HTMLElement} root @param {Ctx} ctx @param {HTMLElement} bar where buttons go */
  constructor(root, ctx, bar) {
    this.root = root;
    this.ctx = ctx;
    this.change = h(
      'button',
      {
        type: 'button',
        class: 'lens-choice lens-toggle',
        hidden: true,
        'aria-expanded': 'false',
        on: { click: () => this.#toggle() },
      },
      t.change,
    );
    replace(bar, this.change);
    this.setup = new CompareSetup(ctx, () => {
      this.changing = false;
    });
    this.tape = new CompareTape(ctx);
    this.summary = new CompareSummary((lane, index) => this.tape.show(lane, index));
    this.figures = new CompareFigures(ctx);
    this.charts = new CompareCharts();
    this.errors = new CompareErrors(ctx);
    this.kept = new CompareKept();
    this.needle = new CompareNeedle();
    this.claims = new CompareClaims();
    this.lineUp = h('dl', { class: 'compare-lineup' });
    this.waiting = h('div', { class: 'compare-waiting', hidden: true }, h('p', {}, t.waiting), this.lineUp);
    this.columns = h(
      'div',
      { class: 'compare-columns' },
      h(
        'div',
        { class: 'column compare-column' },
        this.figures.root,
        this.kept.root,
        this.needle.root,
        this.errors.root,
        this.claims.root,
      ),
      h('div', { class: 'column compare-column' }, this.charts.root),
    );
    this.run = h('div', { class: 'compare-run' }, this.summary.root, this.tape.root, this.waiting, this.columns);
    this.scroll = h(
      'div',
      { class: 'compare-scroll', tabindex: '0', role: 'region', 'aria-label': t.label },
      this.setup.root,
      this.run,
    );
    root.append(this.scroll);
    this.size = new SizeWatch(this.scroll, () => ctx.ui.changes.emit('ui'));
  }

  #toggle() {
    this.changing = !this.changing;
    this.ctx.ui.changes.emit('ui');
  }

  /** @param {Scene} scene @param {Set<Dirty>} dirty */
  update(scene, dirty) {
    const { ctx } = this;
    const { header } = ctx.log;
    if (!header) return;
    const world = scene.before;
    const numLanes = header.lanes?.length ?? 0;
    const runs = numLanes > 1;
    if (!runs) this.changing = false;
    const form = !runs || this.changing;
    this.change.hidden = !runs || !header.capabilities.includes('commands');
    setText(this.change, this.changing ? t.keep : t.change);
    setAttribute(this.change, 'aria-expanded', String(this.changing));
    this.setup.root.hidden = !form;
    this.run.hidden = form;
    if (form) this.setup.update();
    if (form) return;
    const run = latestRun(world);
    this.lanes = lanesAt(
      header,
      world,
      run,
      run !== null && ctx.log.finished.has(run.requestId) ? (ctx.log.lastSampled.get(run.requestId) ?? null) : null,
    );
    const { width } = this.size;
    const key = `${ctx.log.logId}:${run?.requestId}:${this.lanes.planned}:${run?.counts.join()}:${world.seq}:${width}:${ctx.palette.version}:${ctx.ui.projector}`;
    const resized = dirty.has('theme') || dirty.has('size');
    if (key === this.key && !resized) return;
    this.key = key;
    this.wide = width >= WIDE_EM * ctx.palette.px('text-xs');
    this.scroll.classList.toggle('compare-wide', this.wide);
    this.#tell(width);
  }

  /** @param {number} width */
  #tell(width) {
    const { lanes, ctx } = this;
    if (!lanes) return;
    const measured = lanes.count > 0;
    this.waiting.hidden = measured;
    this.columns.hidden = !measured;
    this.tape.root.hidden = !measured;
    if (!measured) {
      this.summary.update(lanes);
      this.#lineUp(lanes);
      return;
    }
    this.tape.update(lanes, width);
    if (ctx.timeline.moving && performance.now() - this.toldAt < TELL_MS) {
      if (this.timer === 0) this.timer = setTimeout(() => this.#later(), TELL_MS);
      return;
    }
    this.toldAt = performance.now();
    this.summary.update(lanes);
    this.figures.update(lanes, ctx.log.sessionId);
    this.charts.update(lanes);
    this.kept.update(lanes, ctx.log.sessionId);
    this.errors.update(lanes);
    this.needle.update(lanes);
    this.claims.update(lanes);
  }

  /** Before the first token: a description of each lane. @param {Lanes} lanes */
  #lineUp({ lanes, key }) {
    if (this.lineUp.dataset.of === key) return;
    this.lineUp.dataset.of = key;
    replace(
      this.lineUp,
      lanes.flatMap(({ index, header }) => [
        h('dt', {}, laneMark(index), h('code', {}, header.spec)),
        h('dd', { dir: 'auto' }, header.about),
      ]),
    );
  }

  #later() {
    this.timer = 0;
    this.key = '';
    this.ctx.ui.changes.emit('ui');
  }

  draw() {
    this.tape.draw();
  }

  /** @returns {string} */
  describe() {
    if (!this.run.hidden && this.lanes) return describeLanes(this.lanes);
    const { header } = this.ctx.log;
    return header?.capabilities.includes('commands') && header.lane_choices ? t.describeSetup : t.describeNone;
  }

  destroy() {
    clearTimeout(this.timer);
    this.size.disconnect();
    this.tape.destroy();
    this.charts.destroy();
    this.root.replaceChildren();
  }
}
