/** Lines over new tokens for plotly: a hue, a dash and a mark per lane, and one name for lines that follow the same closed form. */
import { fill } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { niceTop } from './model.js';
/** @import { Plot } from '../../ui/plot.js' */
/** `log`: the lowest value of a logarithmic scale. @typedef {{title: string, log?: number, format: (value: number) => string}} Kind */
/** `values[i]` belongs to token `first + i`; `note` names the closed form of the line.
 * @typedef {{lane: number, name: string, first: number, values: readonly number[], note?: string}} Line */

const t = texts.compare.charts;
/** The shapes of `lane-mark.js` in plotly. */
const MARKS = ['line-ew-open', 'diamond', 'triangle-up', 'square'];
const DASHES = ['2px,3px', 'solid', '7px,3px', '1.5px,3px'];

/** @param {Plot} plot @param {Kind} kind @param {readonly Line[]} all @param {number} planned tokens on the axis */
export function drawLines(plot, { title, log = 0, format }, all, planned) {
  const lines = all
    .filter((line) => line.values.length > 0)
    .map((line) => ({
      ...line,
      last: line.values[line.values.length - 1],
      x: line.values.map((_, index) => line.first + index),
    }));
  const most = Math.max(0, ...lines.map(({ values }) => values.reduce((found, value) => Math.max(found, value), 0)));
  const top = log > 0 ? 10 ** Math.ceil(Math.log10(Math.max(most, log * 100))) : niceTop(most);
  const tickvals = log > 0 ? decades(log, top) : [0, top / 2, top];
  const traces = lines.flatMap(({ lane, name, values, x, last }) => {
    const color = `var(--lane-${lane % 4})`;
    const shared = {
      type: 'scatter',
      name,
      line: { color, dash: DASHES[lane % 4], width: 2 },
      marker: { color, symbol: MARKS[lane % 4], size: 9, line: { color, width: lane % 4 === 0 ? 3 : 0 } },
    };
    return [
      {
        ...shared,
        mode: 'lines',
        x,
        y: values.map((value) => Math.max(log, value)),
        customdata: values.map(format),
        hovertemplate: '%{customdata}',
      },
      { ...shared, mode: 'markers', x: [x[x.length - 1]], y: [Math.max(log, last)], hoverinfo: 'skip' },
    ];
  });
  const noted = lines.filter(({ note }, index) => note && lines.findIndex((line) => line.note === note) === index);
  const annotations = noted.map(({ name, note, x, last }) => ({
    x: x[x.length - 1],
    y: last,
    xanchor: 'right',
    yanchor: 'bottom',
    yshift: 3,
    showarrow: false,
    text: `${name} · ${note}`,
  }));
  plot.label = `${title}. ${lines.map(({ name, values, last }) => fill(t.all, { lane: name, last: format(last), most: format(Math.max(...values)) })).join('; ')}.`;
  plot.table({
    caption: title,
    headers: [t.token, ...all.map(({ name }) => name)],
    cell: (value, column) => (value === null ? '' : column === 0 ? String(value) : format(Number(value))),
    rows: () =>
      Array.from({ length: Math.max(0, ...all.map(({ first, values }) => first + values.length)) }, (_, token) => [
        token,
        ...all.map(({ first, values }) => values[token - first] ?? null),
      ]),
  });
  void plot.draw(traces, {
    xaxis: {
      range: [-0.02 * planned, 1.02 * (planned - 1)],
      title: { text: t.token },
      showgrid: false,
      zeroline: false,
      nticks: 6,
      tickformat: ',d',
    },
    yaxis: {
      type: log > 0 ? 'log' : 'linear',
      range: log > 0 ? [Math.log10(log), Math.log10(top)] : [0, top * 1.08 || 1],
      tickmode: 'array',
      tickvals,
      ticktext: tickvals.map(format),
    },
    showlegend: false,
    annotations,
    dragmode: false,
  });
}

/** @param {number} low @param {number} top @returns {number[]} */
function decades(low, top) {
  const all = Array.from({ length: Math.round(Math.log10(top / low)) + 1 }, (_, power) => low * 10 ** power);
  const stride = Math.ceil(all.length / 4);
  return all.filter((_, index) => (all.length - 1 - index) % stride === 0);
}
