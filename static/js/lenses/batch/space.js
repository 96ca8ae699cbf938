/** The layout of the batch lens: one grid of columns for the rows and for the charts below them. */
import { clamp } from '../../ui/canvas.js';
/** @import { Palette } from '../../ui/palette.js' */

/**
 * Steps are from `x` on, `stepsWidth` wide; `latency` is the place of the strips, or null when they are a line of
 * text.
 * @typedef {{wide: boolean, em: number, width: number, label: number, labelHeight: number, x: number, stepsWidth: number,
 *   latency: {x: number, firstWidth: number, restX: number, restWidth: number}|null, rowHeight: number, barTop: number, barHeight: number,
 *   budget: Band, pool: Band|null, host: Band|null, axisY: number, chartsHeight: number}} BatchSpace
 */
/** @typedef {{y: number, height: number}} Band */

const WIDE = 780;
const MAX_ROW = 64;
/** A narrow picture lower than this omits the pool. */
const LOW = 23;

/**
 * @param {{width: number, height: number}} size of the rows' box across, and of the whole picture down
 * @param {Palette} palette @param {number} numRows @param {boolean} host @returns {BatchSpace}
 */
export function batchSpace({ width, height }, palette, numRows, host) {
  const em = palette.px('text-xs');
  const wide = width >= (WIDE / 12) * em;
  const labelHeight = Math.max(24, palette.px('target') - 4) + 2;
  const line = Math.round(em * 1.5);
  const gap = Math.round(em);
  const label = wide ? Math.round(clamp(width * 0.25, em * 16, em * 23)) : 0;
  const latencyWidth = wide ? Math.round(clamp(width * 0.34, em * 21, em * 36)) : 0;
  const x = wide ? label + gap : Math.round(em * 0.7);
  const stepsWidth = Math.max(40, width - x - (wide ? latencyWidth + gap : Math.round(em * 0.7)));
  const latencyX = x + stepsWidth + gap;
  const firstWidth = Math.round(em * 6.2);
  const bar = Math.round(em * 1.6);
  const least = wide ? Math.max(labelHeight + 2, line + em + 2) : labelHeight + bar + line + 5;
  const pool = wide || height >= LOW * em;
  const sizes = wide ? [4.4, 2.8] : [2.6, 1.5];
  const fixed = line * (wide ? 1.2 : 2.6) + em * (1.6 + sizes[0] + (pool ? sizes[1] : 0) + (host ? 1.5 : 0));
  const room = height - fixed - (wide ? em * 1.6 : 0);
  const rowHeight = wide
    ? Math.floor(clamp(room / Math.max(1, numRows), least, Math.max(least, (MAX_ROW / 12) * em)))
    : least;
  const spare = wide ? clamp((room - numRows * rowHeight) / em - 4, 0, 8) : 0;
  const title = wide ? 0 : line;
  const budget = { y: Math.round(em * 0.5) + title, height: Math.round(em * (sizes[0] + spare * 0.6)) };
  let below = budget.y + budget.height;
  const band = (/** @type {number} */ space, /** @type {number} */ tall) => {
    const y = below + Math.round(em * space);
    below = y + Math.round(em * tall);
    return { y, height: Math.round(em * tall) };
  };
  const poolBand = pool ? band((wide ? 0.8 : 0.3) + title / em, sizes[1] + spare * 0.4) : null;
  const hostBand = pool && host ? band(0.4, 1.1) : null;
  return {
    wide,
    em,
    width,
    label,
    labelHeight,
    x,
    stepsWidth,
    rowHeight,
    barTop: wide ? Math.round(rowHeight * 0.14) : labelHeight,
    barHeight: wide ? Math.round(rowHeight * 0.72) : bar,
    budget,
    pool: poolBand,
    host: hostBand,
    axisY: below + 4,
    chartsHeight: below + 8 + line,
    latency: wide
      ? {
          x: latencyX,
          firstWidth,
          restX: latencyX + firstWidth + gap,
          restWidth: Math.max(40, latencyWidth - firstWidth - gap * 1.5),
        }
      : null,
  };
}

const MAX_COLUMN = 26;
const MIN_COLUMN = 3;

/** Steps as columns: one each while they fit, else `per` in one. */
export class StepColumns {
  /** @param {number} base last step before the first one @param {number} numSteps @param {BatchSpace} space */
  constructor(base, numSteps, space) {
    this.base = base;
    this.numSteps = numSteps;
    this.x = space.x;
    this.per = Math.max(1, Math.ceil((numSteps * MIN_COLUMN) / space.stepsWidth));
    this.count = Math.ceil(numSteps / this.per);
    this.width = Math.min((MAX_COLUMN / 12) * space.em, space.stepsWidth / Math.max(1, this.count));
  }

  /** Left edge of a column. @param {number} column */
  left(column) {
    return this.x + column * this.width;
  }

  /** @param {number} step @returns {number} */
  columnOf(step) {
    return Math.floor((step - this.base - 1) / this.per);
  }

  /** First and last step of a column. @param {number} column @returns {[number, number]} */
  steps(column) {
    const from = this.base + 1 + column * this.per;
    return [from, Math.min(from + this.per - 1, this.base + this.numSteps)];
  }

  /** Position of the end of a step. @param {number} position steps since the beginning of all, whole and part */
  at(position) {
    return this.x + ((position - this.base) / this.per) * this.width;
  }

  /** @param {number} x @returns {number|null} the step under it */
  stepAt(x) {
    const step = this.base + 1 + Math.floor(((x - this.x) / this.width) * this.per);
    return x < this.x || step > this.base + this.numSteps ? null : step;
  }
}
