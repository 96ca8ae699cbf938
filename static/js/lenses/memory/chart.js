/** Bytes over steps as traces and a layout for plotly: stacked parts, the capacity above them, and the steps after the cursor dimmed. */
import { letterOf } from '../../core/state.js';
import { bytes, count, fill } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
/** @import { MemorySeries, MemoryAt } from './series.js' */
/** @typedef {Record<string, any>} Parts */
/** `slots` of a part at a position; `pattern` distinguishes it without colour.
 * @typedef {{id: string, name: string, color: string, pattern: string, light: 'stored'|'wasted'|'cached', slots: (at: MemoryAt) => number}} Part */
/** `unit`: bytes per slot, 1 when slots are counted.
 * @typedef {{series: MemorySeries, parts: Part[], position: number, unit: number, inBytes: boolean, capacity: number, weights: number, crossing: number|null, hostBlocks: number, range: [number, number]|null, light: string|null, size: number}} Picture */

const t = texts.memory;
/** Number of requests with a part each; the others share one part. */
const MAX_REQUESTS = 8;
const MAX_POINTS = 320;
/** A stack lower than this share of the capacity is drawn at its own scale. */
const LOW = 0.4;
/** Height of the host tier's part of the chart. */
const HOST_TOP = 0.2;
const HEADROOM = 1.1;
const DIM = 0.15;
const HUES = ['request-a', 'request-b', 'request-c', 'request-d'];
const PATTERNS = ['', '/', '\\', 'x'];

/** The parts of the stack, lowest first. @param {MemorySeries} series @returns {Part[]} */
export function partsOf(series) {
  const ids = series.largest();
  const own = ids.slice(0, MAX_REQUESTS).sort((a, b) => a - b);
  const rest = ids.slice(MAX_REQUESTS);
  /** @type {Part[]} */
  const parts = own.map((id) => ({
    id: `request-${id}`,
    name: fill(t.parts.request, { letter: letterOf(id) }),
    color: HUES[id % 4],
    pattern: PATTERNS[Math.floor(id / 4) % 4],
    light: 'stored',
    slots: (at) => at.own(id),
  }));
  if (rest.length > 0) {
    const name =
      rest.length === 1 ? fill(t.parts.request, { letter: letterOf(rest[0]) }) : fill(t.parts.rest, { n: rest.length });
    parts.push({
      id: 'rest',
      name,
      color: 'request-e',
      pattern: '+',
      light: 'stored',
      slots: (at) =>
        Math.max(
          0,
          own.reduce((left, id) => left - at.own(id), at.stored - at.shared),
        ),
    });
  }
  if (series.shared.some((slots) => slots > 0))
    parts.unshift({
      id: 'shared',
      name: t.parts.shared,
      color: 'shared',
      pattern: '',
      light: 'stored',
      slots: (at) => at.shared,
    });
  parts.push({
    id: 'wasted',
    name: t.parts.wasted,
    color: 'line-strong',
    pattern: 'x',
    light: 'wasted',
    slots: (at) => at.wasted,
  });
  if (series.cached.some((slots) => slots > 0))
    parts.push({
      id: 'cached',
      name: t.parts.cached,
      color: 'nobody-ink',
      pattern: '.',
      light: 'cached',
      slots: (at) => at.cached,
    });
  return parts;
}

/** Positions to draw: all of them, or evenly spaced ones that include the ends and the cursor.
 * @param {number} from @param {number} to @param {number} position @returns {number[]} */
export function sampled(from, to, position) {
  const length = to - from + 1;
  const some =
    length <= MAX_POINTS
      ? Array.from({ length }, (_, i) => from + i)
      : Array.from({ length: MAX_POINTS }, (_, i) => from + Math.round((i * (length - 1)) / (MAX_POINTS - 1)));
  return [...new Set([...some, Math.max(from, Math.min(position, to))])].sort((a, b) => a - b);
}

