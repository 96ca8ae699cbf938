/** The two charts of the bandwidth view: bytes read by one model, tokens per second at most of all. */
import { experiments } from '../../strings/experiments.js';
import { count, fill, makersBytes, thousands, three } from '../../ui/format.js';
import { roundBytes, roundCount } from './bandwidth-figures.js';
import { LogChart, beginnings } from './log-chart.js';

/**
 * What `GET api/bandwidth` answers; see kvviz/web/calculator_routes.py.
 * @typedef {{context: number, weight_bytes: number, cache_bytes: number, step_us: number, tokens_per_s: number}} StepBound
 * @typedef {{model_id: string, name: string, source: string, checked: string|null, stored_bytes: number, weight_bytes: number, is_mixture: boolean,
 *   bytes_per_token: number, max_context: number, crossing: number|null, capacity: number|null, points: StepBound[]}} ModelBound
 * @typedef {{card: {card_id: string, name: string, memory_bytes: number, bandwidth: number, source: string, checked: string}, cards: {card_id: string, name: string}[],
 *   can_measure: boolean, dtype: string, dtypes: string[], batch: number, max_batch: number, models: ModelBound[]}} Bandwidth
 */

/** A measured step. @typedef {{context: number, us: number}} Measured */

const t = experiments.bandwidth;
/** A crossing so many times beyond the model's limit is still drawn. */
const FAR = 32;
/** In charts narrower than this, in em, labels are names alone. */
const NARROW = 40;

/** @param {ModelBound} model @param {number} at index of the chosen point @param {{width: number, height: number, em: number}} size @returns {LogChart} */
export function readChart(model, at, { width, height, em }) {
  const { points, crossing, max_context: limit } = model;
  const [first, last, here] = [points[0], points[points.length - 1], points[at]];
  const beyond = crossing !== null && crossing > limit && crossing <= limit * FAR;
  const high = beyond ? crossing * 1.6 : limit;
  const lows = Math.min(first.cache_bytes, model.weight_bytes);
  const highs = Math.max(last.cache_bytes, model.weight_bytes);
  const chart = new LogChart({
    width, height, em, left: em * 4.2, xTitle: t.axisContext,
    title: fill(t.chart, { weights: makersBytes(model.weight_bytes), cache: makersBytes(here.cache_bytes), context: count(here.context) }),
    x: { low: first.context, high, label: thousands }, y: { low: 10 ** Math.floor(Math.log10(lows)), high: 10 ** Math.ceil(Math.log10(highs) + 0.12), label: roundBytes },
  });
  const weights = model.weight_bytes;
  if (beyond) chart.upright(limit, 'exp-limit');
  chart.upright(here.context, 'exp-here');
  chart.line([{ x: first.context, y: weights }, { x: limit, y: weights }], 'exp-line exp-weights');
  chart.line(points.map(({ context, cache_bytes: y }) => ({ x: context, y })), 'exp-line exp-cache');
  if (beyond) {
    chart.line([{ x: limit, y: weights }, { x: crossing, y: weights }], 'exp-line exp-weights exp-dashed');
    chart.line([{ x: limit, y: last.cache_bytes }, { x: crossing, y: weights }], 'exp-line exp-cache exp-dashed');
    chart.text({ x: limit, y: chart.y.low }, fill(t.limit, { n: count(limit) }), 'exp-note', { dx: -0.4, dy: -0.5, anchor: 'end' });
  }
  if (crossing !== null && (beyond || (crossing <= limit && crossing >= first.context))) {
    const point = { x: crossing, y: weights };
    chart.dot(point, 'exp-ring', 0.55);
    chart.text(point, fill(t.crossing, { n: count(crossing) }), 'exp-strong', { dx: 0.6, dy: -1.1, anchor: 'end' });
  }
  chart.text({ x: first.context, y: weights }, fill(t.weights, { bytes: makersBytes(weights) }), 'exp-label', { dx: 0.4, dy: 1.3 });
  chart.dot({ x: here.context, y: here.cache_bytes }, 'exp-dot');
  chart.dot({ x: here.context, y: weights }, 'exp-dot');
  cacheLabel(chart, here);
  return chart;
}

