/** The still parts around the cells: block chips above, layer names on the left, and the axis below. */
import { fitText, hatch, roundRect, textWidth, useFont } from '../../ui/canvas.js';
import { fill } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { CacheSpace } from './space.js' */
/** @import { ColumnEdges } from './columns.js' */
/** @import { Row } from './rows.js' */

/**
 * A chip above the columns of one block.
 * @typedef {object} Chip
 * @property {number} x0 @property {number} x1
 * @property {'none'|'used'|'hit'|'kept'|'gone'|'released'} state
 * @property {string} title @property {readonly string[]} notes from long to short @property {string} short
 * @property {number} ring 0-1: just changed
 * @property {boolean} selected
 */

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {{chipTop: number, chipHeight: number}} space
 * @param {readonly Chip[]} chips */
export function drawChips(context, palette, space, chips) {
  const { chipTop: y, chipHeight: height } = space;
  context.textBaseline = 'middle';
  context.textAlign = 'left';
  for (const chip of mergeNarrow(chips, palette)) {
    const gap = chip.x1 - chip.x0 > 14 ? 1 : 0;
    const x = chip.x0;
    const width = Math.max(2, chip.x1 - chip.x0 - gap);
    paintChip(context, palette, chip, x, y, width, height);
    writeChip(context, palette, chip, x, y + height / 2 + 0.5, width);
  }
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Chip} chip
 * @param {number} x @param {number} y @param {number} width @param {number} height */
function paintChip(context, palette, chip, x, y, width, height) {
  const radius = Math.min(4, width / 3);
  const { state } = chip;
  roundRect(context, x, y, width, height, radius);
  if (state === 'used' || state === 'hit') {
    context.fillStyle = palette.css('control');
    context.fill();
  } else if (state === 'kept') {
    context.fillStyle = hatch(context, palette.css('nobody', 0.55), 6, 1.2);
    context.fill();
  }
  if (state !== 'used') {
    context.setLineDash(state === 'hit' ? [] : state === 'kept' ? [4, 3] : [2, 3]);
    context.lineWidth = palette.px('mark');
    context.strokeStyle =
      state === 'hit' ? palette.css('mark-hit') : palette.css(state === 'kept' ? 'line-strong' : 'blank');
    roundRect(context, x + 0.5, y + 0.5, width - 1, height - 1, radius);
    context.stroke();
    context.setLineDash([]);
  }
  if (chip.ring > 0 || chip.selected) {
    context.globalAlpha = chip.selected ? 1 : chip.ring;
    context.lineWidth = 2 * palette.px('mark');
    context.strokeStyle = palette.css('now');
    roundRect(context, x, y, width, height, radius);
    context.stroke();
    context.globalAlpha = 1;
  }
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Chip} chip
 * @param {number} x @param {number} y @param {number} width */
function writeChip(context, palette, chip, x, y, width) {
  const pad = width > 60 ? 8 : 4;
  const room = width - 2 * pad;
  const strong = chip.state === 'used' || chip.state === 'hit';
  useFont(context, palette.font('text-xs', 'ui', strong ? 500 : 400));
  context.fillStyle = palette.css(strong ? 'ink' : 'ink-2');
  const titleWidth = textWidth(context, chip.title);
  if (titleWidth > room) {
    const short = textWidth(context, chip.short) <= width - 3 ? chip.short : '';
    context.textAlign = 'center';
    context.fillText(short, x + width / 2, y);
    context.textAlign = 'left';
    return;
  }
  if (chip.state === 'kept' || chip.state === 'gone') backed(context, palette, chip.title, x + pad, y);
  context.fillText(chip.title, x + pad, y);
  useFont(context, palette.font('text-xs'));
  const rest = room - titleWidth - 10;
  const note = chip.notes.find((text) => textWidth(context, text) <= rest);
  if (!note) return;
  if (chip.state === 'kept') backed(context, palette, note, x + pad + titleWidth + 10, y);
  context.fillStyle = chip.state === 'hit' ? palette.css('mark-hit') : palette.css('ink-3');
  context.fillText(note, x + pad + titleWidth + 10, y);
}

/** Background of a text on hatching.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette
 * @param {string} text @param {number} x @param {number} y */
function backed(context, palette, text, x, y) {
  const size = palette.px('text-xs');
  const ink = context.fillStyle;
  context.fillStyle = palette.css('ground');
  roundRect(context, x - 4, y - size * 0.7, textWidth(context, text) + 8, size * 1.4, 3);
  context.fill();
  context.fillStyle = ink;
}

/** Chips that are too narrow to distinguish are merged. @param {readonly Chip[]} chips @param {Palette} palette @returns {Chip[]} */
function mergeNarrow(chips, palette) {
  const least = palette.px('text-xs') * 0.9;
  /** @type {Chip[]} */
  const merged = [];
  let run = /** @type {Chip[]} */ ([]);
  const flush = () => {
    if (run.length === 1) merged.push(run[0]);
    else if (run.length > 1) {
      const title = fill(texts.cache.chip.many, { n: run.length });
      const ring = Math.max(...run.map((chip) => chip.ring));
      merged.push({
        ...run[0],
        x1: run[run.length - 1].x1,
        title,
        notes: [],
        short: String(run.length),
        ring,
        selected: run.some((chip) => chip.selected),
      });
    }
    run = [];
  };
  for (const chip of chips) {
    const narrow = chip.x1 - chip.x0 < least;
    if (!narrow || (run.length > 0 && run[0].state !== chip.state)) flush();
    if (narrow) run.push(chip);
    else merged.push(chip);
  }
  flush();
  return merged;
}

