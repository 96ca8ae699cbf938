/** The three charts of the page `traces`: hit rate by capacity, hits over time, reuse distances. */
import { traces as t } from '../strings/traces.js';
import { count, fill } from '../ui/format.js';
import { Plot } from '../ui/plot.js';
import { cacheOf, leading, nameOf, named, rate } from './text.js';
/** @import { Job, Summary } from './api.js' */

/** The look of a policy: colour, dash and mark. @type {Record<string, {color: string, dash: string, symbol: string, width: number}>} */
const STYLE = {
  lru: { color: 'var(--ink)', dash: 'solid', symbol: 'circle', width: 3 },
  fifo: { color: 'var(--lane-1)', dash: 'dash', symbol: 'square', width: 2 },
  lfu: { color: 'var(--lane-2)', dash: 'dashdot', symbol: 'diamond', width: 2 },
  random: { color: 'var(--lane-3)', dash: 'dot', symbol: 'x', width: 2 },
  optimum: { color: 'var(--warn)', dash: 'longdash', symbol: 'triangle-up', width: 2 },
};
/** Ticks of an axis of shares, in the usual format. */
const SHARES = {
  tickmode: 'array',
  tickvals: [0, 0.2, 0.4, 0.6, 0.8, 1],
  ticktext: ['0 %', '20 %', '40 %', '60 %', '80 %', '100 %'],
};
const LEGEND = { orientation: 'h', x: 0, y: 1, yanchor: 'bottom' };
const TIMES = /** @type {[number, string][]} */ ([
  [7.2e6, t.axisTime],
  [1.2e5, t.axisTimeMinutes],
  [0, t.axisTimeSeconds],
]);
/** Charts narrower than this have fewer ticks, in px. */
const NARROW = 560;
/** A line below this height is where the number of the capacity would be. */
const LOW_RATE = 0.14;
const UNITS_MS = [3.6e6, 6e4, 1e3];

/** A position on a logarithmic axis, for shapes and ranges. @param {number} n */
const log = (n) => Math.log10(Math.max(n, 1));

export class Charts {
  /** @param {{curve: HTMLElement, course: HTMLElement, reuse: HTMLElement}} roots @param {(blocks: number) => void} choose */
  constructor(roots, choose) {
    this.curve = new Plot(roots.curve, {
      label: t.curve,
      file: 'kvviz-hit-rate',
      onPick: (blocks) => choose(Math.round(blocks)),
    });
    this.course = new Plot(roots.course, { label: t.course, file: 'kvviz-hits-over-time' });
    this.reuse = new Plot(roots.reuse, { label: t.reuse, file: 'kvviz-reuse-distances' });
  }