/** @param {Picture} picture @returns {{traces: Parts[], layout: Parts}} */
export function chartOf(picture) {
  const { series, parts, position, unit, inBytes, range, hostBlocks } = picture;
  const from = Math.max(series.base, Math.floor(range?.[0] ?? series.base));
  const to = Math.min(series.head, Math.ceil(range?.[1] ?? series.head));
  const x = sampled(Math.min(from, to), to, position);
  const states = x.map((step) => series.at(step));
  const said = (/** @type {number} */ value) => (inBytes ? bytes(value) : fill(t.slots, { n: count(value) }));
  const traces = parts.map((part) =>
    areaOf(
      part,
      x,
      states.map((at) => part.slots(at) * unit),
      said,
      picture.light,
    ),
  );
  if (hostBlocks > 0) {
    const host = {
      id: 'host',
      name: t.parts.host,
      color: 'mark-copy',
      pattern: '-',
      light: /** @type {const} */ ('stored'),
      slots: (/** @type {MemoryAt} */ at) => at.host,
    };
    traces.push({
      ...areaOf(
        host,
        x,
        states.map((at) => at.host * unit),
        said,
        null,
      ),
      stackgroup: 'host',
      yaxis: 'y2',
    });
  }
  return { traces, layout: layoutOf(picture, said) };
}

/** @param {Part} part @param {number[]} x @param {number[]} y @param {(value: number) => string} said @param {string|null} light @returns {Parts} */
function areaOf({ id, name, color, pattern, light: kind }, x, y, said, light) {
  const isDim = light !== null && light !== kind;
  const isHeld = kind === 'stored';
  const ink = `var(--${color})${isDim ? '/0.2' : ''}`;
  const ground = `var(--${color})/${isDim ? DIM : isHeld ? 0.8 : 0.12}`;
  return {
    type: 'scatter',
    mode: 'lines',
    x,
    y,
    name,
    stackgroup: 'pool',
    meta: id,
    line: { shape: 'vh', width: 1, color: ink },
    fillcolor: ground,
    ...(pattern
      ? {
          fillpattern: {
            shape: pattern,
            fgcolor: isHeld ? `var(--ground)/${isDim ? 0.2 : 0.7}` : ink,
            bgcolor: ground,
            size: 7,
            solidity: 0.25,
            fillmode: 'replace',
          },
        }
      : {}),
    customdata: y.map(said),
    hovertemplate: '%{customdata}',
  };
}

