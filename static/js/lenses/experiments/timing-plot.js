/** Times to first token as strips of marks, one row per kind of probe: form tells the kinds apart, place the time. */
import { experiments } from '../../strings/experiments.js';
import { svg } from '../../ui/dom.js';
import { fill } from '../../ui/format.js';
import { time } from './bandwidth-figures.js';
/** @import { Attack } from './timing-model.js' */
/** @import { ProbeTimed } from '../../core/events.d.ts' */
/** `form`: a filled or hollow circle, or a triangle that points up or down. @typedef {{probe: ProbeTimed, form: 'filled'|'hollow'|'up'|'down', x: number, lane: number}} Mark */

const t = experiments.timing;

/**
 * Marks beside each other where they would overlap: each takes the lowest free lane.
 * @param {readonly {probe: ProbeTimed, form: Mark['form']}[]} entries @param {(us: number) => number} place @param {number} size @returns {Mark[]}
 */
export function stack(entries, place, size) {
  /** @type {number[]} the right edge of the last mark in each lane */
  const ends = [];
  return entries.map((entry) => ({ ...entry, x: place(entry.probe.first_token_us) })).sort((a, b) => a.x - b.x).map((entry) => {
    let lane = ends.findIndex((end) => entry.x - end >= size);
    if (lane < 0) lane = ends.length;
    ends[lane] = entry.x;
    return { ...entry, lane };
  });
}

/** @param {Attack} attack @param {{width: number, em: number, title: string}} size @returns {SVGSVGElement} */
export function timingPlot(attack, { width, em, title }) {
  const narrow = width < em * 42;
  const left = narrow ? em * 0.8 : em * 13.5;
  const right = width - em * 1.4;
  const highUs = Math.max(...attack.probes.map((probe) => probe.first_token_us), 1) * 1.06;
  const place = (/** @type {number} */ us) => left + (us / highUs) * (right - left);
  const as = (/** @type {ProbeTimed[]} */ probes, /** @type {Mark['form']} */ form) => probes.map((probe) => ({ probe, form }));
  const rows = [
    { name: t.rows.right, note: noteOf(attack.right.length, attack.rightUs), medianUs: attack.rightUs, entries: as(attack.right, 'filled') },
    { name: t.rows.wrong, note: noteOf(attack.wrong.length, attack.wrongUs), medianUs: attack.wrongUs, entries: as(attack.wrong, 'hollow') },
    { name: t.rows.own, note: t.rowNotes.own, medianUs: null, entries: [...as(attack.again, 'up'), ...as(attack.first, 'down')] },
  ];
  const size = em * 0.72;
  let y = em * 3.1;
  const root = svg('svg', { class: 'exp-chart exp-strip', role: 'img', 'aria-label': title });
  for (const row of rows) {
    const marks = stack(row.entries, place, size);
    const lanes = Math.max(2, ...marks.map((mark) => mark.lane + 1));
    const label = narrow ? em * 1.4 : 0;
    const base = y + label + lanes * size + em * 0.5;
    root.append(svg('text', { class: 'exp-strong', x: narrow ? left : left - em, y: narrow ? y + em : base - em * 1.1, 'text-anchor': narrow ? 'start' : 'end' }, row.name),
      svg('text', { class: 'exp-tick', x: narrow ? right : left - em, y: narrow ? y + em : base + em * 0.15, 'text-anchor': 'end' }, row.note),
      svg('line', { class: 'exp-grid', x1: left, x2: right, y1: base, y2: base }));
    for (const mark of marks) drawMark(root, mark, base - size * (mark.lane + 0.62), size * 0.46, mark.probe === attack.last);
    if (row.medianUs !== null) root.append(svg('line', { class: 'exp-median', x1: place(row.medianUs), x2: place(row.medianUs), y1: base, y2: base + em * 0.6 }));
    y = base + em * 0.9;
  }
  axis(root, { left, right, y, em, highUs, place });
  if (attack.thresholdUs !== null) threshold(root, place(attack.thresholdUs), y, em, width, fill(t.threshold, { time: time(attack.thresholdUs) }), narrow);
  const height = Math.ceil(y + em * 2.9);
  for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) root.setAttribute(name, String(value));
  return root;
}

/** @param {number} n @param {number|null} us @returns {string} */
function noteOf(n, us) {
  return fill(t.rowNotes.n, { n, median: us === null ? t.none : time(us) });
}

/** @param {SVGElement} root @param {Mark} mark @param {number} y @param {number} r @param {boolean} isLast */
function drawMark(root, { probe, form, x }, y, r, isLast) {
  const name = form === 'filled' || form === 'up' ? 'exp-point' : 'exp-point-hollow';
  const data = { probe: probe.probe, form };
  if (form === 'up' || form === 'down') {
    const s = form === 'up' ? 1 : -1;
    root.append(svg('path', { class: name, data, d: `M${x - r} ${y + s * r * 0.8}h${2 * r}l${-r} ${-s * r * 1.7}z` }));
  } else {
    root.append(svg('circle', { class: name, data, cx: x, cy: y, r }));
  }
  if (probe.says_secret !== null && probe.says_secret !== probe.is_secret) {
    const d = r * 1.5;
    root.append(svg('path', { class: 'exp-point-bad', d: `M${x - d} ${y - d}l${2 * d} ${2 * d}M${x - d} ${y + d}l${2 * d} ${-2 * d}` }));
  }
  if (isLast) root.append(svg('circle', { class: 'exp-point-last', cx: x, cy: y, r: r * 1.9 }));
}

/** @param {SVGElement} root @param {{left: number, right: number, y: number, em: number, highUs: number, place: (us: number) => number}} of */
function axis(root, { left, right, y, em, highUs, place }) {
  root.append(svg('line', { class: 'exp-axis', x1: left, x2: right, y1: y, y2: y }));
  const least = (highUs * em * 6) / (right - left);
  const power = 10 ** Math.floor(Math.log10(least));
  const every = [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= least) ?? 10 * power;
  for (let us = 0; us <= highUs; us += every) {
    root.append(svg('line', { class: 'exp-axis', x1: place(us), x2: place(us), y1: y, y2: y + em * 0.35 }),
      svg('text', { class: 'exp-tick', x: place(us), y: y + em * 1.45, 'text-anchor': us === 0 ? 'start' : place(us) + em * 3 > right ? 'end' : 'middle' }, us === 0 ? '0' : fill(experiments.units.ms, { n: us / 1000 })));
  }
  root.append(svg('text', { class: 'exp-tick', x: right, y: y + em * 2.7, 'text-anchor': 'end' }, t.axis));
}

/** @param {SVGElement} root @param {number} x @param {number} bottom @param {number} em @param {number} width @param {string} label @param {boolean} narrow */
function threshold(root, x, bottom, em, width, label, narrow) {
  const half = (label.length * em * 0.56) / 2;
  root.append(svg('line', { class: 'exp-threshold', x1: x, x2: x, y1: em * 2.6, y2: bottom }),
    svg('text', { class: 'exp-strong', x: Math.min(Math.max(x, half + 2), width - half - 2), y: em, 'text-anchor': 'middle' }, label));
  if (narrow) return;
  root.append(svg('text', { class: 'exp-label', x: x - em * 0.7, y: em * 2.35, 'text-anchor': 'end' }, t.faster), svg('text', { class: 'exp-label', x: x + em * 0.7, y: em * 2.35 }, t.slower));
}
