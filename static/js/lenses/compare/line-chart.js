/** Lines over new tokens as SVG: axes with real numbers, a form and a dash for each lane, names at the ends of the lines. */
import { replace, setAttribute, svg } from '../../ui/dom.js';
import { fill } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { DASHES, laneForm } from './lane-mark.js';
/** @import { Palette } from '../../ui/palette.js' */
/** `values[i]` is that of token `first + i`. @typedef {{lane: number, name: string, first: number, values: readonly number[]}} Line */

const t = texts.compare.charts;
/** Narrower ones have no names at the lines: the legend tells their forms. */
const NAMES_EM = 36;
const HEIGHT_EM = 11;

export class LineChart {
  /** Points of each line as text, for the scale in `scaleKey`: they only grow while it stands. @type {Map<number, string[]>} */
  points = new Map();
  scaleKey = '';
  width = 500;
  /** Letters for which there is room right of the lines. */
  room = 4;

  /** @param {Palette} palette @param {string} title @param {{log?: number, format: (value: number) => string}} options `log`: the lowest value of a logarithmic scale */
  constructor(palette, title, { log, format }) {
    this.palette = palette;
    this.title = title;
    this.log = log ?? 0;
    this.format = format;
    this.grid = svg('g', { class: 'chart-grid' });
    this.lines = svg('g', {});
    this.names = svg('g', { class: 'chart-names' });
    this.root = svg('svg', { class: 'line-chart', role: 'img', preserveAspectRatio: 'xMinYMin meet' }, this.grid, this.lines, this.names);
    /** @type {Map<number, {line: SVGPolylineElement, mark: SVGPathElement, name: SVGTextElement}>} */
    this.parts = new Map();
  }

  /** @param {readonly Line[]} lines @param {number} planned tokens on the axis @param {(line: Line) => string} [note] behind a name */
  update(lines, planned, note = () => '') {
    const em = this.palette.px('text-xs');
    const { width } = this;
    const height = HEIGHT_EM * em;
    const named = width >= NAMES_EM * em;
    const area = { left: em * 4.8, right: width - em * (named ? this.room * 0.58 + 2 : 1.5), top: em * 0.6, bottom: height - em * 2.4 };
    let most = 0;
    for (const { values } of lines) for (const value of values) if (value > most) most = value;
    const top = this.log > 0 ? 10 ** Math.ceil(Math.log10(Math.max(most, this.log * 100))) : niceTop(most);
    const scaleKey = `${width}:${em}:${area.right}:${top}:${planned}:${lines.map((line) => line.name).join()}`;
    const x = (/** @type {number} */ index) => area.left + (index / Math.max(1, planned - 1)) * (area.right - area.left);
    const y = (/** @type {number} */ value) => area.bottom - this.#share(value, top) * (area.bottom - area.top);
    if (scaleKey !== this.scaleKey) {
      this.scaleKey = scaleKey;
      this.points.clear();
      setAttribute(this.root, 'viewBox', `0 0 ${width} ${height}`);
      this.#axes(area, top, planned, x, y, em);
      this.#build(lines);
    }
    const ends = [];
    /** @type {Set<string>} */
    const notes = new Set();
    for (const line of lines) {
      const { lane, first, values } = line;
      const parts = this.parts.get(lane);
      if (!parts || values.length === 0) {
        parts?.line.setAttribute('points', '');
        parts?.mark.setAttribute('visibility', 'hidden');
        continue;
      }
      let known = this.points.get(lane);
      if (!known) this.points.set(lane, (known = []));
      this.#draw(parts.line, known, line, x, y);
      const last = values[values.length - 1];
      parts.mark.setAttribute('visibility', 'visible');
      parts.mark.setAttribute('transform', `translate(${x(first + values.length - 1).toFixed(1)} ${y(last).toFixed(1)}) scale(${(em / 13).toFixed(3)})`);
      if (!named) continue;
      const extra = notes.has(note(line)) ? '' : note(line);
      notes.add(extra);
      ends.push({ parts, x: x(first + values.length - 1) + em * 0.8, y: y(last), text: extra ? `${line.name} · ${extra}` : line.name });
    }
    this.#place(ends, em, area);
    setAttribute(this.root, 'aria-label', `${this.title}. ${lines.filter((line) => line.values.length > 0).map((line) => fill(t.all, { lane: line.name, last: this.format(line.values[line.values.length - 1]), most: this.format(Math.max(...line.values)) })).join('; ')}.`);
  }

