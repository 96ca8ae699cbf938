/** Draws the rows of the attention lens at one progress. */
import { layerAt, phasesOf, progressOfLayer } from '../../core/phases.js';
import { clamp, fitText, lerp, span, useFont } from '../../ui/canvas.js';
import { fill, percent } from '../../ui/format.js';
import { chipsOf } from '../cache/chips.js';
import { drawBoundaries, drawChips } from '../cache/grid.js';
import { edgesAt } from '../cache/picture.js';
import { headMean, headRow, largest, weightOf, withoutSink } from '../shared/frame-rows.js';
import { drawLabels, layoutBars, placeLabels } from '../shared/opened-row.js';
import { texts } from '../shared/texts.js';
import { tokenName } from '../shared/token-name.js';
import { drawBrackets, drawHeadRow, drawPositions, drawQueryChip, drawTop } from './draw.js';
import { layoutHeads, numKvHeads } from './layout.js';
/** @import { CanvasStack } from '../../ui/canvas.js' */
/** @import { Ctx, Pack } from '../../core/types.d.ts' */
/** @import { AttentionSpace, HeadRow } from './layout.js' */
/** @import { BlockHistory } from '../shared/block-history.js' */
/** @import { CachePicture } from '../cache/picture.js' */
/** @import { ColumnEdges } from '../cache/columns.js' */
/** @import { WeightRow } from '../shared/frame-rows.js' */

const NUM_LABELS = 5;
const SINK_SHARE = 0.15;

export class AttentionFrame {
  /** @type {CachePicture|null} */
  picture = null;
  /** @type {AttentionSpace|null} */
  space = null;
  /** @type {ColumnEdges|null} */
  edges = null;
  /** @type {HeadRow[]} */
  rows = [];
  /** Tokens that the shown query reads. */
  numRead = 0;
  /** Rows by step, so that a frame doesn't compute anything twice. @type {Map<string, WeightRow|null>} */
  #known = new Map();
  /** What is on the canvas. */
  #drawnKey = '';

  /** @param {CanvasStack} stack @param {Ctx} ctx @param {BlockHistory} history */
  constructor(stack, ctx, history) {
    this.stack = stack;
    this.ctx = ctx;
    this.history = history;
  }

  /** @param {CachePicture} picture @param {AttentionSpace} space */
  reset(picture, space) {
    this.picture = picture;
    this.space = space;
    this.#known.clear();
    this.#drawnKey = '';
    this.edges = edgesAt(picture, 1);
    const row = picture.request ? this.rowOf(null) : null;
    this.numRead = row?.numTokens ?? 0;
  }

  /** The canvas was used for something else. */
  blank() {
    this.#drawnKey = '';
  }

  get left() {
    return this.space?.left ?? 0;
  }

  /** The mean, then each head. @returns {(number|null)[]} */
  heads() {
    const { log, ui } = this.ctx;
    const count = log.header?.model.layers[ui.layer]?.query_heads ?? 0;
    return [null, ...Array.from({ length: count }, (_, head) => head)];
  }

