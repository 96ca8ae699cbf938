/** Bytes by context or by batch, for up to four models, with the memory of the GPUs as a limit. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { h, setText } from '../ui/dom.js';
import { binary, count, fill, thousands } from '../ui/format.js';
import { byteText } from '../ui/plot-theme.js';
import { Plot } from '../ui/plot.js';
import { COLORS, DASHES, LETTERS } from './mark.js';
import { both } from './units.js';
/** @import { State } from './state.js' */
/** @import { Answer, Reply } from './types.d.ts' */
/** One model's line. `rest` is the weights and the overhead included in it.
 * @typedef {{index: number, name: string, x: number[], y: number[], rest: number}} Line */

const MAX_TICKS = 9;
const HEADROOM = 1.15;
const BYTE_POWER = 2;

/** The lines of the answer. @param {Reply[]} replies @param {State} state @returns {Line[]} */
function linesOf(replies, state) {
  const { over, weights } = state.view;
  return replies.flatMap(({ answer }, index) => {
    const model = answer?.models[0];
    if (!answer || !model) return [];
    const rest = weights ? (model.series.weight_bytes ?? 0) + answer.settings.overhead_bytes * answer.settings.gpus : 0;
    const points = over === 'context' ? model.series.over_context : model.series.over_batch;
    return [
      {
        index,
        name: model.name,
        x: points.map((point) => point[over] ?? 0),
        y: points.map((point) => rest + point.stored_bytes),
        rest,
      },
    ];
  });
}

/** The limit for the cache: the usable memory, or the part of it that the chosen model's weights leave.
 * @param {Answer|null} answer @param {boolean} weights @returns {number|null} */
function limitOf(answer, weights) {
  const found = answer?.models[0].capacity;
  if (!answer?.machine) return null;
  if (weights) return answer.machine.usable_bytes;
  return found && found.kv_budget_bytes > 0 ? found.kv_budget_bytes : null;
}

export class Chart {
  /** @param {State} state */
  constructor(state) {
    this.state = state;
    this.title = h('h2', { class: 'strong calc-sub' });
    this.root = h('div', { class: 'calc-plot' });
    this.plot = new Plot(this.root, { label: t.chart.label, file: 'kvviz-calculator' });
    const options = h(
      'div',
      { class: 'cluster calc-options' },
      this.#toggle(
        t.chart.over,
        ['context', 'batch'],
        t.chart.overs,
        () => state.view.over,
        (over) => state.show({ over }),
      ),
      this.#toggle(
        t.chart.scale,
        ['log', 'linear'],
        t.chart.scales,
        () => state.view.scale,
        (scale) => state.show({ scale }),
      ),
      this.#toggle(
        t.chart.counted,
        ['cache', 'all'],
        t.chart.counts,
        () => (state.view.weights ? 'all' : 'cache'),
        (what) => state.show({ weights: what === 'all' }),
      ),
    );
    this.element = h(
      'section',
      { class: 'calc-chart', 'aria-label': t.chart.label },
      h('div', { class: 'cluster calc-chart-head' }, this.title, options),
      this.root,
    );
  }

  /** Two buttons, one of them pressed.
   * @template {string} T @param {string} label @param {T[]} values @param {Record<T, string>} texts @param {() => T} read @param {(value: T) => void} write */
  #toggle(label, values, texts, read, write) {
    const buttons = values.map((value) =>
      h(
        'button',
        { type: 'button', 'aria-pressed': String(read() === value), on: { click: () => write(value) } },
        texts[value],
      ),
    );
    this.state.changes.on(() =>
      buttons.forEach((button, index) => button.setAttribute('aria-pressed', String(read() === values[index]))),
    );
    return h('div', { class: 'calc-toggle', role: 'group', 'aria-label': label }, buttons);
  }

  /** @param {Reply[]} replies */
  update(replies) {
    const { over, weights } = this.state.view;
    const lines = linesOf(replies, this.state);
    const answer = replies[this.state.chosen]?.answer ?? null;
    const limit = limitOf(answer, weights);
    const shown = answer ?? replies.find((reply) => reply.answer)?.answer;
    if (!shown) return;
    const { settings } = shown;
    setText(
      this.title,
      fill(over === 'context' ? t.chart.titleContext : t.chart.titleBatch, {
        what: weights ? t.chart.withWeights : this.#counted(replies, settings.gpus),
        batch: count(settings.batch),
        context: count(settings.context),
      }),
    );
    this.plot.label = this.#inWords(lines, limit, settings[over]);
    this.plot.table({
      caption: t.chart.table,
      headers: [t.chart.column[over], ...lines.map((line) => `${LETTERS[line.index]}: ${line.name}`)],
      rows: rowsOf(lines),
      cell: (value, column) =>
        value === null
          ? ''
          : typeof value === 'number'
            ? column === 0
              ? count(value)
              : `${both(value)} (${count(value)})`
            : value,
    });
    void this.plot.draw(this.#traces(lines, settings[over], limit), this.#layout(lines, settings[over], limit, answer));
  }

  /** What the lines include besides K and V. @param {Reply[]} replies @param {number} gpus */
  #counted(replies, gpus) {
    const more = replies.some(
      ({ answer }) => answer?.models[0].fixed_state || answer?.models[0].indexer_bytes_per_token,
    );
    const what = more ? t.chart.kept : t.chart.cache;
    return gpus > 1 ? fill(t.chart.onCards, { what, n: count(gpus) }) : what;
  }

  /** @param {Line[]} lines @param {number|null} limit @param {number} at */
  #inWords(lines, limit, at) {
    const parts = lines.map((line) =>
      fill(t.chart.point, {
        name: line.name,
        bytes: both(line.y[line.x.indexOf(at)] ?? 0),
        n: count(at),
        unit: t.chart.unit[this.state.view.over],
      }),
    );
    if (limit !== null) parts.push(fill(t.chart.limitWords, { bytes: both(limit) }));
    return [t.chart.label, ...parts].join(' ');
  }

  /** @param {Line[]} lines @param {number} at @param {number|null} limit */
  #traces(lines, at, limit) {
    const isLog = this.state.view.scale === 'log';
    const traces = lines.map((line) => {
      const chosen = line.index === this.state.chosen;
      const drawn = line.y.map((value) => (isLog && value <= 0 ? null : value));
      return {
        type: 'scatter',
        mode: 'lines+markers',
        name: lines.length > 1 ? `${LETTERS[line.index]} ${line.name}` : line.name,
        x: line.x,
        y: drawn,
        text: line.y.map((value) => both(value)),
        hovertemplate: '%{text}',
        line: { color: COLORS[line.index], dash: DASHES[line.index], width: chosen ? 3 : 2 },
        marker: { color: COLORS[line.index], size: line.x.map((value) => (value === at ? 11 : 4)) },
      };
    });
    if (limit === null || !lines.length) return traces;
    const ends = [Math.min(...lines.map((line) => line.x[0])), Math.max(...lines.map((line) => line.x.at(-1) ?? 0))];
    return [
      ...traces,
      {
        type: 'scatter',
        mode: 'lines',
        x: ends,
        y: [limit, limit],
        name: t.chart.limit,
        hoverinfo: 'skip',
        showlegend: false,
        line: { color: 'var(--bad)', width: 2, dash: 'longdash' },
      },
    ];
  }

  /** @param {Line[]} lines @param {number} at @param {number|null} limit @param {Answer|null} answer */
  #layout(lines, at, limit, answer) {
    const { over, scale, weights } = this.state.view;
    const isLog = scale === 'log';
    const xs = lines.flatMap((line) => line.x);
    const ys = [...lines.flatMap((line) => line.y).filter((value) => value > 0), ...(limit === null ? [] : [limit])];
    const high = Math.max(1, ...ys) * (isLog ? 2 : HEADROOM);
    const low = Math.min(high / 2, ...ys);
    const place = (/** @type {number} */ value) => (isLog ? Math.log10(value) : value);
    const name = answer?.models[0].name ?? '';
    const text =
      limit === null
        ? fill(t.chart.noRoom, { name })
        : fill(weights ? t.chart.usable : t.chart.room, { bytes: binary(limit), name });
    const lacks = limit === null && Boolean(answer?.models[0].capacity);
    return {
      showlegend: lines.length > 1,
      legend: { orientation: 'h', x: 0, y: 1.02, yanchor: 'bottom', traceorder: 'normal' },
      hovermode: 'x',
      margin: { t: lines.length > 1 ? 30 : 14 },
      xaxis: { title: { text: t.chart.column[over] }, ...axisX(xs, isLog, over) },
      yaxis: isLog ? axisY(low, high) : { bytes: true, range: [0, high] },
      shapes: [
        {
          type: 'line',
          x0: at,
          x1: at,
          yref: 'paper',
          y0: 0,
          y1: 1,
          line: { color: 'var(--line-strong)', width: 1, dash: 'dot' },
        },
      ],
      annotations:
        limit === null && !lacks
          ? []
          : [
              {
                xref: 'paper',
                x: 0.01,
                xanchor: 'left',
                yref: limit === null ? 'paper' : 'y',
                y: limit === null ? 1 : place(limit),
                yanchor: limit === null ? 'top' : 'bottom',
                text,
                showarrow: false,
                font: { color: 'var(--bad)' },
              },
            ],
    };
  }
}

