/** Times to first token as strips of marks, one row per kind of probe: the shape shows the kind, the position the time. */
import { experiments } from '../../strings/experiments.js';
import { fill } from '../../ui/format.js';
import { time } from './bandwidth-figures.js';
/** @import { Attack } from './timing-model.js' */
/** @import { ProbeTimed } from '../../core/events.d.ts' */

const t = experiments.timing;
/** Lanes of marks in a row, above its line; more lanes are closer together. */
const LANES = 6;
/** A mark and the gap next to it, in px. */
const MARK = 11;

/** Marks that would overlap are stacked: each takes the lowest free lane.
 * @param {readonly ProbeTimed[]} probes @param {number} sizeUs of a mark @returns {{probe: ProbeTimed, lane: number}[]} by time */
export function stack(probes, sizeUs) {
  /** @type {number[]} the last mark in each lane */
  const ends = [];
  return [...probes]
    .sort((a, b) => a.first_token_us - b.first_token_us)
    .map((probe) => {
      let lane = ends.findIndex((end) => probe.first_token_us - end >= sizeUs);
      if (lane < 0) lane = ends.length;
      ends[lane] = probe.first_token_us;
      return { probe, lane };
    });
}

/** For plotly: the horizontal axis is in milliseconds, rows are whole numbers on the vertical axis.
 * @param {Attack} attack @param {number} width in px @param {number} em */
export function timingPlot(attack, width, em) {
  const ms = (/** @type {number} */ us) => us / 1000;
  const highUs = Math.max(...attack.probes.map((probe) => probe.first_token_us), 1) * 1.06;
  const rows = [
    {
      name: t.rows.right,
      note: noteOf(attack.right.length, attack.rightUs),
      medianUs: attack.rightUs,
      probes: attack.right,
    },
    {
      name: t.rows.wrong,
      note: noteOf(attack.wrong.length, attack.wrongUs),
      medianUs: attack.wrongUs,
      probes: attack.wrong,
    },
    { name: t.rows.own, note: t.rowNotes.own, medianUs: null, probes: [...attack.again, ...attack.first] },
  ];
  const marks = rows.flatMap(({ probes }, row) => {
    const placed = stack(probes, (highUs * MARK) / width);
    const height = 0.6 / Math.max(LANES, ...placed.map(({ lane }) => lane + 1));
    return placed.map(({ probe, lane }) => ({ probe, y: rows.length - row + (lane + 0.7) * height }));
  });
  const draw = (/** @type {typeof marks} */ some, /** @type {Record<string, any>} */ marker, more = {}) => ({
    type: 'scatter',
    mode: 'markers',
    x: some.map(({ probe }) => ms(probe.first_token_us)),
    y: some.map(({ y }) => y),
    marker,
    hoverinfo: 'skip',
    ...more,
  });
  const misjudged = marks.filter(({ probe }) => probe.says_secret !== null && probe.says_secret !== probe.is_secret);
  const traces = [
    draw(
      marks,
      {
        symbol: marks.map(({ probe }) => formOf(probe)),
        size: 9,
        color: 'var(--ink-2)',
        line: { width: 1.5, color: 'var(--ink-2)' },
      },
      {
        meta: 'probes',
        customdata: marks.map(({ probe }) => time(probe.first_token_us)),
        ids: marks.map(({ probe }) => String(probe.probe)),
        hoverinfo: undefined,
        hovertemplate: '%{customdata}<extra></extra>',
      },
    ),
    draw(
      misjudged,
      { symbol: 'x-thin-open', size: 11, color: 'var(--bad)', line: { width: 2, color: 'var(--bad)' } },
      { meta: 'misjudged' },
    ),
    draw(
      marks.filter(({ probe }) => probe === attack.last),
      { symbol: 'circle-open', size: 17, color: 'var(--now)', line: { width: 2, color: 'var(--now)' } },
      { meta: 'last' },
    ),
  ];
  const label = { showarrow: false, yref: 'y', bgcolor: 'var(--ground)/0.8' };
  /** @type {Record<string, any>[]} */
  const annotations = rows.map(({ name, note }, row) => ({
    ...label,
    xref: 'paper',
    x: 0,
    xanchor: 'left',
    y: rows.length - row + 0.94,
    yanchor: 'top',
    text: `${name} · ${note}`,
  }));
  const shapes = rows.flatMap(({ medianUs }, row) =>
    medianUs === null
      ? []
      : [
          {
            type: 'line',
            x0: ms(medianUs),
            x1: ms(medianUs),
            y0: rows.length - row - 0.08,
            y1: rows.length - row + 0.02,
            line: { color: 'var(--ink)', width: 3 },
          },
        ],
  );
  if (attack.thresholdUs !== null) {
    const x = ms(attack.thresholdUs);
    shapes.push({
      type: 'line',
      x0: x,
      x1: x,
      y0: 0.9,
      y1: 4,
      line: /** @type {any} */ ({ color: 'var(--ink)', width: 1.5, dash: 'dash' }),
    });
    annotations.push(
      {
        ...label,
        x,
        y: 4,
        yanchor: 'bottom',
        yshift: em * 1.4,
        text: fill(t.threshold, { time: time(attack.thresholdUs) }),
      },
      { ...label, x, xanchor: 'right', y: 4, yanchor: 'bottom', font: { color: 'var(--ink-2)' }, text: t.faster },
      { ...label, x, xanchor: 'left', y: 4, yanchor: 'bottom', font: { color: 'var(--ink-2)' }, text: t.slower },
    );
  }
  return {
    traces,
    layout: {
      xaxis: {
        range: [0, ms(highUs)],
        ticksuffix: ' ms',
        title: { text: t.axis },
        showgrid: false,
        nticks: Math.max(2, Math.floor(width / 90)),
      },
      yaxis: { range: [0.9, 4], tickmode: 'array', tickvals: [1, 2, 3], ticktext: ['', '', ''] },
      shapes,
      annotations,
      showlegend: false,
      hovermode: 'closest',
      dragmode: false,
      margin: { t: em * 3.6, l: 24 },
    },
  };
}

/** A right guess is filled; the attacker's own prompts are triangles, pointing up when sent again. @param {ProbeTimed} probe */
function formOf({ says_secret, is_secret, num_hit_tokens }) {
  if (says_secret === null) return num_hit_tokens > 0 ? 'triangle-up' : 'triangle-down-open';
  return is_secret ? 'circle' : 'circle-open';
}

/** @param {number} n @param {number|null} us */
function noteOf(n, us) {
  return fill(t.rowNotes.n, { n, median: us === null ? t.none : time(us) });
}