/** @param {Picture} picture @param {(value: number) => string} said @returns {Parts} */
function layoutOf({ series, parts, position, inBytes, unit, capacity, weights, crossing, hostBlocks, size }, said) {
  const most = mostOf(series, parts, unit);
  const isLow = most > 0 && most < capacity * LOW;
  const top = (isLow ? most * 1.5 : Math.max(capacity, most)) * HEADROOM;
  const last = Math.max(series.head, series.base + 1);
  const isLate = position > (series.base + last) / 2;
  /** @type {Parts[]} */
  const shapes = [
    {
      type: 'line',
      xref: 'paper',
      yref: 'y',
      x0: 0,
      x1: 1,
      y0: capacity,
      y1: capacity,
      line: { color: 'var(--ink)', width: 2, dash: 'solid' },
    },
  ];
  const label = { showarrow: false, font: { size, color: 'var(--ink)' }, bgcolor: 'var(--ground)/0.8', borderpad: 2 };
  /** @type {Parts[]} */
  const annotations = [
    {
      ...label,
      xref: 'paper',
      x: isLate ? 0 : 1,
      xanchor: isLate ? 'left' : 'right',
      yref: isLow ? 'paper' : 'y',
      y: isLow ? 1 : capacity,
      yanchor: isLow ? 'top' : 'bottom',
      yshift: isLow ? 0 : 2,
      text: fill(isLow ? t.chart.capacityFar : t.chart.capacity, { capacity: said(capacity) }),
    },
  ];
  if (isLow) shapes.pop();
  if (weights > 0 && weights <= top) {
    shapes.push({
      type: 'line',
      xref: 'paper',
      yref: 'y',
      x0: 0,
      x1: 1,
      y0: weights,
      y1: weights,
      line: { color: 'var(--warn)', width: 2, dash: 'dash' },
    });
    annotations.push({
      ...label,
      xref: 'paper',
      x: 0,
      xanchor: 'left',
      y: weights,
      yanchor: 'bottom',
      text: fill(t.chart.weights, { weights: said(weights) }),
    });
  }
  if (crossing !== null) {
    shapes.push({
      type: 'line',
      xref: 'x',
      yref: 'paper',
      x0: crossing,
      x1: crossing,
      y0: 0,
      y1: 1,
      line: { color: 'var(--warn)', width: 2, dash: 'dot' },
    });
    annotations.push({
      ...label,
      x: crossing,
      xanchor: 'left',
      yref: 'paper',
      y: 0.5,
      text: fill(t.chart.crossing, { step: crossing }),
    });
  }
  if (position < series.head) {
    shapes.unshift({
      type: 'rect',
      xref: 'x',
      yref: 'paper',
      x0: position,
      x1: last,
      y0: 0,
      y1: 1,
      layer: 'above',
      fillcolor: 'var(--ground)/0.72',
      line: { width: 0 },
    });
    annotations.push({
      ...label,
      x: (position + last) / 2,
      yref: 'paper',
      y: 0.04,
      yanchor: 'bottom',
      font: { size, color: 'var(--ink-2)' },
      text: t.chart.notYet,
    });
  }
  shapes.push({
    type: 'line',
    xref: 'x',
    yref: 'paper',
    x0: position,
    x1: position,
    y0: 0,
    y1: 1,
    line: { color: 'var(--now)', width: 2 },
  });
  annotations.push({
    ...label,
    x: position,
    yref: 'paper',
    y: 1,
    yanchor: 'bottom',
    xanchor: isLate ? 'right' : 'left',
    text: fill(t.chart.here, { step: position }),
    bgcolor: 'rgba(0,0,0,0)',
  });
  const hosts = hostBlocks > 0;
  if (hosts)
    annotations.push({
      ...label,
      xref: 'paper',
      x: 0,
      xanchor: 'left',
      yref: 'paper',
      y: HOST_TOP,
      yanchor: 'bottom',
      font: { size, color: 'var(--ink-2)' },
      bgcolor: 'rgba(0,0,0,0)',
      text: fill(t.chart.host, { capacity: said(hostBlocks) }),
    });
  return {
    showlegend: false,
    shapes,
    annotations,
    margin: { t: size * 2, r: size },
    xaxis: {
      title: { text: t.chart.step },
      range: [series.base, last],
      tickformat: ',d',
      nticks: 8,
      showgrid: false,
      zeroline: false,
      anchor: hosts ? 'y2' : 'y',
    },
    yaxis: {
      bytes: inBytes,
      range: [0, top],
      tickformat: ',d',
      domain: hosts ? [0.36, 1] : [0, 1],
      rangemode: 'tozero',
    },
    ...(hosts
      ? { yaxis2: { bytes: inBytes, range: [0, hostBlocks * HEADROOM], tickformat: ',d', domain: [0, HOST_TOP] } }
      : {}),
  };
}

/** The maximum of the stack. @param {MemorySeries} series @param {Part[]} parts @param {number} unit @returns {number} */
function mostOf(series, parts, unit) {
  const withCached = parts.some((part) => part.id === 'cached');
  let most = 0;
  for (let i = 0; i < series.held.length; i++)
    most = Math.max(most, series.held[i] + (withCached ? series.cached[i] : 0));
  return most * unit;
}

/** All numbers of the chart, by position. @param {MemorySeries} series @param {Part[]} parts @param {number} unit @param {boolean} hosts @returns {{headers: string[], rows: () => number[][]}} */
export function numbersOf(series, parts, unit, hosts) {
  const headers = [t.table.step, t.table.held, ...parts.map((part) => part.name), ...(hosts ? [t.parts.host] : [])];
  const rows = () =>
    Array.from({ length: series.head - series.base + 1 }, (_, index) => {
      const at = series.at(series.base + index);
      const slots = [at.held, ...parts.map((part) => part.slots(at)), ...(hosts ? [at.host] : [])];
      return [at.step, ...slots.map((value) => Math.round(value * unit))];
    });
  return { headers, rows };
}