/** @param {number[]} xs @param {boolean} isLog @param {'context'|'batch'} over */
function axisX(xs, isLog, over) {
  const [low, high] = [Math.min(...xs), Math.max(...xs)];
  const write = over === 'context' ? thousands : count;
  if (!isLog) return { range: [0, high * 1.02], tickmode: 'array', ...evenTicks(high, write) };
  const first = Math.ceil(Math.log2(low));
  const last = Math.floor(Math.log2(high));
  const step = Math.max(1, Math.ceil((last - first + 1) / MAX_TICKS));
  const tickvals = [];
  for (let power = first; power <= last; power += step) tickvals.push(2 ** power);
  return {
    type: 'log',
    range: [Math.log10(low / 1.15), Math.log10(high * 1.15)],
    tickmode: 'array',
    tickvals,
    ticktext: tickvals.map(write),
  };
}

/** @param {number} high @param {(n: number) => string} write */
function evenTicks(high, write) {
  const step = Math.max(1, 2 ** Math.ceil(Math.log2(high / MAX_TICKS)));
  const tickvals = Array.from({ length: Math.floor(high / step) + 1 }, (_, index) => index * step);
  return { tickvals, ticktext: tickvals.map(write) };
}

/** Powers of two, as many as fit. @param {number} low @param {number} high */
function axisY(low, high) {
  const first = Math.floor(Math.log2(low));
  const last = Math.floor(Math.log2(high));
  const step = Math.max(BYTE_POWER, Math.ceil((last - first + 1) / MAX_TICKS));
  const tickvals = [];
  for (let power = first; power <= last; power += step) tickvals.push(2 ** power);
  return {
    type: 'log',
    range: [Math.log10(2 ** first), Math.log10(high)],
    tickmode: 'array',
    tickvals,
    ticktext: tickvals.map((value) => byteText(value)),
  };
}

/** Rows by x with a column per line; empty where a line has no point. @param {Line[]} lines @returns {(number|null)[][]} */
function rowsOf(lines) {
  const xs = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  return xs.map((x) => [x, ...lines.map((line) => line.y[line.x.indexOf(x)] ?? null)]);
}