  /** @param {Job} job @param {string[]} policies that were asked for @param {number|null} capacity the chosen one */
  draw(job, policies, capacity) {
    if (!job.summary) return;
    const shown = policies.filter((policy) => job.curves[policy]);
    this.#curve(job, job.summary, shown, capacity);
    this.#course(
      job,
      job.summary,
      policies.filter((policy) => job.points[policy]),
    );
    this.#reuse(job.summary, capacity);
  }

  /** @param {Job} job @param {Summary} summary @param {string[]} policies @param {number|null} capacity */
  #curve(job, summary, policies, capacity) {
    const traces = policies.map((policy) => {
      const { color, dash, symbol, width } = STYLE[policy];
      const { blocks, hit_rate } = job.curves[policy];
      const mode = policy === 'lru' ? 'lines' : 'lines+markers';
      return {
        type: 'scatter',
        mode,
        name: nameOf(policy),
        x: blocks,
        y: hit_rate,
        line: { color, dash, width },
        marker: { color, symbol, size: 7 },
        customdata: hit_rate.map(rate),
        hovertemplate: '%{customdata}',
      };
    });
    const low = Math.min(...policies.flatMap((policy) => job.curves[policy].blocks[0]), summary.distinct_blocks);
    const range = [log(low) - 0.03, log(summary.distinct_blocks) + 0.06];
    const isLow = policies.some((policy) => (job.points[policy]?.hit_rate ?? 1) < LOW_RATE);
    const layout = {
      xaxis: {
        type: 'log',
        range,
        title: { text: t.axisBlocks },
        hoverformat: ',.0f',
        tickformat: ',~r',
        dtick: summary.distinct_blocks / low <= 10 ? undefined : this.curve.root.clientWidth < NARROW ? 1 : 'D2',
      },
      yaxis: { range: [0, 1], ...SHARES, title: { text: t.axisRate } },
      legend: LEGEND,
      margin: { t: 34, r: 18 },
      dragmode: false,
      ...mark(capacity, range, isLow ? 'top' : 'bottom'),
    };
    const rates = policies
      .filter((policy) => job.points[policy])
      .map((policy) => fill(t.rateOf, { policy: nameOf(policy), rate: rate(job.points[policy].hit_rate) }));
    this.curve.label = fill(t.curveLabel, {
      policies: named(policies),
      low: count(low),
      high: count(summary.distinct_blocks),
      blocks: capacity === null ? '' : cacheOf(capacity),
      rates: rates.join(', '),
    });
    const all = [...new Set(policies.flatMap((policy) => job.curves[policy].blocks))].sort((a, b) => a - b);
    this.curve.table({
      caption: t.curve,
      headers: [t.headers.blocks, ...policies.map(nameOf)],
      cell: (value, column) => (value === null ? '' : column === 0 ? count(Number(value)) : rate(Number(value))),
      rows: () =>
        all.map((blocks) => [
          blocks,
          ...policies.map((policy) => job.curves[policy].hit_rate[job.curves[policy].blocks.indexOf(blocks)] ?? null),
        ]),
    });
    void this.curve.draw(traces, layout);
  }

  /** @param {Job} job @param {Summary} summary @param {string[]} policies */
  #course(job, summary, policies) {
    const lead = leading(policies);
    const drawn = policies.filter((policy) => policy === lead || policy === 'optimum').reverse();
    const length = summary.last_timestamp - summary.first_timestamp;
    const unit = TIMES.findIndex(([least]) => length >= least);
    const hours = (/** @type {number} */ time) => (time - summary.first_timestamp) / UNITS_MS[unit];
    const traces = drawn.map((policy) => {
      const { color, dash } = STYLE[policy];
      const { course } = job.points[policy];
      const shares = course.map(([, tokens, hits]) => (tokens ? hits / tokens : 0));
      return {
        type: 'scatter',
        mode: 'lines',
        name: nameOf(policy),
        x: course.map(([time]) => hours(time)),
        y: shares,
        customdata: shares.map(rate),
        line: { color, dash, width: policy === lead ? 2 : 1.5 },
        hovertemplate: '%{customdata}',
      };
    });
    this.course.label = fill(t.courseLabel, { policies: named(drawn) });
    const points = lead ? job.points[lead].course : [];
    this.course.table({
      caption: t.course,
      headers: [t.headers.time, ...policies.map(nameOf)],
      cell: (value, column) => (column === 0 ? String(value) : rate(Number(value))),
      rows: () => points.map(([time], at) => [time, ...policies.map((policy) => share(job.points[policy].course[at]))]),
    });
    void this.course.draw(traces, {
      xaxis: { title: { text: TIMES[unit][1] }, hoverformat: '.2f', rangemode: 'tozero' },
      yaxis: { range: [0, 1.02], ...SHARES },
      legend: LEGEND,
      margin: { t: 30 },
      dragmode: false,
    });
  }

  /** @param {Summary} summary @param {number|null} capacity */
  #reuse(summary, capacity) {
    const counts = summary.reuse.slice(0, -1);
    const first = summary.reuse[summary.reuse.length - 1];
    const last = counts.reduce((found, n, at) => (n ? at : found), 0);
    const shown = counts.slice(0, last + 1);
    const edges = shown.map((_, power) => 2 ** (power - 1)).concat(2 ** last);
    const range = [Math.log10(0.5), log(Math.max(2 ** last, summary.distinct_blocks)) + 0.03];
    const trace = {
      type: 'scatter',
      mode: 'lines',
      name: t.axisReferences,
      x: edges,
      y: [...shown, shown[last]],
      line: { shape: 'hv', color: 'var(--ink)', width: 1.5 },
      fill: 'tozeroy',
      fillcolor: 'var(--ink)/0.18',
      text: shown.map((_, power) => fill(t.upTo, { n: count(2 ** power) })),
      hovertemplate: '%{text}: %{y:,}<extra></extra>',
    };
    this.reuse.label = fill(t.reuseLabel, { first: count(first), all: count(summary.references) });
    this.reuse.table({
      caption: t.reuse,
      headers: [t.headers.distance, t.headers.references],
      cell: (value, column) => (column === 1 ? count(Number(value)) : String(value)),
      rows: () => [
        ...shown.map((n, power) => [fill(t.upTo, { n: count(2 ** power) }), n]),
        [t.headers.requests, first],
      ],
    });
    void this.reuse.draw([trace], {
      xaxis: { type: 'log', range, title: { text: t.axisReuse }, tickformat: ',~r', dtick: 1 },
      yaxis: { rangemode: 'tozero', tickformat: ',~s' },
      hovermode: 'x',
      margin: { t: 30 },
      dragmode: false,
      ...mark(capacity, range, null),
    });
  }
}

/** @param {[number, number, number]|undefined} bin @returns {number|null} */
function share(bin) {
  return bin && bin[1] ? bin[2] / bin[1] : null;
}

/** A line at the chosen capacity, with its number at `side`.
 * @param {number|null} capacity @param {number[]} range of the axis @param {'top'|'bottom'|null} side null: no number */
function mark(capacity, range, side) {
  if (!capacity || log(capacity) > range[1]) return {};
  const late = log(capacity) > (range[0] + range[1]) / 2;
  return {
    shapes: [
      {
        type: 'line',
        xref: 'x',
        yref: 'paper',
        x0: capacity,
        x1: capacity,
        y0: 0,
        y1: 1,
        line: { color: 'var(--focus)', width: 1.5, dash: 'dot' },
      },
    ],
    annotations:
      side === null
        ? []
        : [
            {
              xref: 'x',
              yref: 'paper',
              x: log(capacity),
              y: side === 'top' ? 0.99 : 0.02,
              yanchor: side,
              xanchor: late ? 'right' : 'left',
              xshift: late ? -6 : 6,
              text: fill(t.chosen, { blocks: cacheOf(capacity) }),
              showarrow: false,
              font: { color: 'var(--ink)' },
              bgcolor: 'var(--ground)/0.8',
            },
          ],
  };
}
