/** The two charts of the bandwidth view for plotly: bytes read by one model, and the maximum tokens per second of all models. */
import { experiments } from '../../strings/experiments.js';
import { count, fill, makersBytes, thousands, three } from '../../ui/format.js';
import { roundBytes, roundCount } from './bandwidth-figures.js';

/** The response of `GET api/bandwidth`; see kvviz/web/calculator_routes.py.
 * @typedef {{context: number, weight_bytes: number, cache_bytes: number, step_us: number, tokens_per_s: number}} StepBound
 * @typedef {{model_id: string, name: string, source: string, checked: string|null, stored_bytes: number, weight_bytes: number, is_mixture: boolean,
 *   bytes_per_token: number, max_context: number, crossing: number|null, capacity: number|null, points: StepBound[]}} ModelBound
 * @typedef {{card: {card_id: string, name: string, memory_bytes: number, bandwidth: number, source: string, checked: string}, cards: {card_id: string, name: string}[],
 *   can_measure: boolean, dtype: string, dtypes: string[], batch: number, max_batch: number, models: ModelBound[]}} Bandwidth */
/** A measured step. @typedef {{context: number, us: number}} Measured */
/** @typedef {{label: string, traces: Record<string, any>[], layout: Record<string, any>}} Chart */

const t = experiments.bandwidth;
/** A crossing up to this many times beyond the model's limit is still drawn. */
const FAR = 32;
/** Width of a tick on the horizontal axis, in px. */
const TICK = 46;
const FORMS = ['circle', 'square', 'diamond', 'triangle-up'];

/** @param {ModelBound} model @param {number} at index of the chosen point @param {number} width in px @returns {Chart} */
export function readChart(model, at, width) {
  const { points, crossing, max_context: limit, weight_bytes: weights } = model;
  const [first, last, here] = [points[0], points[points.length - 1], points[at]];
  const beyond = crossing !== null && crossing > limit && crossing <= limit * FAR;
  const x = points.map((point) => point.context);
  const [grey, ink] = ['var(--line-strong)', 'var(--ink)'];
  const ahead = { dash: 'dot', showlegend: false, hoverinfo: 'skip' };
  const traces = [
    lineOf(
      fill(t.weights, { bytes: makersBytes(weights) }),
      x,
      x.map(() => weights),
      grey,
      { said: makersBytes },
    ),
    lineOf(
      fill(t.cache, { bytes: makersBytes(here.cache_bytes) }),
      x,
      points.map((point) => point.cache_bytes),
      ink,
      { said: makersBytes },
    ),
  ];
  if (beyond)
    traces.push(
      lineOf('', [limit, crossing], [weights, weights], grey, ahead),
      lineOf('', [limit, crossing], [last.cache_bytes, weights], ink, ahead),
    );
  traces.push(dotsOf([here.context, here.context], [weights, here.cache_bytes], { size: 8, color: ink }));
  /** @type {Record<string, any>[]} */
  const annotations = beyond
    ? [
        {
          x: Math.log10(limit),
          y: 0,
          yref: 'paper',
          xanchor: 'right',
          yanchor: 'bottom',
          font: { color: 'var(--ink-3)' },
          text: fill(t.limit, { n: count(limit) }),
        },
      ]
    : [];
  if (crossing !== null && (beyond || (crossing <= limit && crossing >= first.context))) {
    traces.push({ ...dotsOf([crossing], [weights], RING), meta: 'crossing' });
    annotations.push({
      x: Math.log10(crossing),
      y: Math.log10(weights),
      xanchor: anchorAt(
        Math.log(crossing / first.context) / Math.log((beyond ? crossing * 1.6 : limit) / first.context),
      ),
      yanchor: 'bottom',
      yshift: 8,
      text: fill(t.crossing, { n: count(crossing) }),
    });
  }
  const low = 10 ** Math.floor(Math.log10(Math.min(first.cache_bytes, weights)));
  const highs = Math.max(last.cache_bytes, weights);
  return {
    label: fill(t.chart, {
      weights: makersBytes(weights),
      cache: makersBytes(here.cache_bytes),
      context: count(here.context),
    }),
    traces,
    layout: layoutOf(
      [first.context, beyond ? crossing * 1.6 : limit],
      [low, low * (highs / low) ** 1.25],
      roundBytes,
      width,
      {
        annotations: annotations.map((one) => ({ showarrow: false, ...one })),
        shapes: [upright(here.context), ...(beyond ? [upright(limit, 'dot')] : [])],
      },
    ),
  };
}

