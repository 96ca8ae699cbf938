/** Three charts over the new tokens: KL of the lossy lanes, milliseconds per token, K/V projections so far. */
import { closedForms } from '../../core/lane-figures.js';
import { h, replace, setText } from '../../ui/dom.js';
import { count, duration, fill, small } from '../../ui/format.js';
import { Plot } from '../../ui/plot.js';
import { texts } from '../shared/texts.js';
import { laneMark } from './lane-mark.js';
import { drawLines } from './line-chart.js';
import { lossyLanes, series } from './model.js';
/** @import { Lane, Lanes } from './model.js' */

const t = texts.compare.charts;
/** Smaller distances are drawn on the lowest line. */
const KL_FLOOR = 1e-5;

const KINDS = {
  kl: { title: t.kl, log: KL_FLOOR, format: small },
  ms: { title: t.ms, format: (/** @type {number} */ value) => (value === 0 ? '0' : duration(value)) },
  work: { title: t.work, format: count },
};

export class CompareCharts {
  constructor() {
    const plot = (/** @type {keyof typeof KINDS} */ name) =>
      new Plot(h('div', { class: 'compare-plot' }), { label: KINDS[name].title, file: `kvviz-lanes-${name}` });
    this.kl = plot('kl');
    this.ms = plot('ms');
    this.work = plot('work');
    this.none = h('p', { class: 'fine-note compare-note', hidden: true }, t.klNone);
    this.workNote = h('p', { class: 'fine-note compare-note' });
    this.legend = h('div', { class: 'cluster small-note compare-legend' });
    this.klNote = h('p', { class: 'fine-note compare-note' }, fill(t.klNote, { floor: small(KL_FLOOR) }));
    this.root = h(
      'div',
      { class: 'compare-charts' },
      this.legend,
      h('figure', {}, h('figcaption', {}, t.kl), this.none, this.kl.root, this.klNote),
      h('figure', {}, h('figcaption', {}, t.ms), this.ms.root, h('p', { class: 'fine-note compare-note' }, t.msNote)),
      h('figure', {}, h('figcaption', {}, t.work), this.work.root, this.workNote),
    );
    this.key = '';
  }

  /** @param {Lanes} lanes */
  update(lanes) {
    const lossy = lossyLanes(lanes);
    if (lanes.key !== this.key) {
      this.key = lanes.key;
      replace(
        this.legend,
        lanes.lanes.map((lane) => h('span', { class: 'lens-key' }, laneMark(lane.index), lane.header.spec)),
      );
    }
    this.none.hidden = lossy.length > 0;
    this.klNote.hidden = lossy.length === 0;
    this.kl.root.hidden = lossy.length === 0;
    const name = (/** @type {Lane} */ lane) => lane.header.spec;
    const from = (
      /** @type {readonly Lane[]} */ list,
      /** @type {string} */ what,
      /** @type {(one: import('../../core/events.d.ts').LaneMeasured) => number} */ value,
      /** @type {number} */ first,
    ) => list.map((lane) => ({ lane: lane.index, name: name(lane), first, values: series(lane, what, value, first) }));
    const { request, planned, count: numNew } = lanes;
    if (lossy.length > 0)
      drawLines(
        this.kl,
        KINDS.kl,
        from(lossy, 'kl', (one) => one.kl, 0),
        planned,
      );
    drawLines(
      this.ms,
      KINDS.ms,
      from(lanes.lanes, 'ms', (one) => one.step_us / 1000, 1),
      planned,
    );
    const work = from(lanes.lanes, 'work', (one) => one.num_projections, 0);
    drawLines(
      this.work,
      KINDS.work,
      work.map((line) => ({ ...line, note: formOf(line, request?.promptLength ?? 0, numNew) })),
      planned,
    );
    const forms = closedForms(request?.promptLength ?? 0, numNew);
    setText(
      this.workNote,
      fill(t.workNote, {
        p: count(request?.promptLength ?? 0),
        n: count(numNew),
        cached: count(forms.cached),
        none: count(forms.none),
      }),
    );
  }

  destroy() {
    for (const plot of [this.kl, this.ms, this.work]) plot.destroy();
  }
}

/** The closed form that a line follows, if any.
 * @param {{values: readonly number[]}} line @param {number} prompt @param {number} numNew @returns {string} */
function formOf({ values }, prompt, numNew) {
  const last = values[values.length - 1];
  const { cached, none } = closedForms(prompt, numNew);
  if (numNew < 2 || cached === none) return '';
  return last === cached ? t.workCached : last === none ? t.workNone : '';
}
