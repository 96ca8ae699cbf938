/** Draws the cache lens at one progress. It keeps only what later frames can reuse. */
import { CUT_SPEED, layerAt, numLayersWritten, phasesOf, WRITE_SHARE, within } from '../../core/phases.js';
import { clamp, fitText, span, textWidth, useFont } from '../../ui/canvas.js';
import { fill, percent } from '../../ui/format.js';
import { headMean, largest, meanRow, weightOf, withoutSink } from '../shared/frame-rows.js';
import { drawBars, drawLabels, drawQuery, layoutBars, placeLabels } from '../shared/opened-row.js';
import { texts } from '../shared/texts.js';
import { tokenName } from '../shared/token-name.js';
import { paintCells } from './cell-paint.js';
import { axisParts, chipsOf } from './chips.js';
import { drawCells, drawNotches, drawSelection, drawWriting, freshSpan } from './draw.js';
import { stageAt } from './entries.js';
import { drawAxis, drawBoundaries, drawChips, drawLayerNames, drawTokens } from './grid.js';
import { edgesAt, opennessAt, waveAt } from './picture.js';
import { layoutRows, openWeights, rowApart } from './rows.js';
/** @import { Bitmap, CanvasStack } from '../../ui/canvas.js' */
/** @import { Ctx, LayerMoment } from '../../core/types.d.ts' */
/** @import { BlockHistory } from '../shared/block-history.js' */
/** @import { Levels } from './levels.js' */
/** @import { CachePicture } from './picture.js' */
/** @import { CacheSpace } from './space.js' */
/** @import { CellTables } from './cell-paint.js' */
/** @import { ColumnEdges } from './columns.js' */
/** @import { Entries } from './entries.js' */
/** @import { WeightRow } from '../shared/frame-rows.js' */
/** @import { Bar } from '../shared/opened-row.js' */
/** @import { Row } from './rows.js' */

/** A layer faster than this is part of a sweep: its query and labels aren't shown one by one. */
const READABLE_MS = 110;
const NUM_LABELS = 5;
/** From this share on, the first token is called a sink. */
const SINK_SHARE = 0.15;

export class CacheFrame {
  /** @type {CachePicture|null} */
  picture = null;
  /** @type {Levels|null} */
  levels = null;
  /** @type {CellTables|null} */
  tables = null;
  /** @type {BlockHistory|null} */
  history = null;
  /** @type {ColumnEdges|null} */
  edges = null;
  /** @type {CacheSpace|null} */
  space = null;
  /** @type {Row[]} */
  rows = [];
  /** The open row, where it is drawn separately (phone). @type {Row|null} */
  apart = null;
  /** @type {number[]} */
  table = [];
  #painted = /** @type {(Entries|null)[]} */ ([null, null]);
  #paintedEdges = /** @type {ColumnEdges|null} */ (null);
  #gridKey = '';
  #gridEntries = /** @type {Entries|null} */ (null);
  /** The key of the cell layer's contents, so that it isn't repainted while it would look the same.
   * @type {(Entries|ColumnEdges|number)[]} */
  #cells = [];

  /** @param {CanvasStack} stack @param {Ctx} ctx @param {readonly [Bitmap, Bitmap]} bitmaps */
  constructor(stack, ctx, bitmaps) {
    this.stack = stack;
    this.ctx = ctx;
    this.bitmaps = bitmaps;
  }

  /** A new picture: everything painted is invalid.
   * @param {CachePicture} picture @param {Levels|null} levels @param {CellTables} tables @param {BlockHistory} history */
  reset(picture, levels, tables, history) {
    Object.assign(this, { picture, levels, tables, history });
    this.#painted = [null, null];
    this.#gridKey = '';
    this.#cells = [];
  }

  get layers() {
    return this.ctx.log.header?.model.layers ?? [];
  }

