/** One frame of the cache lens, drawn from a picture: cells, outlines, the opened row, rings. It has no state. */
import { doubleOutline, hatch, roundRect, span } from '../../ui/canvas.js';
import { columnStates, drawRow } from './cell-paint.js';
import { ENTRY } from './entries.js';
import { goneShare } from './gone.js';
/** @import { Bitmap } from '../../ui/canvas.js' */
/** @import { Palette } from '../../ui/palette.js' */
/** @import { LayerGeometry, Selection } from '../../core/types.d.ts' */
/** @import { CacheSpace } from './space.js' */
/** @import { ColumnEdges } from './columns.js' */
/** @import { Entries } from './entries.js' */
/** @import { Row } from './rows.js' */

/** Up to this many columns, outlines are drawn per cell, beyond it per block. */
const MAX_OUTLINES = 2600;

/**
 * @typedef {object} CellFrame
 * @property {CanvasRenderingContext2D} context @property {Palette} palette @property {CacheSpace} space
 * @property {ColumnEdges} edges @property {readonly Row[]} rows @property {readonly LayerGeometry[]} layers
 * @property {Entries} from @property {Entries} to
 * @property {Bitmap} fromBitmap @property {Bitmap} toBitmap
 * @property {(layer: number) => number} turned how far a row has turned from the first into the second, 0-1
 * @property {number} ratio @property {number} blockSize
 */

/** @param {CellFrame} frame */
export function drawCells(frame) {
  const { context, space, edges, rows, layers, fromBitmap, toBitmap, ratio } = frame;
  const left = space.columnsLeft;
  const width = toBitmap.width / ratio;
  for (const row of rows) {
    if (row.weight > 0.02) panel(frame, row);
    if (layers[row.layer]?.cache === 'none') {
      reader(frame, row);
      continue;
    }
    const t = frame.turned(row.layer);
    if (t < 1) {
      context.globalAlpha = 1 - t;
      drawRow(context, fromBitmap, row, left, width, ratio);
    }
    if (t > 0) {
      context.globalAlpha = t;
      drawRow(context, toBitmap, row, left, width, ratio);
    }
    context.globalAlpha = 1;
  }
  outlines(frame, edges);
  if (frame.to.kept.some(Boolean) || frame.from.kept.some(Boolean)) hatched(frame);
}

/** The background of an open row. @param {CellFrame} frame @param {Row} row */
function panel({ context, palette, space, edges }, row) {
  context.globalAlpha = row.weight;
  context.fillStyle = palette.css('row-open');
  roundRect(
    context,
    space.columnsLeft - 8,
    row.top + 2,
    Math.max(120, edges.right - space.columnsLeft + 16),
    row.height - 4,
    7,
  );
  context.fill();
  context.globalAlpha = 1;
}

/** A layer that stores nothing. @param {CellFrame} frame @param {Row} row */
function reader({ context, palette, edges }, row) {
  const y = Math.round((row.keyTop + row.valueTop + row.valueHeight) / 2) + 0.5;
  context.strokeStyle = palette.css('blank');
  context.lineWidth = palette.px('mark');
  context.setLineDash([2, 4]);
  context.beginPath();
  context.moveTo(edges.left, y);
  context.lineTo(edges.right, y);
  context.stroke();
  context.setLineDash([]);
}

/** Unwritten entries are outlines. @param {CellFrame} frame @param {ColumnEdges} edges */
function outlines(frame, edges) {
  const { context, palette, rows, layers } = frame;
  const before = columnStates(edges, frame.from);
  const after = columnStates(edges, frame.to);
  const paths = {
    own: new Path2D(),
    next: new Path2D(),
    absent: new Path2D(),
    gone: new Path2D(),
    strike: new Path2D(),
  };
  let total = 0;
  for (let c = 0; c < edges.count; c += 1)
    if (before[c] < ENTRY.KEPT || after[c] < ENTRY.KEPT || frame.to.gone) total += rows.length;
  const each = edges.pitch >= 4 && total <= MAX_OUTLINES;
  for (const row of rows) {
    if (layers[row.layer]?.cache === 'none') continue;
    const t = frame.turned(row.layer);
    const states = t >= 0.5 ? after : before;
    const entries = t >= 0.5 ? frame.to : frame.from;
    outlineRow(paths, row, edges, states, entries, each, frame.blockSize);
    if (entries.gone) strikeRow(paths, row, edges, states, entries.gone, each);
  }
  context.lineWidth = palette.px('mark');
  context.strokeStyle = palette.css('blank', 0.42);
  context.stroke(paths.own);
  context.strokeStyle = palette.css('line-strong');
  context.stroke(paths.next);
  context.setLineDash([2, 2]);
  context.strokeStyle = palette.css('blank', 0.75);
  context.stroke(paths.absent);
  context.setLineDash([]);
  context.strokeStyle = palette.css('blank');
  context.stroke(paths.gone);
  context.lineWidth = 1.4 * palette.px('mark');
  context.strokeStyle = palette.css('line-strong');
  context.stroke(paths.strike);
}

