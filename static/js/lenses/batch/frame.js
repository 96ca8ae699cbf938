/** One frame of the batch lens: the still picture of rows and charts, with the cursor, the future and the selection over it. */
import { doubleOutline } from '../../ui/canvas.js';
import { drawAxis, drawBudget, drawPoolFill } from './charts.js';
import { drawBranch, drawLatency, drawRow, latencyScales } from './draw.js';
import { latencyOf } from './latency.js';
import { batchSpace, StepColumns } from './space.js';
/** @import { CanvasStack } from '../../ui/canvas.js' */
/** @import { Ctx } from '../../core/types.d.ts' */
/** @import { BatchModel, BatchRequest } from './model.js' */
/** @import { BatchSpace } from './space.js' */

const VEIL = 0.55;
/** From this width on, the current column is outlined. */
const OUTLINED = 9;

export class BatchFrame {
  /** @type {BatchSpace|null} */
  space = null;
  /** @type {StepColumns|null} */
  columns = null;
  /** @type {readonly BatchRequest[]} */
  rows = [];
  numHost = 0;
  /** The cell of the keyboard cursor. @type {{row: number, step: number}|null} */
  focus = null;
  #key = '';

  /** @param {BatchModel} model @param {Ctx} ctx @param {{rows: CanvasStack, charts: CanvasStack}} stacks */
  constructor(model, ctx, stacks) {
    this.model = model;
    this.ctx = ctx;
    this.stacks = stacks;
  }

  /** @param {{width: number, height: number}} size @param {readonly BatchRequest[]} rows @param {number} numHost @returns {BatchSpace} */
  layout(size, rows, numHost) {
    this.rows = rows;
    this.numHost = numHost;
    this.space = batchSpace(size, this.ctx.palette, rows.length, numHost > 0);
    this.columns = new StepColumns(this.model.base, this.model.steps.length, this.space);
    return this.space;
  }

  /** @param {HTMLElement} scroll @param {BatchSpace} space */
  resize(scroll, space) {
    const { rows, charts } = this.stacks;
    if (rows.resize(scroll.clientWidth, scroll.clientHeight)) this.#key = '';
    if (charts.resize(space.width, space.chartsHeight)) this.#key = '';
  }

  /** @param {number} moment steps since the beginning, whole and part @param {number} step the one that is marked @param {number} scrollTop */
  draw(moment, step, scrollTop) {
    const { space, columns, model, ctx, stacks } = this;
    if (!space || !columns || stacks.rows.width === 0) return;
    const key = JSON.stringify([
      ctx.log.logId,
      model.version,
      this.rows.length,
      scrollTop,
      space,
      ctx.palette.version,
      step,
    ]);
    if (key !== this.#key) {
      this.#key = key;
      this.#still(space, columns, scrollTop);
      this.#charts(space, columns, step);
    }
    this.#marks(space, columns, moment, step, scrollTop);
  }

