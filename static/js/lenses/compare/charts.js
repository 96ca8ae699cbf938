/** Three charts over the new tokens: KL of the lossy lanes, milliseconds per token, K/V projections so far. */
import { closedForms } from '../../core/lane-figures.js';
import { h, replace, setText } from '../../ui/dom.js';
import { count, duration, fill, small } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { laneMark } from './lane-mark.js';
import { LineChart } from './line-chart.js';
import { lossyLanes, series } from './model.js';
/** @import { Ctx } from '../../core/types.d.ts' */
/** @import { Lane, Lanes } from './model.js' */

const t = texts.compare.charts;
/** Smaller distances stand on the lowest line. */
const KL_FLOOR = 1e-5;

export class CompareCharts {
  /** @param {Ctx} ctx */
  constructor(ctx) {
    const { palette } = ctx;
    this.kl = new LineChart(palette, t.kl, { log: KL_FLOOR, format: small });
    this.ms = new LineChart(palette, t.ms, { format: (value) => (value === 0 ? '0' : duration(value)) });
    this.work = new LineChart(palette, t.work, { format: count });
    this.none = h('p', { class: 'fine-note compare-note', hidden: true }, t.klNone);
    this.workNote = h('p', { class: 'fine-note compare-note' });
    this.legend = h('div', { class: 'cluster small-note compare-legend' });
    this.klNote = h('p', { class: 'fine-note compare-note' }, fill(t.klNote, { floor: small(KL_FLOOR) }));
    this.root = h('div', { class: 'compare-charts' }, this.legend,
      h('figure', {}, h('figcaption', {}, t.kl), this.none, this.kl.root, this.klNote),
      h('figure', {}, h('figcaption', {}, t.ms), this.ms.root, h('p', { class: 'fine-note compare-note' }, t.msNote)),
      h('figure', {}, h('figcaption', {}, t.work), this.work.root, this.workNote));
    this.key = '';
  }

  /** @param {Lanes} lanes @param {number} width */
  update(lanes, width) {
    const room = Math.max(...lanes.lanes.map((lane) => lane.header.spec.length)) + t.workNone.length + 3;
    for (const chart of [this.kl, this.ms, this.work]) {
      chart.width = Math.round(width);
      chart.room = room;
    }
    const lossy = lossyLanes(lanes);
    if (lanes.key !== this.key) {
      this.key = lanes.key;
      replace(this.legend, lanes.lanes.map((lane) => h('span', { class: 'lens-key' }, laneMark(lane.index), lane.header.spec)));
    }
    this.none.hidden = lossy.length > 0;
    this.klNote.hidden = lossy.length === 0;
    this.kl.root.classList.toggle('chart-hidden', lossy.length === 0);
    const name = (/** @type {Lane} */ lane) => lane.header.spec;
    const from = (/** @type {readonly Lane[]} */ list, /** @type {string} */ what, /** @type {(one: import('../../core/events.d.ts').LaneMeasured) => number} */ value, /** @type {number} */ first) => list.map((lane) => ({ lane: lane.index, name: name(lane), first, values: series(lane, what, value, first) }));
    const { request, planned, count: numNew } = lanes;
    if (lossy.length > 0) this.kl.update(from(lossy, 'kl', (one) => one.kl, 0), planned);
    this.ms.update(from(lanes.lanes, 'ms', (one) => one.step_us / 1000, 1), planned);
    this.work.update(from(lanes.lanes, 'work', (one) => one.num_projections, 0), planned, (one) => formOf(one, request?.promptLength ?? 0, numNew));
    const forms = closedForms(request?.promptLength ?? 0, numNew);
    setText(this.workNote, fill(t.workNote, { p: count(request?.promptLength ?? 0), n: count(numNew), cached: count(forms.cached), none: count(forms.none) }));
  }
}

/** Which closed form a line follows, if it does. @param {{values: readonly number[]}} line @param {number} prompt @param {number} numNew @returns {string} */
function formOf({ values }, prompt, numNew) {
  const last = values[values.length - 1];
  const { cached, none } = closedForms(prompt, numNew);
  if (numNew < 2 || cached === none) return '';
  return last === cached ? t.workCached : last === none ? t.workNone : '';
}