/**
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {CacheSpace} space
 * @param {readonly Row[]} rows @param {(layer: number) => string} note letters of the halves
 */
export function drawLayerNames(context, palette, space, rows, note) {
  const size = palette.px('text-xs');
  const right = space.columnsLeft - size * 1.1;
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  useFont(context, palette.font('text-xs'));
  context.fillStyle = palette.css('ink-3');
  if (!space.phone)
    context.fillText(
      fitText(context, texts.cache.layersUp, space.columnsLeft - 4),
      space.columnsLeft - 6,
      space.chipTop + space.chipHeight / 2 + 0.5,
    );
  const stride = strideOf(rows, size);
  const open = rows.reduce((best, row) => (row.weight > best.weight ? row : best), rows[0]);
  for (const row of rows) {
    const strong = row.weight > 0.5 && row === open;
    const regular = row.layer % stride === 0 || row.layer === rows.length - 1;
    if (!strong && !regular) continue;
    const y = (row.keyTop + row.valueTop + row.valueHeight) / 2;
    if (
      !strong &&
      open.weight > 0.5 &&
      open.height > row.height &&
      Math.abs(y - (open.keyTop + open.valueTop + open.valueHeight) / 2) < size * 1.25
    )
      continue;
    useFont(context, palette.font('text-xs', 'ui', strong ? 700 : 400));
    context.fillStyle = palette.css(strong ? 'ink' : 'ink-3');
    context.fillText(fill(texts.cache.layer, { layer: row.layer }), right, y + 0.5);
    if (strong && note(row.layer)) halves(context, palette, row, space, note(row.layer));
  }
}

/** The letters of the two halves in the opened row.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette
 * @param {Row} row @param {CacheSpace} space @param {string} letters */
function halves(context, palette, row, space, letters) {
  const x = space.columnsLeft - 4;
  useFont(context, palette.font('text-xs', 'ui', 700));
  if (row.keyHeight < palette.px('text-xs') * 0.55) return;
  context.fillStyle = palette.css('k-ink');
  context.fillText(letters[0], x, row.keyTop + row.keyHeight / 2 + 0.5);
  context.fillStyle = palette.css(letters === 'KV' ? 'v-ink' : 'k-ink');
  context.fillText(letters[1], x, row.valueTop + row.valueHeight / 2 + 0.5);
}

/** @param {readonly Row[]} rows @param {number} size @returns {number} every how many layers a name stands */
function strideOf(rows, size) {
  const closed = rows.reduce((least, row) => Math.min(least, row.height), Infinity);
  return [1, 5, 10, 20, 50].find((stride) => stride * closed >= size * 1.5) ?? 100;
}

/** A part of the axis, from one position to another, with texts from long to short.
 * @typedef {{x0: number, x1: number, texts: readonly string[], strong: boolean}} AxisPart */

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {CacheSpace} space @param {readonly AxisPart[]} parts
 * @param {number} right how far the last text may go */
export function drawAxis(context, palette, space, parts, right) {
  useFont(context, palette.font('text-xs'));
  context.textAlign = 'left';
  context.textBaseline = 'top';
  let free = -Infinity;
  parts.forEach((part, index) => {
    const end = index === parts.length - 1 ? right : Math.max(part.x1, parts[index + 1].x0);
    const x = Math.max(part.x0 + (index > 0 ? 7 : 0), free);
    const text = part.texts.find((option) => textWidth(context, option) <= end - x - 8) ?? '';
    context.fillStyle = palette.css(part.strong ? 'ink' : 'ink-3');
    context.fillText(text, x, space.axisText);
    if (text) free = x + textWidth(context, text) + 12;
  });
}

/** Dashed lines at the end of the prefill and of the hits.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette
 * @param {readonly number[]} xs @param {number} top @param {number} bottom */
export function drawBoundaries(context, palette, xs, top, bottom) {
  context.strokeStyle = palette.css('ink-3');
  context.lineWidth = palette.px('mark');
  context.setLineDash([3, 4]);
  for (const x of xs) {
    context.beginPath();
    context.moveTo(Math.round(x) - 0.5, top);
    context.lineTo(Math.round(x) - 0.5, bottom);
    context.stroke();
  }
  context.setLineDash([]);
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {CacheSpace} space @param {ColumnEdges} edges
 * @param {(position: number) => string} name texts under columns that are wide enough for them */
export function drawTokens(context, palette, space, edges, name) {
  if (edges.pitch < 30 || edges.after.long) return;
  useFont(context, palette.font('text-xs', 'mono'));
  context.textAlign = 'center';
  context.textBaseline = 'top';
  context.fillStyle = palette.css('ink-2');
  for (let c = 0; c < edges.count; c += 1) {
    const text = name(edges.from[c]);
    if (text)
      context.fillText(
        fitText(context, text, edges.x1[c] - edges.x0[c] - 3),
        (edges.x0[c] + edges.x1[c]) / 2 - 1,
        space.axisTop - 2,
      );
  }
}