  /** @param {BatchSpace} space @param {StepColumns} columns @param {number} scrollTop */
  #still(space, columns, scrollTop) {
    const { model, rows, stacks } = this;
    const { palette } = this.ctx;
    const context = stacks.rows.clear('rows');
    const latencies = new Map(rows.map((request) => [request.id, latencyOf(model, request)]));
    const scales = latencyScales(latencies.values());
    const index = new Map(rows.map((request, i) => [request.id, i]));
    if (space.wide)
      rows.forEach((request, i) => {
        const parent = request.fork && index.get(request.fork.parent);
        if (parent === undefined || parent === null || request.firstStep > model.headStep) return;
        drawBranch(
          context,
          palette,
          columns.left(columns.columnOf(request.firstStep)),
          parent * space.rowHeight + space.barTop + space.barHeight / 2 - scrollTop,
          i * space.rowHeight + space.barTop + space.barHeight * 0.3 - scrollTop,
        );
      });
    const first = Math.max(0, Math.floor(scrollTop / space.rowHeight));
    const last = Math.min(rows.length, Math.ceil((scrollTop + stacks.rows.height) / space.rowHeight));
    for (let i = first; i < last; i++) {
      const top = i * space.rowHeight - scrollTop;
      drawRow(context, palette, model, rows[i], columns, space, top);
      const latency = latencies.get(rows[i].id);
      if (latency) drawLatency(context, palette, latency, scales, space, top);
    }
  }

  /** @param {BatchSpace} space @param {StepColumns} columns @param {number} step */
  #charts(space, columns, step) {
    const { palette, log } = this.ctx;
    const context = this.stacks.charts.clear('charts');
    drawBudget(context, palette, this.model, columns, space);
    drawPoolFill(context, palette, this.model, columns, space, log.header?.pool.num_blocks ?? 1, this.numHost);
    drawAxis(context, palette, columns, space, step);
  }

  /** @param {BatchSpace} space @param {StepColumns} columns @param {number} moment @param {number} step @param {number} scrollTop */
  #marks(space, columns, moment, step, scrollTop) {
    const { stacks, ctx, rows } = this;
    const { palette, ui } = ctx;
    const context = stacks.rows.clear('row-marks');
    const below = stacks.charts.clear('chart-marks');
    const rowsHeight = Math.min(stacks.rows.height, rows.length * space.rowHeight - scrollTop);
    if (space.wide) {
      this.#moment(context, columns, moment, step, 0, rowsHeight);
      this.#moment(below, columns, moment, step, 0, space.axisY);
    } else {
      // Texts stand between the bars and between the charts.
      rows.forEach((_, i) => {
        const top = i * space.rowHeight - scrollTop + space.barTop;
        this.#moment(context, columns, moment, step, top + 1, space.barHeight - 2);
      });
      for (const band of [space.budget, space.pool, space.host])
        if (band) this.#moment(below, columns, moment, step, band.y, band.height);
    }
    const { shown } = ui;
    const chosen = rows.findIndex((request) => shown !== null && 'request' in shown && shown.request === request.id);
    if (chosen >= 0) {
      const y = chosen * space.rowHeight - scrollTop;
      context.fillStyle = palette.css('selected', 0.08);
      context.fillRect(0, y, space.width, space.rowHeight - 1);
      const { pinned } = ui.selection;
      if (pinned && 'request' in pinned && pinned.request === rows[chosen].id) {
        context.fillStyle = palette.css('selected');
        context.fillRect(0, y, 3 * palette.px('mark'), space.rowHeight - 1);
      }
    }
    if (!this.focus) return;
    doubleOutline(
      context,
      columns.left(columns.columnOf(this.focus.step)),
      this.focus.row * space.rowHeight + space.barTop - scrollTop,
      Math.max(4, columns.width - 1),
      space.barHeight,
      {
        line: palette.css('selected'),
        gap: palette.css('selected-gap'),
        mark: palette.px('mark'),
      },
    );
  }

  /** The future, dimmed, and the current step: outlined if its column is wide enough, else a line with a notch.
   * @param {CanvasRenderingContext2D} context @param {StepColumns} columns @param {number} moment @param {number} step @param {number} y @param {number} height */
  #moment(context, columns, moment, step, y, height) {
    const { palette } = this.ctx;
    const { em, x, stepsWidth } = /** @type {BatchSpace} */ (this.space);
    const now = columns.at(moment);
    const end = columns.left(columns.count);
    if (end - now > 0.5) {
      context.fillStyle = palette.css('ground', VEIL);
      context.fillRect(now, y - 2, Math.max(end + em * 1.2, x + stepsWidth + 1) - now, height + 2);
    }
    if (step <= columns.base || step > columns.base + columns.numSteps) return;
    const mark = palette.px('mark');
    context.fillStyle = context.strokeStyle = palette.css('now');
    context.lineWidth = mark;
    if (columns.width >= OUTLINED) {
      context.strokeRect(columns.left(columns.columnOf(step)) - 1, y - 2, columns.width + 1, height + 4);
      return;
    }
    context.fillRect(Math.round(now) - mark, y, 2 * mark, height);
    context.beginPath();
    context.moveTo(now - 4 * mark, y);
    context.lineTo(now + 4 * mark, y);
    context.lineTo(now, y + 5 * mark);
    context.fill();
  }

  /** The thing under a point of the rows or, with `scrollTop` null, of the charts.
   * @param {number} x @param {number} y @param {number|null} scrollTop
   * @returns {{row: number, step: number|null, part: 'rows'|'latency'|'budget'|'pool'|null}} */
  hit(x, y, scrollTop) {
    const { space, columns, rows } = this;
    if (!space || !columns) return { row: -1, step: null, part: null };
    const step = x < space.x + space.stepsWidth ? columns.stepAt(x) : null;
    if (scrollTop === null)
      return { row: -1, step, part: step === null ? null : !space.pool || y < space.pool.y - 4 ? 'budget' : 'pool' };
    const row = Math.floor((y + scrollTop) / space.rowHeight);
    if (row >= rows.length) return { row: -1, step: null, part: null };
    const inBar =
      space.wide ||
      Math.abs(y + scrollTop - row * space.rowHeight - space.barTop - space.barHeight / 2) < space.barHeight;
    const late = space.latency
      ? x >= space.latency.x
      : y + scrollTop - row * space.rowHeight > space.barTop + space.barHeight + 2;
    return { row, step: inBar ? step : null, part: late ? 'latency' : inBar && step !== null ? 'rows' : null };
  }
}