/**
 * @param {{own: Path2D, next: Path2D, absent: Path2D}} paths @param {Row} row @param {ColumnEdges} edges
 * @param {Uint8Array} states @param {Entries} entries @param {boolean} each cell by cell @param {number} blockSize
 */
function outlineRow(paths, row, edges, states, entries, each, blockSize) {
  const top = Math.round(row.keyTop) + 0.5;
  const height = Math.max(1, Math.round(row.valueTop + row.valueHeight) - Math.round(row.keyTop) - 1);
  for (let c = 0; c < edges.count; c += 1) {
    const state = states[c];
    if (state >= ENTRY.KEPT || state === ENTRY.FORGOTTEN) continue;
    const position = edges.from[c];
    if (state === ENTRY.ABSENT && position >= entries.numTokens) continue;
    const path = state === ENTRY.BLANK ? (position < entries.numTokens ? paths.next : paths.own) : paths.absent;
    let end = c;
    if (!each)
      while (
        end + 1 < edges.count &&
        states[end + 1] === state &&
        position < entries.numTokens === edges.from[end + 1] < entries.numTokens &&
        (edges.from[end + 1] % blockSize !== 0 || edges.pitch < 2)
      )
        end += 1;
    const x0 = Math.round(edges.x0[c]) + 0.5;
    const x1 = Math.round(edges.x1[end]) - (each ? 1.5 : 0.5);
    path.rect(x0, top, Math.max(1, x1 - x0), height);
    c = end;
  }
}

/** Dropped entries: an outline with a diagonal stroke. Narrow ones share one stroke.
 * @param {{gone: Path2D, strike: Path2D}} paths @param {Row} row @param {ColumnEdges} edges @param {Uint8Array} states @param {import('./gone.js').Gone} gone @param {boolean} each */
function strikeRow(paths, row, edges, states, gone, each) {
  const top = Math.round(row.keyTop) + 0.5;
  const height = Math.max(1, Math.round(row.valueTop + row.valueHeight) - Math.round(row.keyTop) - 1);
  const isGone = (/** @type {number} */ c) =>
    states[c] !== ENTRY.ABSENT &&
    states[c] !== ENTRY.BLANK &&
    states[c] !== ENTRY.RELEASED &&
    states[c] !== ENTRY.GONE &&
    goneShare(gone, row.layer, edges.from[c], edges.to[c]) === 1;
  for (let c = 0; c < edges.count; c += 1) {
    if (!isGone(c)) continue;
    let end = c;
    if (!each) while (end + 1 < edges.count && isGone(end + 1)) end += 1;
    const x0 = Math.round(edges.x0[c]) + 0.5;
    const width = Math.max(1, Math.round(edges.x1[end]) - (each ? 1.5 : 0.5) - x0);
    paths.gone.rect(x0, top, width, height);
    if (each) {
      const reach = Math.min(width, height);
      const [cx, cy] = [x0 + width / 2, top + height / 2];
      paths.strike.moveTo(cx - reach / 2, cy + reach / 2);
      paths.strike.lineTo(cx + reach / 2, cy - reach / 2);
    } else {
      paths.strike.moveTo(x0, top + height / 2);
      paths.strike.lineTo(x0 + width, top + height / 2);
    }
    c = end;
  }
}

/** Blocks that no request uses but that are still cached. @param {CellFrame} frame */
function hatched({ context, palette, edges, from, to, turned, blockSize, rows }) {
  const t = turned(0);
  const top = rows[rows.length - 1]?.top ?? 0;
  const bottom = rows[0] ? rows[0].top + rows[0].height : 0;
  const kept = to.kept.length > 0 ? to.kept : from.kept;
  const alpha = (to.kept.some(Boolean) ? t : 0) + (from.kept.some(Boolean) ? 1 - t : 0);
  context.globalAlpha = Math.min(1, alpha);
  kept.forEach((is, logical) => {
    const first = logical * blockSize;
    const last = Math.min(edges.after.numShown, first + blockSize) - 1;
    if (!is || last < first) return;
    const x = edges.leftOf(first);
    const width = edges.rightOf(last) - x - 1;
    context.fillStyle = hatch(context, palette.css('ground'), 7, 2);
    context.fillRect(x, top, width, bottom - top);
    context.strokeStyle = palette.css('line-strong');
    context.lineWidth = palette.px('mark');
    context.setLineDash([5, 4]);
    roundRect(context, x - 2.5, top - 2.5, width + 5, bottom - top + 4, 4);
    context.stroke();
    context.setLineDash([]);
  });
  context.globalAlpha = 1;
}