/** @param {Bandwidth} data @param {string} chosen id of a model @param {number} context @param {readonly Measured[]} measured @param {number} width in px @returns {Chart} */
export function speedChart(data, chosen, context, measured, width) {
  const steps = measured.map(({ context: x, us }) => ({ x, y: speedOf(data, us) }));
  const all = [
    ...data.models.flatMap(({ points }) => points.map((point) => ({ x: point.context, y: point.tokens_per_s }))),
    ...steps,
  ];
  const traces = data.models.flatMap(({ model_id, name, points, capacity, crossing, max_context: limit }, index) => {
    const strong = model_id === chosen;
    const color = strong ? 'var(--ink)' : `var(--lane-${index % FORMS.length})`;
    const here = points.find((point) => point.context === context); // the context of the figures above
    const cut = points.filter((point) => capacity === null || point.context <= capacity).length;
    /** @type {(part: StepBound[], more: Record<string, any>) => Record<string, any>} */
    const line = (part, more) => ({
      ...lineOf(
        here ? `${name} ${three(here.tokens_per_s)}` : name,
        part.map((point) => point.context),
        part.map((point) => point.tokens_per_s),
        color,
        { said: three, width: strong ? 3 : 2, ...more },
      ),
      mode: 'lines+markers',
      marker: { color, symbol: FORMS[index % FORMS.length], size: 6 },
      legendgroup: model_id,
    });
    const found = cut > 0 ? [line(points.slice(0, cut), {})] : [];
    if (cut < points.length)
      found.push(
        line(points.slice(Math.max(0, cut - 1)), {
          dash: 'dot',
          showlegend: cut === 0,
          ...(cut > 0 && { hoverinfo: 'skip' }),
        }),
      );
    if (crossing !== null && crossing <= limit && crossing >= points[0].context) {
      const after = points.findIndex((point) => point.context >= crossing);
      const [a, b] = [points[Math.max(0, after - 1)], points[after]];
      const share = b.context === a.context ? 0 : (crossing - a.context) / (b.context - a.context);
      found.push(dotsOf([crossing], [speedOf(data, a.step_us + share * (b.step_us - a.step_us))], RING));
    }
    return found;
  });
  if (steps.length > 0)
    traces.push({
      ...dotsOf(
        steps.map((one) => one.x),
        steps.map((one) => one.y),
        { symbol: 'circle-open', size: 5, color: 'var(--warn)' },
      ),
      meta: 'measured',
    });
  const [xs, ys] = [all.map((one) => one.x), all.map((one) => one.y)];
  return {
    label: fill(t.chartSpeed, { n: data.models.length }),
    traces,
    layout: layoutOf(
      [2 ** Math.floor(Math.log2(Math.min(...xs))), Math.max(...xs)],
      [10 ** Math.floor(Math.log10(Math.min(...ys))), 10 ** Math.ceil(Math.log10(Math.max(...ys)) + 0.1)],
      roundCount,
      width,
      { shapes: [upright(context)] },
    ),
  };
}

const RING = { symbol: 'circle-open', size: 13, color: 'var(--ink)', line: { width: 2, color: 'var(--ink)' } };

/** The anchor of a text at a share of the width. @param {number} share */
function anchorAt(share) {
  return share < 0.3 ? 'left' : share > 0.7 ? 'right' : 'center';
}

/** Tokens per second of a step. @param {Bandwidth} data @param {number} us */
function speedOf(data, us) {
  return (data.batch * 1e6) / us;
}

/** @param {string} name @param {number[]} x @param {number[]} y @param {string} color @param {Record<string, any>} more @returns {Record<string, any>} */
function lineOf(name, x, y, color, { said = String, width = 2, dash = 'solid', ...more }) {
  return {
    type: 'scatter',
    mode: 'lines',
    name,
    x,
    y,
    line: { color, width, dash },
    customdata: y.map(said),
    hovertemplate: more.hoverinfo ? undefined : '%{customdata}',
    ...more,
  };
}

/** @param {number[]} x @param {number[]} y @param {Record<string, any>} marker @returns {Record<string, any>} */
function dotsOf(x, y, marker) {
  return { type: 'scatter', mode: 'markers', x, y, marker, showlegend: false, hoverinfo: 'skip' };
}

/** @param {number} x @param {string} [dash] */
function upright(x, dash = 'solid') {
  return {
    type: 'line',
    x0: x,
    x1: x,
    yref: 'paper',
    y0: 0,
    y1: 1,
    layer: 'below',
    line: { color: 'var(--line-strong)', width: 1, dash },
  };
}

/** Two logarithmic axes, with ticks at powers of two below and at powers of ten on the side.
 * @param {[number, number]} x @param {[number, number]} y @param {(value: number) => string} said of `y` @param {number} width @param {Record<string, any>} more */
function layoutOf(x, y, said, width, more) {
  const powers = (
    /** @type {number} */ base,
    /** @type {[number, number]} */ [low, high],
    /** @type {(value: number) => string} */ text,
    /** @type {number} */ most,
  ) => {
    const [first, last] = [
      Math.ceil(Math.log(low) / Math.log(base) - 1e-9),
      Math.floor(Math.log(high) / Math.log(base) + 1e-9),
    ];
    const pad = 0.03 * Math.log10(high / low);
    const stride = Math.ceil((last - first + 1) / most);
    const tickvals = Array.from(
      { length: Math.floor((last - first) / stride) + 1 },
      (_, i) => base ** (first + i * stride),
    );
    return {
      type: 'log',
      range: [Math.log10(low) - pad, Math.log10(high) + pad],
      tickmode: 'array',
      tickvals,
      ticktext: tickvals.map(text),
    };
  };
  return {
    xaxis: {
      ...powers(2, x, thousands, Math.max(2, width / TICK - 2)),
      title: { text: t.axisContext },
      showgrid: false,
      hoverformat: ',.0f',
    },
    yaxis: powers(10, y, said, 9),
    legend: { orientation: 'h', x: 0, y: 1, yanchor: 'bottom' },
    margin: { t: 24 },
    dragmode: false,
    ...more,
  };
}