  /** One more token is one more point; anything else is drawn anew.
   * @param {SVGPolylineElement} element @param {string[]} known @param {Line} line @param {(index: number) => number} x @param {(value: number) => number} y */
  #draw(element, known, { first, values }, x, y) {
    for (let i = known.length; i < values.length; i++) known.push(`${x(first + i).toFixed(1)},${y(values[i]).toFixed(1)}`);
    const { points } = element;
    if (points.numberOfItems === values.length - 1 && points.numberOfItems > 0) {
      const point = this.root.createSVGPoint();
      [point.x, point.y] = known[values.length - 1].split(',').map(Number);
      points.appendItem(point);
    } else if (points.numberOfItems !== values.length) {
      element.setAttribute('points', known.slice(0, values.length).join(' '));
    }
  }

  /** @param {number} value @param {number} top @returns {number} 0-1 of the height */
  #share(value, top) {
    if (this.log === 0) return top > 0 ? value / top : 0;
    return Math.max(0, Math.log10(Math.max(value, this.log) / this.log) / Math.log10(top / this.log));
  }

  /** @param {{left: number, right: number, top: number, bottom: number}} area @param {number} top @param {number} planned @param {(index: number) => number} x @param {(value: number) => number} y @param {number} em */
  #axes(area, top, planned, x, y, em) {
    const values = this.log > 0 ? decades(this.log, top) : top > 0 ? [0, top / 2, top] : [0];
    const ticks = [...new Set([0, Math.round((planned - 1) / 2), planned - 1])];
    replace(this.grid,
      values.map((value) => svg('line', { x1: area.left, x2: area.right, y1: y(value), y2: y(value) })),
      values.map((value) => svg('text', { x: area.left - em * 0.5, y: y(value) + em * 0.35, 'text-anchor': 'end' }, this.format(value))),
      ticks.map((index) => svg('text', { x: x(index), y: area.bottom + em * 1.4, 'text-anchor': index === 0 ? 'start' : 'middle' }, index === 0 ? `${t.token} 0` : String(index))));
  }

  /** @param {readonly Line[]} lines */
  #build(lines) {
    this.parts.clear();
    for (const { lane } of lines) {
      this.parts.set(lane, {
        line: svg('polyline', { class: `chart-line lane-ink-${lane % 4}`, 'stroke-dasharray': DASHES[lane % 4] || null }),
        mark: svg('path', { class: `chart-mark lane-ink-${lane % 4}`, d: laneForm(lane) }), name: svg('text', {}),
      });
    }
    const all = [...this.parts.values()];
    replace(this.lines, all.map((part) => part.line), all.map((part) => part.mark));
    replace(this.names, all.map((part) => part.name));
  }

  /** Names apart from each other, each as near as it can be to the end of its line.
   * @param {{parts: {name: SVGTextElement}, x: number, y: number, text: string}[]} ends @param {number} em @param {{top: number, bottom: number}} area */
  #place(ends, em, area) {
    for (const { name } of this.parts.values()) name.textContent = '';
    const line = em * 1.2;
    const sorted = ends.sort((a, b) => a.y - b.y);
    const place = sorted.map((end) => Math.max(end.y, area.top + em * 0.4));
    for (let i = 1; i < place.length; i++) place[i] = Math.max(place[i], place[i - 1] + line);
    const over = (place[place.length - 1] ?? 0) - area.bottom;
    if (over > 0) {
      place[place.length - 1] -= over;
      for (let i = place.length - 2; i >= 0; i--) place[i] = Math.min(place[i], place[i + 1] - line);
    }
    sorted.forEach((end, i) => {
      end.parts.name.textContent = end.text;
      end.parts.name.setAttribute('x', end.x.toFixed(1));
      end.parts.name.setAttribute('y', (place[i] + em * 0.35).toFixed(1));
    });
  }
}

/** A round number above. @param {number} value @returns {number} */
export function niceTop(value) {
  if (!(value > 0)) return 0;
  const unit = 10 ** Math.floor(Math.log10(value));
  return ([1, 1.2, 1.5, 2, 3, 4, 6, 8, 10].find((step) => step * unit >= value) ?? 10) * unit;
}

/** @param {number} low @param {number} top @returns {number[]} */
function decades(low, top) {
  const all = [];
  for (let value = low; value <= top * 1.0001; value *= 10) all.push(value);
  const stride = Math.ceil(all.length / 4);
  return all.filter((_, index) => (all.length - 1 - index) % stride === 0);
}