  /** @param {number} progress @param {(wave: number) => CacheSpace} spaceOf */
  draw(progress, spaceOf) {
    const { picture, ctx } = this;
    if (!picture) return;
    const cut = ctx.timeline.moving && ctx.timeline.speed >= CUT_SPEED;
    const sweep = cut || !picture.chunk ? null : picture.step;
    const space = spaceOf(sweep ? waveAt(picture, progress) : 0);
    const edges = edgesAt(picture, progress);
    const weights = openWeights(this.layers.length, sweep, progress, ctx.ui.layer, opennessAt(picture, progress));
    const rows = layoutRows(space.rows, space.phone ? weights.map(() => 0) : weights);
    const open = picture.request ? weights.indexOf(Math.max(...weights)) : -1;
    const stage = stageAt(picture.step, progress, picture.stages);
    this.apart = space.phone && open >= 0 ? rowApart(open, space.openTop, space.openHeight, space.rows) : null;
    Object.assign(this, { space, edges, rows });
    const entries = stage.t >= 0.5 || stage.sweep ? stage.to : stage.from;
    this.table = entries.table;
    this.#paint(stage.from, stage.to, edges, space);
    this.#drawGrid(progress, entries, edges, space);
    this.#drawCellLayer(progress, stage, cut);
    this.#drawMotion(progress, stage, weights, cut);
  }

  /** @param {Entries} from @param {Entries} to @param {ColumnEdges} edges @param {CacheSpace} space */
  #paint(from, to, edges, space) {
    const { levels, tables, picture } = this;
    if (!tables || !picture) return;
    const width = space.columnsWidth + 4;
    [from, to].forEach((entries, index) => {
      if (this.#painted[index] === entries && this.#paintedEdges === edges) return;
      this.#painted[index] = entries;
      paintCells(this.bitmaps[index], {
        edges,
        entries,
        tables,
        layers: this.layers,
        view: this.ctx.ui.view,
        ratio: this.stack.ratio,
        left: space.columnsLeft,
        width,
        blockSize: picture.scene.after.blockSize,
        gapFrom: space.phone ? 9 : 4,
        levels,
      });
    });
    this.#paintedEdges = edges;
  }

  /** @param {number} progress @param {Entries} entries @param {ColumnEdges} edges @param {CacheSpace} space */
  #drawGrid(progress, entries, edges, space) {
    const { picture, ctx, history } = this;
    if (!picture || !history) return;
    const key = `${edges.t}/${gridMoment(picture, progress)}`;
    if (key === this.#gridKey && entries === this.#gridEntries) return;
    this.#gridKey = key;
    this.#gridEntries = entries;
    const chips = chipsOf(picture, entries, edges, progress, history, ctx.ui.shown);
    const context = this.stack.clear('grid');
    drawChips(context, ctx.palette, space, chips);
    drawAxis(context, ctx.palette, space, axisParts(picture, edges, ctx.log), edges.right); // the query's text is to the right of the columns
    const { request } = picture;
    if (!space.phone && request)
      drawTokens(context, ctx.palette, space, edges, (p) =>
        p < request.tokens.length ? tokenName(request.pieces[p], p) : '',
      );
  }

  /** @param {number} progress @param {ReturnType<typeof stageAt>} stage @param {boolean} cut */
  #drawCellLayer(progress, stage, cut) {
    const { picture, ctx, stack, edges, space, bitmaps } = this;
    if (!picture || !edges || !space) return;
    const turned = this.#turned(progress, stage, cut);
    const rows = this.apart ? [...this.rows, this.apart] : this.rows;
    const cells = [edges, stage.from, stage.to, space.columnsLeft, space.columnsWidth];
    for (const row of rows)
      cells.push(
        row.weight,
        row.top,
        row.height,
        row.keyTop,
        row.keyHeight,
        row.valueTop,
        row.valueHeight,
        turned(row.layer),
      );
    if (cells.length === this.#cells.length && cells.every((value, index) => value === this.#cells[index])) return;
    this.#cells = cells;
    const context = stack.clear('cells');
    const frame = {
      context,
      palette: ctx.palette,
      space,
      edges,
      layers: this.layers,
      from: stage.from,
      to: stage.to,
      fromBitmap: bitmaps[0],
      toBitmap: bitmaps[1],
      turned,
      ratio: stack.ratio,
      blockSize: picture.scene.after.blockSize,
    };
    drawCells({ ...frame, rows: this.rows });
    if (this.apart) drawCells({ ...frame, rows: [this.apart] });
  }