/** Right of the chosen point, below the rising line; where there is no room, left of it and below the line there. @param {LogChart} chart @param {StepBound} here */
function cacheLabel(chart, { context, cache_bytes: y }) {
  const text = fill(t.cache, { bytes: makersBytes(y) });
  const width = (text.length * 0.56 + 0.8) * chart.em;
  if (chart.px(context) + width < chart.box.right) {
    chart.text({ x: context, y }, text, 'exp-label', { dx: 0.6, dy: 1.2 });
    return;
  }
  const line = chart.py((y * chart.valueAt(chart.px(context) - width)) / context);
  const dy = Math.min(line + chart.em * 1.1, chart.box.bottom - chart.em * 0.4) - chart.py(y);
  chart.text({ x: context, y }, text, 'exp-label', { dx: -0.6, dy: dy / chart.em, anchor: 'end' });
}

/**
 * @param {Bandwidth} data @param {string} chosen id of a model @param {number} context @param {readonly Measured[]} measured
 * @param {{width: number, height: number, em: number}} size @returns {LogChart}
 */
export function speedChart(data, chosen, context, measured, { width, height, em }) {
  const all = data.models.flatMap(({ points }) => points);
  const speeds = [...all.map((point) => point.tokens_per_s), ...measured.map(({ us }) => (data.batch * 1e6) / us)];
  const chart = new LogChart({
    width, height, em, left: em * 3.6, title: fill(t.chartSpeed, { n: data.models.length }), xTitle: t.axisContext,
    x: { low: 2 ** Math.floor(Math.log2(Math.min(...all.map((point) => point.context), ...measured.map((one) => one.context)))), high: Math.max(...all.map((point) => point.context)), label: thousands },
    y: { low: 10 ** Math.floor(Math.log10(Math.min(...speeds))), high: 10 ** Math.ceil(Math.log10(Math.max(...speeds)) + 0.1), label: roundCount },
  });
  chart.upright(context, 'exp-here');
  const labels = data.models.map(({ name, points: [{ tokens_per_s: n }] }) => ({ y: chart.py(n), text: width < em * NARROW ? name : `${name} ${three(n)}` }));
  const starts = beginnings(labels, em);
  data.models.forEach((model, index) => {
    const strong = model.model_id === chosen;
    const name = `exp-line ${strong ? 'exp-chosen' : 'exp-other'}`;
    const fits = (/** @type {StepBound} */ point) => model.capacity === null || point.context <= model.capacity;
    const cut = model.points.filter(fits).length;
    const points = model.points.map((point) => ({ x: point.context, y: point.tokens_per_s }));
    chart.line(points.slice(0, cut), name);
    chart.line(points.slice(Math.max(0, cut - 1)), `${name} exp-dashed`);
    const start = model.points[0];
    chart.text({ x: start.context, y: start.tokens_per_s }, labels[index].text, strong ? 'exp-strong' : 'exp-label', { dx: starts[index], dy: -0.45 });
    if (model.crossing !== null && model.crossing <= model.max_context && model.crossing >= start.context) {
      const after = model.points.findIndex((point) => point.context >= /** @type {number} */ (model.crossing));
      const [a, b] = [model.points[Math.max(0, after - 1)], model.points[after]];
      const share = b.context === a.context ? 0 : (model.crossing - a.context) / (b.context - a.context);
      const us = a.step_us + share * (b.step_us - a.step_us);
      chart.dot({ x: model.crossing, y: (data.batch * 1e6) / us }, 'exp-ring', 0.45);
    }
    if (strong) {
      const here = model.points.find((point) => point.context === context);
      if (here) chart.dot({ x: context, y: here.tokens_per_s }, 'exp-dot');
    }
  });
  for (const one of measured) chart.dot({ x: one.context, y: (data.batch * 1e6) / one.us }, 'exp-measured', 0.22);
  return chart;
}