  /** The pack with the head rows of the chosen layer. @param {number} step @returns {Pack|null} */
  #pack(step) {
    const { frames, ui, timeline, log } = this.ctx;
    if (step <= 0) return null;
    const sinks = log.header?.model.layers[ui.layer]?.sinks ?? false;
    const request = this.picture?.request?.id;
    const pack = frames.step(step, request);
    const fits = pack && pack.meta.layer === ui.layer ? pack : null;
    if (fits && (fits.meta.bin ?? 1) === 1 && !sinks) return fits;
    return (timeline.moving ? null : frames.heads(step, ui.layer, request)) ?? fits;
  }

  /** @param {number} step @param {number|null} head @returns {WeightRow|null} */
  #row(step, head) {
    const key = `${step}/${head}`;
    const found = this.#known.get(key);
    if (found !== undefined) return found;
    const pack = this.#pack(step);
    let row = pack ? (head === null ? headMean(pack) : headRow(pack, head)) : null;
    const request = this.picture?.request;
    if (pack && pack.meta.request_id !== undefined && request && pack.meta.request_id !== request.id) row = null;
    if (row && this.ctx.ui.hideSink) row = withoutSink(row);
    this.#known.set(key, row);
    return row;
  }

  /** Row of a head, or the mean, in the last step of the picture. @param {number|null} head @returns {WeightRow|null} */
  rowOf(head) {
    return this.picture ? this.#row(this.picture.attentionAfter, head) : null;
  }

  /** @param {number|null} head @param {number} position @returns {number|null} */
  weightAt(head, position) {
    const row = this.rowOf(head);
    return row && row.bin === 1 && position < row.numTokens ? weightOf(row, position, position + 1) : null;
  }

  /** The share that a learned sink takes of a head. @param {number|null} head @returns {number|null} */
  sinkShare(head) {
    const pack = this.picture ? this.#pack(this.picture.attentionAfter) : null;
    const shares = pack?.arrays.sink_share;
    return shares && head !== null && head < shares.length ? shares[head] : null;
  }

  /** How far the rows have changed from the last step's to this step's. @param {number} progress @returns {number} */
  #turn(progress) {
    const { picture, ctx } = this;
    if (!picture?.step || !picture.chunk) return 1;
    const order = picture.step.written[0]?.layers ?? [];
    const index = order.indexOf(ctx.ui.layer);
    const moment = layerAt(picture.step, progress);
    if (moment && moment.layer === ctx.ui.layer && !ctx.timeline.moving) return 1;
    const at = index < 0 ? phasesOf(picture.step).layers[1] : progressOfLayer(picture.step, index);
    return span(progress, at - 0.06, at + 0.06);
  }

  /** @param {number} progress @param {{head: number|null, position: number}|null} pointed */
  draw(progress, pointed) {
    const { picture, space, ctx, stack } = this;
    const model = ctx.log.header?.model;
    if (!picture?.request || !space || !model) return;
    const { palette, ui } = ctx;
    const edges = edgesAt(picture, progress);
    const turn = this.#turn(progress);
    const key = `${turn}/${edges.t}/${pointed?.head}/${pointed?.position}/${ctx.timeline.moving}`;
    if (key === this.#drawnKey) return;
    this.#drawnKey = key;
    const geometry = model.layers[ui.layer];
    this.edges = edges;
    const heads = geometry?.query_heads ?? model.num_query_heads;
    const numKv = numKvHeads(geometry, model);
    const chosen = ui.head !== null && ui.head < heads ? ui.head : null;
    const { rows, brackets } = layoutHeads(space, heads, numKv, chosen, palette.px('text-xs'));
    this.rows = rows;
    const context = stack.clear('rows');
    const latent = geometry?.cache === 'latent';
    drawChips(context, palette, space, chipsOf(picture, picture.stages.after, edges, 1, this.history, ui.shown));
    drawBrackets(context, palette, space, brackets, rows, latent, latent ? texts.attention.latent : texts.attention.kv);
    this.#boundary(context); // below the labels
    const most = this.#most(turn);
    let numTokens = 0;
    for (const row of rows) {
      drawQueryChip(
        context,
        palette,
        space,
        row,
        row.open && row.head !== null,
        pointed?.head === row.head && pointed !== null,
      );
      const weights = this.#between(row.head, turn);
      if (!weights) continue;
      numTokens = Math.max(numTokens, weights.numTokens);
      this.#drawRow(context, row, weights, most);
    }
    if (numTokens === 0) this.#quiet(context, rows);
    drawPositions(context, palette, space, edges, numTokens);
    this.#drawPointed(stack.clear('motion'), pointed);
  }

  /** @param {number|null} head @param {number} turn @returns {WeightRow|null} */
  #between(head, turn) {
    const { picture } = this;
    if (!picture) return null;
    const after = this.#row(picture.attentionAfter, head);
    if (turn >= 1 || picture.attentionBefore === picture.attentionAfter) return after;
    const before = this.#row(picture.attentionBefore, head);
    if (!before || !after || before.bin !== 1 || after.bin !== 1) return turn < 0.5 ? before : after;
    const weights = after.weights.map((weight, i) => lerp(before.weights[i] ?? 0, weight, turn));
    return { weights, bin: 1, numTokens: turn > 0 ? after.numTokens : before.numTokens };
  }

  /** The weight of a full bar: one scale for all heads, so that they are comparable. @param {number} turn @returns {number} */
  #most(turn) {
    let most = 0;
    for (const head of this.heads()) {
      const row = this.#between(head, turn);
      if (row) for (const weight of row.weights) most = Math.max(most, weight);
    }
    return most;
  }

  /** @param {CanvasRenderingContext2D} context @param {HeadRow} row @param {WeightRow} weights @param {number} most */
  #drawRow(context, row, weights, most) {
    const { picture, space, edges, ctx } = this;
    const request = picture?.request;
    if (!request || !space || !edges) return;
    const { palette } = ctx;
    const room = Math.max(2, row.height - (row.open ? 12 : Math.min(6, row.height * 0.2)));
    const bars = layoutBars(edges, weights, room, most);
    drawHeadRow(context, palette, row, edges, bars, 1);
    const top = largest(weights, 1)[0];
    if (top)
      drawTop(
        context,
        palette,
        space,
        row,
        edges.right + space.noteX,
        top.weight,
        this.#name(top.from, top.to, top.weight),
        row.open,
      );
    if (!row.open || (ctx.timeline.moving && ctx.timeline.speed > 1)) return;
    useFont(context, palette.font('text-xs'));
    const line = palette.px('text-xs') * 1.3;
    const labels = placeLabels(
      context,
      bars,
      NUM_LABELS,
      (bar) =>
        `${percent(bar.peakWeight)} ${this.#name(bar.peak ?? bar.from, bar.peak === null ? bar.to : bar.peak + 1, bar.peakWeight)}`,
      (list) => fill(texts.cache.attention.also, { list }),
      {
        left: space.left - 2,
        right: edges.right + 4,
        top: row.top + 2,
        base: row.base,
        line,
      },
    );
    drawLabels(context, labels, {
      ink: palette.css('ink'),
      quiet: palette.css('ink-2'),
      line: palette.css('line-strong'),
      ground: palette.css('row-open'),
      height: palette.px('text-xs'),
    });
  }

  /** @param {number} from @param {number} to @param {number} weight @returns {string} */
  #name(from, to, weight) {
    const pieces = this.picture?.request?.pieces;
    if (to - from > 1) return `${from}–${to - 1}`;
    return from === 0 && weight > SINK_SHARE ? texts.attention.sinkToken : tokenName(pieces?.[from], from);
  }

  /** @param {CanvasRenderingContext2D} context @param {readonly HeadRow[]} rows */
  #quiet(context, rows) {
    const { space, picture, ctx } = this;
    if (!space || !picture) return;
    const problem = ctx.frames.problem('step', picture.attentionAfter, picture.request?.id);
    useFont(context, ctx.palette.font('text-s'));
    context.fillStyle = ctx.palette.css('ink-3');
    context.textAlign = 'left';
    context.textBaseline = 'middle';
    const text = problem ? texts.attention.missing : texts.attention.pending;
    context.fillText(
      fitText(context, text, space.columnsWidth),
      space.left + 6,
      rows[0] ? rows[0].top + rows[0].height / 2 : space.rowsTop,
    );
  }

  /** @param {CanvasRenderingContext2D} context */
  #boundary(context) {
    const { picture, edges, space, ctx } = this;
    const request = picture?.request;
    if (!request || !edges || !space) return;
    const p = request.promptLength;
    if (p <= 0 || p >= edges.after.numShown) return;
    drawBoundaries(
      context,
      ctx.palette,
      [(edges.rightOf(p - 1) + edges.leftOf(p)) / 2],
      space.rowsTop,
      space.axisTop - 2,
    );
  }

  /** Ring around the hovered or selected cell, and a thin line through its column.
   * @param {CanvasRenderingContext2D} context @param {{head: number|null, position: number}|null} pointed */
  #drawPointed(context, pointed) {
    const { picture, edges, space, ctx, rows } = this;
    if (!edges || !space || !picture?.request) return;
    const { palette, ui } = ctx;
    const shown = ui.shown;
    const at =
      pointed ??
      (shown && (shown.kind === 'entry' || shown.kind === 'token') && shown.request === picture.request.id
        ? { head: ui.head, position: shown.position }
        : null);
    if (!at || at.position >= edges.after.numShown) return;
    const c = edges.columnOf(at.position);
    if (c < 0 || c >= edges.count) return;
    const x = edges.x0[c];
    const width = Math.max(2, edges.x1[c] - x - 1);
    const bottom = rows[rows.length - 1];
    context.strokeStyle = palette.css('selected');
    context.lineWidth = palette.px('mark');
    context.globalAlpha = 0.55;
    context.strokeRect(
      Math.round(x) - 0.5,
      space.rowsTop,
      Math.round(width) + 1,
      clamp(bottom.top + bottom.height - space.rowsTop, 0, space.height),
    );
    context.globalAlpha = 1;
    const row = rows.find((candidate) => candidate.head === at.head);
    if (!row) return;
    context.lineWidth = 2 * palette.px('mark');
    context.strokeRect(Math.round(x) - 1, row.top + 1, Math.round(width) + 2, row.height - 1);
  }
}