/**
 * White notches on entries that were just written.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {ColumnEdges} edges @param {readonly Row[]} rows
 * @param {(layer: number) => Entries} entriesAt
 */
export function drawNotches(context, palette, edges, rows, entriesAt) {
  context.fillStyle = palette.css('now');
  context.beginPath();
  for (const row of rows) {
    const entries = entriesAt(row.layer);
    const states = columnStates(edges, entries);
    const last = states.lastIndexOf(ENTRY.FRESH);
    if (last < 0 || (last - states.indexOf(ENTRY.FRESH) > 1 && row.weight < 0.5)) continue;
    for (let c = last; c >= 0 && states[c] === ENTRY.FRESH; c -= 1) {
      const width = edges.x1[c] - edges.x0[c];
      const size = Math.min(width * 0.5, Math.max(3, row.keyHeight * 0.55), 8);
      if (width < 5 || (entries.gone && goneShare(entries.gone, row.layer, edges.from[c], edges.to[c]) === 1)) continue;
      const x = edges.x1[c] - (width >= 24 ? 2 : 1);
      context.moveTo(x, row.keyTop);
      context.lineTo(x - size, row.keyTop);
      context.lineTo(x, row.keyTop + size);
    }
  }
  context.fill();
}

/** The entry that is being written. @param {CanvasRenderingContext2D} context @param {Palette} palette @param {ColumnEdges} edges
 * @param {Row} row @param {number} position @param {number} t 0-1 */
export function drawWriting(context, palette, edges, row, position, t) {
  const x = edges.leftOf(position);
  const width = edges.rightOf(position) - x - 1;
  context.globalAlpha = span(t, 0, 0.5);
  context.strokeStyle = palette.css('now');
  context.lineWidth = 2 * palette.px('mark');
  roundRect(context, x - 1, row.keyTop - 1, width + 2, row.valueTop + row.valueHeight - row.keyTop + 2, 2);
  context.stroke();
  context.globalAlpha = 1;
}

/** Rings around the hovered or pinned entry, column, block or layer.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {CacheSpace} space @param {ColumnEdges} edges
 * @param {readonly Row[]} rows @param {number} requestId @param {Selection} selection @param {boolean} pinned
 * @param {readonly number[]} table @param {number} blockSize */
export function drawSelection(context, palette, space, edges, rows, requestId, selection, pinned, table, blockSize) {
  const style = { line: palette.css('selected'), gap: palette.css('selected-gap'), mark: palette.px('mark') };
  const ring = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ w, /** @type {number} */ h) => {
    if (pinned) doubleOutline(context, x, y, w, h, style);
    else single(context, palette, x, y, w, h);
  };
  const bottom = rows[0] ? rows[0].top + rows[0].height : 0;
  const top = space.chipTop + space.chipHeight + 3;
  if (
    (selection.kind === 'entry' || selection.kind === 'token') &&
    selection.request === requestId &&
    selection.position < edges.after.numShown
  ) {
    const c = edges.columnOf(selection.position);
    if (c < 0 || c >= edges.count) return;
    const x = edges.x0[c];
    const width = Math.max(2, edges.x1[c] - x - 1);
    if (selection.kind === 'token') ring(x, top, width, bottom - top);
    else
      for (const row of rows)
        if (row.layer === selection.layer) ring(x, row.keyTop, width, row.valueTop + row.valueHeight - row.keyTop);
  } else if (selection.kind === 'block') {
    const logical = table.indexOf(selection.block);
    const first = logical * blockSize;
    if (logical < 0 || first >= edges.after.numShown) return;
    const last = Math.min(edges.after.numShown, first + blockSize) - 1;
    ring(edges.leftOf(first), top, edges.rightOf(last) - edges.leftOf(first) - 1, bottom - top);
  }
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} x @param {number} y @param {number} w @param {number} h */
function single(context, palette, x, y, w, h) {
  context.strokeStyle = palette.css('selected-gap');
  context.lineWidth = 4;
  roundRect(context, x - 1.5, y - 1.5, w + 3, h + 3, 2);
  context.stroke();
  context.strokeStyle = palette.css('selected');
  context.lineWidth = 1.5 * palette.px('mark');
  context.stroke();
}

/** Position of the white mark "now" below the columns.
 * @param {ColumnEdges} edges @param {Entries} entries @returns {[number, number]|null} */
export function freshSpan(edges, entries) {
  const first = entries.states.indexOf(ENTRY.FRESH);
  if (first < 0) return null;
  const last = Math.max(first, Math.min(entries.states.lastIndexOf(ENTRY.FRESH), edges.after.numShown - 1));
  return [edges.leftOf(first), edges.rightOf(last) - 1];
}