  /** How far each row has changed. @param {number} progress @param {ReturnType<typeof stageAt>} stage @param {boolean} cut */
  #turned(progress, stage, cut) {
    const step = this.picture?.step;
    if (!step || !stage.sweep) return () => stage.t;
    const [from, to] = phasesOf(step).layers;
    if (cut) return () => Number(progress > (from + to) / 2);
    const order = step.written[0]?.layers ?? [];
    const done = numLayersWritten(step, progress);
    const written = new Set(order.slice(0, done));
    const known = new Set(order);
    return (/** @type {number} */ layer) => Number(known.has(layer) ? written.has(layer) : done > 0);
  }

  /** @param {number} progress @param {ReturnType<typeof stageAt>} stage @param {Float64Array} weights @param {boolean} cut */
  #drawMotion(progress, stage, weights, cut) {
    const { picture, ctx, stack, edges, space, rows, apart } = this;
    if (!picture || !edges || !space) return;
    const context = stack.clear('motion');
    const { palette, ui } = ctx;
    const { request, chunk } = picture;
    const turned = this.#turned(progress, stage, cut);
    const all = apart ? [...rows, apart] : rows;
    drawLayerNames(context, palette, space, all, (layer) => this.#halfNames(layer));
    if (!request) return;
    if (apart) markRow(context, palette.css('now'), rows[apart.layer], space.columnsLeft - 3);
    this.#drawBoundary(context);
    const moment = cut ? null : layerAt(chunk ? picture.step : null, progress);
    for (const row of apart ? [apart] : rows) if (row.weight > 0.04) this.#drawOpen(context, row, progress, moment);
    drawNotches(context, palette, edges, all, (layer) => (turned(layer) >= 0.5 ? stage.to : stage.from));
    if (moment && moment.stage === 'write' && chunk && !this.#sweeping()) {
      const row = apart ?? rows[moment.layer];
      if (row) drawWriting(context, palette, edges, row, chunk.start, moment.within / WRITE_SHARE);
    }
    this.#drawNow(context, stage, progress);
    this.#drawQueryChip(context, progress, moment, weights);
    const { hovered, pinned } = ui.selection;
    for (const [selection, firm] of /** @type {const} */ ([
      [pinned, true],
      [hovered, false],
    ])) {
      if (selection)
        drawSelection(
          context,
          palette,
          space,
          edges,
          all,
          request.id,
          selection,
          firm,
          this.table,
          picture.scene.after.blockSize,
        );
    }
  }

  /** @param {number} layer @returns {string} letters of the upper and the lower half */
  #halfNames(layer) {
    const { half } = texts.cache;
    const cache = this.layers[layer]?.cache;
    return cache === 'kv' ? half.k + half.v : cache === 'latent' ? half.latent + half.rotary : '';
  }

  /** Whether the sweep is too fast for reading one layer. */
  #sweeping() {
    const { picture, ctx } = this;
    if (!picture?.step || !ctx.timeline.moving) return false;
    const { layers, duration } = phasesOf(picture.step);
    return ((layers[1] - layers[0]) * duration) / Math.max(1, this.layers.length) / ctx.timeline.speed < READABLE_MS;
  }

  /** Ends of the hits and of the prefill. @param {CanvasRenderingContext2D} context */
  #drawBoundary(context) {
    const { picture, edges, space, ctx, rows } = this;
    const request = picture?.request;
    if (!request || !edges || !space) return;
    const known = [request.numHitTokens, request.promptLength].filter(
      (p) => p > 0 && p < edges.after.numShown && p <= request.tokens.length,
    );
    const top = rows[rows.length - 1].top;
    const bottom = space.axisTop + space.line * 2;
    const xs = known.map((p) => (edges.rightOf(p - 1) + edges.leftOf(p)) / 2);
    drawBoundaries(
      context,
      ctx.palette,
      xs,
      top - 4,
      space.phone ? rows[0].top + rows[0].height : Math.min(bottom, space.height),
    );
  }

  /** The step whose attention an open row shows: during the sweep, the new step once the layer reads.
   * @param {number} layer @param {number} progress @param {LayerMoment|null} moment @returns {number} 0 for none */
  #attentionStep(layer, progress, moment) {
    const { picture } = this;
    if (!picture?.request) return 0;
    if (!picture.step || !picture.chunk) return picture.request.state === 'finished' ? 0 : picture.attentionBefore;
    const { layers, release } = phasesOf(picture.step);
    if (moment)
      return moment.layer === layer
        ? picture.attentionAfter
        : layer === this.ctx.ui.layer && moment.index < 2
          ? picture.attentionBefore
          : 0;
    if (picture.ended && progress > release[0] + (release[1] - release[0]) * 0.3) return 0;
    return progress < layers[0] ? picture.attentionBefore : picture.attentionAfter;
  }

  /** @param {number} step @param {number} layer @returns {WeightRow|null} */
  #row(step, layer) {
    const { frames, timeline, ui } = this.ctx;
    const request = this.picture?.request?.id;
    const pack = step > 0 ? frames.step(step, request) : null;
    if (!pack) return null;
    if (pack.meta.request_id !== undefined && pack.meta.request_id !== request) return null;
    let row = meanRow(pack, layer);
    if (row && row.bin > 1 && !timeline.moving) {
      const exact = frames.heads(step, layer, request);
      const mean = exact ? headMean(exact) : null;
      if (mean) row = { ...mean, numTokens: row.numTokens };
    }
    return row && ui.hideSink ? withoutSink(row) : row;
  }

  /** Attention that an entry gets now, from the frame of the shown step.
   * @param {number} layer @param {number} position @returns {number|null} */
  attentionOf(layer, position) {
    const step = this.picture?.request && this.picture.request.state !== 'finished' ? this.picture.attentionAfter : 0;
    const row = this.#row(step, layer);
    return row && row.bin === 1 && position < row.numTokens ? weightOf(row, position, position + 1) : null;
  }

  /** @param {number} layer */
  largestNow(layer) {
    const { picture } = this;
    if (!picture?.request || picture.request.state === 'finished') return [];
    const row = this.#row(picture.attentionAfter, layer);
    return row ? largest(row, NUM_LABELS) : [];
  }

  /** Bars and names of an open row. @param {CanvasRenderingContext2D} context @param {Row} row @param {number} progress
   * @param {LayerMoment|null} moment */
  #drawOpen(context, row, progress, moment) {
    const { picture, edges, ctx, space } = this;
    const { palette, timeline } = ctx;
    if (!picture?.request || !edges || !space) return undefined;
    const wave = picture.chunk?.kind === 'prefill' && moment !== null;
    const room = row.barBase - row.barTop;
    if (wave || room < 12) return undefined;
    const quiet = (/** @type {string} */ text) => this.#quiet(context, row, text);
    if (this.layers[row.layer]?.cache === 'none') return quiet(texts.cache.attention.none);
    const step = this.#attentionStep(row.layer, progress, moment);
    if (step === 0) return undefined;
    const weights = this.#row(step, row.layer);
    if (!weights)
      return row.weight > 0.9 && (!timeline.moving || ctx.frames.problem('step', step, picture.request.id))
        ? quiet(
            ctx.frames.problem('step', step, picture.request.id)
              ? texts.cache.attention.missing
              : texts.cache.attention.pending,
          )
        : undefined;
    const bars = layoutBars(edges, weights, room);
    const mine = moment?.layer === row.layer && !this.#sweeping() ? span(moment.within, WRITE_SHARE - 0.02, 0.5) : 1;
    drawBars(context, bars, row.barBase, mine * clamp(row.weight, 0, 1), palette.css('bar'));
    if (row.weight > 0.9 && mine > 0.9 && !(moment && this.#sweeping())) this.#drawNames(context, row, bars);
    return undefined;
  }

  /** @param {CanvasRenderingContext2D} context @param {Row} row @param {readonly Bar[]} bars */
  #drawNames(context, row, bars) {
    const { picture, space, edges, ctx } = this;
    const { palette } = ctx;
    if (!picture?.request || !space || !edges) return;
    const t = texts.cache.attention;
    const { request } = picture;
    const size = space.phone ? 'text-xs' : 'text-s';
    useFont(context, palette.font(size));
    const own = picture.chunk ? picture.chunk.start + picture.chunk.num_tokens - 1 : request.numComputed - 1;
    const line = palette.px(size) * 1.3;
    const labels = placeLabels(
      context,
      bars,
      NUM_LABELS,
      (bar) => {
        const share = percent(bar.peakWeight);
        if (bar.peak === null) return fill(t.tokens, { percent: share, from: bar.from, to: bar.to - 1 });
        if (bar.peak === 0)
          return fill(bar.weight <= SINK_SHARE ? t.first : space.phone ? t.sinkShort : t.sink, { percent: share });
        return bar.peak === own
          ? fill(t.itself, { percent: share })
          : fill(t.token, { percent: share, token: tokenName(request.pieces[bar.peak], bar.peak) });
      },
      (list) => fill(t.also, { list }),
      {
        left: space.columnsLeft - 2,
        right: Math.max(edges.right + 4, space.columnsLeft + 220),
        top: row.top + 4,
        base: row.barBase,
        line,
      },
    );
    drawLabels(context, labels, {
      ink: palette.css('ink'),
      quiet: palette.css('ink-2'),
      line: palette.css('line-strong'),
      ground: palette.css('row-open'),
      height: palette.px(size),
    });
  }

  /** @param {CanvasRenderingContext2D} context @param {Row} row @param {string} text */
  #quiet(context, row, text) {
    const { space, ctx } = this;
    if (!space) return;
    useFont(context, ctx.palette.font('text-xs'));
    context.fillStyle = ctx.palette.css('ink-3');
    context.textAlign = 'left';
    context.textBaseline = 'middle';
    context.fillText(
      fitText(context, text, space.width - space.columnsLeft - 8),
      space.columnsLeft + 4,
      (row.barTop + row.barBase) / 2,
    );
  }

  /** The mark below the columns just written.
   * @param {CanvasRenderingContext2D} context
   * @param {ReturnType<typeof stageAt>} stage @param {number} progress */
  #drawNow(context, stage, progress) {
    const { edges, space, ctx, picture } = this;
    if (!edges || !space || !picture) return;
    const { palette } = ctx;
    const range = freshSpan(edges, stage.t >= 0.5 || stage.sweep ? stage.to : stage.from);
    if (!range) return;
    const [x0, x1] = range;
    const y = space.axisTop + (space.phone ? -3 : 0);
    const tokens = edges.pitch >= 30 && !edges.after.long && !space.phone;
    context.fillStyle = palette.css('now');
    context.fillRect(x0, y - 5, Math.max(3, x1 - x0), 2 * palette.px('mark'));
    if (tokens || space.phone) return;
    useFont(context, palette.font('text-xs', 'ui', 600));
    context.textBaseline = 'top';
    const width = textWidth(context, texts.cache.axis.now);
    context.textAlign = 'left';
    context.fillText(texts.cache.axis.now, clamp((x0 + x1 - width) / 2, space.columnsLeft, space.width - width), y - 1);
  }

  /** @param {CanvasRenderingContext2D} context @param {number} progress @param {LayerMoment|null} moment @param {Float64Array} weights */
  #drawQueryChip(context, progress, moment, weights) {
    const { picture, edges, space, ctx, rows, apart } = this;
    if (!picture?.request || !edges || !space) return;
    const { request, chunk } = picture;
    const t = texts.cache.query;
    const resting =
      request.state === 'finished' ||
      request.numComputed === 0 ||
      (!moment && chunk !== null && progress < phasesOf(/** @type {any} */ (picture.step)).layers[0]);
    if (resting) return;
    const row = apart ?? rows[weights.indexOf(Math.max(...weights))];
    if (!row) return;
    let y = (row.keyTop + row.valueTop + row.valueHeight) / 2;
    if (!apart && moment) {
      y = 0;
      weights.forEach((weight, layer) => {
        y += weight * ((rows[layer].keyTop + rows[layer].valueTop + rows[layer].valueHeight) / 2);
      });
    }
    const many = chunk?.kind === 'prefill' && moment !== null;
    const text = many ? fill(t.many, { n: chunk.num_tokens }) : t.chip;
    const x = Math.min(edges.right + 12, space.width - space.queryRoom + 4);
    const fast = this.#sweeping();
    const inLayer = moment ? (fast || many ? 0.6 : moment.within) : null;
    const note = space.phone ? [] : moment ? (many ? t.readsMany : t.reads) : t.rest;
    drawQuery(context, ctx.palette, { x, y, within: inLayer, text, note, room: space.width - x });
  }
}

/** A number that changes only while chips do: when blocks are allocated or released.
 * @param {CachePicture} picture @param {number} progress */
function gridMoment({ step, ended }, progress) {
  if (!step) return '';
  const { blocks, layers, release } = phasesOf(step);
  if (progress < blocks[1]) return `b${Math.round(within(blocks, progress) * 30)}`;
  const rung = within(layers, progress);
  if (rung < 0.3 && (step.allocated.length > 0 || step.shared.length > 0)) return `l${Math.round(rung * 60)}`;
  return ended && progress > release[0] ? `r${Math.round(within(release, progress) * 30)}` : '';
}

/** Place of the separate row in the strip.
 * @param {CanvasRenderingContext2D} context @param {string} color
 * @param {Row} row @param {number} x */
function markRow(context, color, row, x) {
  const y = (row.keyTop + row.valueTop + row.valueHeight) / 2;
  context.fillStyle = color;
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x - 5, y - 4);
  context.lineTo(x - 5, y + 4);
  context.fill();
}
