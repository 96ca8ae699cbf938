/** Where everything stands in the batch lens: one grid of columns for the rows and for the charts below them. */
import { clamp } from '../canvas.js';

/** @typedef {import('../palette.js').Palette} Palette */

/** `from` and `width` of the columns that stand for steps; `latency` is where the strips stand, or null when they are a line of text.
 * @typedef {{wide: boolean, em: number, width: number, label: number, x: number, stepsWidth: number, latency: {x: number, firstWidth: number, restX: number, restWidth: number}|null,
 *   rowHeight: number, barTop: number, barHeight: number, budget: {y: number, height: number}, pool: {y: number, height: number}, host: {y: number, height: number}|null, axisY: number, chartsHeight: number}} BatchSpace */

const WIDE = 780;
const MAX_ROW = 60;

/**
 * @param {{width: number, height: number, chartsRoom: number}} size of the rows' box, and of the whole picture
 * @param {Palette} palette @param {number} numRows @param {boolean} host @returns {BatchSpace}
 */
export function batchSpace({ width, height, chartsRoom }, palette, numRows, host) {
  const em = palette.px('text-xs');
  const target = Math.max(24, palette.px('target') - 4);
  const wide = width >= (WIDE / 12) * em;
  const line = Math.round(em * 1.5);
  const label = wide ? Math.round(clamp(width * 0.25, em * 16, em * 23)) : 0;
  const gap = Math.round(em);
  const latencyWidth = wide ? Math.round(clamp(width * 0.34, em * 21, em * 36)) : 0;
  const x = wide ? label + gap : Math.round(em * 0.7);
  const stepsWidth = Math.max(40, width - x - (wide ? latencyWidth + gap : Math.round(em * 0.7)));
  const latencyX = x + stepsWidth + gap;
  const firstWidth = Math.round(em * 6.2);
  const bar = Math.round(em * 1.6);
  const least = wide ? Math.max(target + 4, line + em + 2) : target + bar + line + 6;
  const rowHeight = wide ? Math.round(clamp(height / Math.max(1, numRows), least, Math.max(least, (MAX_ROW / 12) * em))) : least;
  const barTop = wide ? Math.round(rowHeight * 0.14) : target + 1;
  const barHeight = wide ? Math.round(rowHeight * 0.72) : bar;
  const [budgetEm, poolEm] = chartsRoom > em * 32 ? [5.2, 3.4] : wide ? [3.6, 2.4] : [2.6, 1.5];
  const title = wide ? 0 : line;
  const heading = Math.round(em * 0.5);
  const budget = { y: heading + title, height: Math.round(em * budgetEm) };
  const pool = { y: budget.y + budget.height + Math.round(em * (wide ? 0.8 : 0.3)) + title, height: Math.round(em * poolEm) };
  const hostBand = host ? { y: pool.y + pool.height + Math.round(em * 0.4), height: Math.round(em * 1.1) } : null;
  const axisY = (hostBand ? hostBand.y + hostBand.height : pool.y + pool.height) + 4;
  return {
    wide, em, width, label, x, stepsWidth, rowHeight, barTop, barHeight, budget, pool, host: hostBand, axisY,
    latency: wide ? { x: latencyX, firstWidth, restX: latencyX + firstWidth + gap, restWidth: Math.max(40, latencyWidth - firstWidth - gap * 1.5) } : null,
    chartsHeight: axisY + line + 4,
  };
}

const MAX_COLUMN = 26;
const MIN_COLUMN = 3;

/** Steps as columns: one each while there is room, else `per` in one. */
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

  /** Where the end of a step stands. @param {number} position steps since the beginning of all, whole and part */
  at(position) {
    return this.x + ((position - this.base) / this.per) * this.width;
  }

  /** @param {number} x @returns {number|null} the step under it */
  stepAt(x) {
    const step = this.base + 1 + Math.floor(((x - this.x) / this.width) * this.per);
    return x < this.x || step > this.base + this.numSteps ? null : step;
  }
}
