/** A small chart in SVG with two logarithmic axes: frame, grid, ticks, lines, and labels that keep off each other. */
import { svg } from '../../ui/dom.js';

/** @typedef {{x: number, y: number}} Point in data */

/** One axis of a chart. `label`: of a tick. @typedef {{low: number, high: number, label: (value: number) => string}} Range */

export class LogChart {
  /** @param {{width: number, height: number, em: number, x: Range, y: Range, title: string, xTitle: string, left: number}} size */
  constructor({ width, height, em, x, y, title, xTitle, left }) {
    this.em = em;
    this.x = x;
    this.y = y;
    this.box = { left, top: em * 0.9, right: width - em * 1.2, bottom: height - em * 3.3 };
    this.root = svg('svg', { class: 'exp-chart', width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title });
    this.#axes(xTitle);
  }

  /** @param {number} value @returns {number} */
  px(value) {
    const { left, right } = this.box;
    return left + (Math.log(value / this.x.low) / Math.log(this.x.high / this.x.low)) * (right - left);
  }

  /** @param {number} value @returns {number} */
  py(value) {
    const { top, bottom } = this.box;
    return bottom - (Math.log(value / this.y.low) / Math.log(this.y.high / this.y.low)) * (bottom - top);
  }

  /** The value at a place. @param {number} px @returns {number} */
  valueAt(px) {
    const { left, right } = this.box;
    return this.x.low * (this.x.high / this.x.low) ** ((px - left) / (right - left));
  }

  /** @param {string} xTitle */
  #axes(xTitle) {
    const { box, em, x, y, root } = this;
    for (let power = Math.ceil(Math.log10(y.low) - 1e-9); power <= Math.log10(y.high) + 1e-9; power++) {
      const at = this.py(10 ** power);
      root.append(svg('line', { class: 'exp-grid', x1: box.left, x2: box.right, y1: at, y2: at }),
        svg('text', { class: 'exp-tick', x: box.left - em * 0.5, y: at + em * 0.3, 'text-anchor': 'end' }, y.label(10 ** power)));
    }
    let until = -Infinity;
    const [first, last] = [Math.ceil(Math.log2(x.low) - 1e-9), Math.floor(Math.log2(x.high) + 1e-9)];
    for (let power = first; power <= last; power++) {
      const at = this.px(2 ** power);
      root.append(svg('line', { class: 'exp-grid', x1: at, x2: at, y1: box.bottom, y2: box.bottom + em * 0.35 }));
      const half = x.label(2 ** power).length * em * 0.31;
      if (at - half < until + em * 0.5 || at + half > box.right + em * 1.2) continue;
      until = at + half;
      root.append(svg('text', { class: 'exp-tick', x: at, y: box.bottom + em * 1.65, 'text-anchor': 'middle' }, x.label(2 ** power)));
    }
    root.append(svg('line', { class: 'exp-axis', x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
      svg('text', { class: 'exp-tick', x: box.right, y: box.bottom + em * 2.95, 'text-anchor': 'end' }, xTitle));
  }

  /** @param {readonly Point[]} points @param {string} className */
  line(points, className) {
    if (points.length < 2) return;
    const path = points.map(({ x, y }, index) => `${index ? 'L' : 'M'}${this.px(x).toFixed(1)} ${this.py(y).toFixed(1)}`).join('');
    this.root.append(svg('path', { class: className, d: path }));
  }

  /** @param {number} value @param {string} className */
  upright(value, className) {
    const at = this.px(value);
    this.root.append(svg('line', { class: className, x1: at, x2: at, y1: this.box.top, y2: this.box.bottom }));
  }

  /** @param {Point} point @param {string} className @param {number} radius in em */
  dot(point, className, radius = 0.35) {
    this.root.append(svg('circle', { class: className, cx: this.px(point.x), cy: this.py(point.y), r: radius * this.em }));
  }

  /**
   * A text beside a point, in pixels off it. @param {Point} point @param {string} text @param {string} className
   * @param {{dx?: number, dy?: number, anchor?: 'start'|'middle'|'end'}} [off] in em
   */
  text(point, text, className, { dx = 0, dy = 0, anchor = 'start' } = {}) {
    const width = text.length * this.em * 0.56;
    let x = this.px(point.x) + dx * this.em;
    const [from, to] = anchor === 'start' ? [x, x + width] : anchor === 'end' ? [x - width, x] : [x - width / 2, x + width / 2];
    if (to > this.box.right) x -= to - this.box.right;
    else if (from < this.box.left) x += this.box.left - from;
    this.root.append(svg('text', { class: className, x, y: this.py(point.y) + dy * this.em, 'text-anchor': anchor }, text));
  }
}

/** Where labels that stand on their lines begin, right of the left edge, so that none lies on another: the lower one gives way.
 * @param {readonly {y: number, text: string}[]} labels @param {number} em @returns {number[]} in em */
export function beginnings(labels, em) {
  const order = labels.map((_, index) => index).sort((a, b) => labels[a].y - labels[b].y);
  const starts = labels.map(() => 0.4);
  order.forEach((index, i) => {
    for (const above of order.slice(0, i)) {
      if (labels[index].y - labels[above].y < em * 1.3) starts[index] = Math.max(starts[index], starts[above] + labels[above].text.length * 0.6 + 1.2);
    }
  });
  return starts;
}
