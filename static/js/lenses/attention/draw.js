/** The marks of the attention lens: KV heads with their brackets, query chips, rows of bars, the axis. */
import { fitText, roundRect, textWidth, useFont } from '../../ui/canvas.js';
import { fill, percent } from '../../ui/format.js';
import { drawBars } from '../shared/opened-row.js';
import { texts } from '../shared/texts.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { AttentionSpace, Bracket, HeadRow } from './layout.js' */
/** @import { ColumnEdges } from '../cache/columns.js' */
/** @import { Bar } from '../shared/opened-row.js' */

/** A KV head at the left, one box for all query heads that share it.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {AttentionSpace} space
 * @param {readonly Bracket[]} brackets @param {readonly HeadRow[]} rows @param {boolean} latent @param {readonly string[]} names long and short */
export function drawBrackets(context, palette, space, brackets, rows, latent, names) {
  const small = palette.px('text-xs');
  const width = space.phone ? small * 1.5 : small * 5.2;
  for (const { kv, top, bottom, from, to } of brackets) {
    const y = top + 1;
    const height = Math.max(3, bottom - top - 2);
    context.fillStyle = palette.css('control');
    roundRect(context, space.bracketX, y, width, height, 5);
    context.fill();
    halves(context, palette, space.bracketX, y, height, latent);
    useFont(context, palette.font('text-xs', 'ui', 500));
    context.textBaseline = 'middle';
    context.textAlign = 'center';
    context.fillStyle = palette.css('ink');
    const label = names.map((name) => fill(name, { kv })).find((name) => textWidth(context, name) <= width - 10) ?? '';
    if (height >= small) context.fillText(label, space.bracketX + width / 2 + 2, y + height / 2 + 0.5);
    lines(
      context,
      palette,
      space,
      rows.filter((row) => row.head !== null && row.head >= from && row.head < to),
      space.bracketX + width,
      y,
      height,
    );
  }
}

/** The two stripes of a KV head, K and V.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette
 * @param {number} x @param {number} y @param {number} height @param {boolean} latent */
function halves(context, palette, x, y, height, latent) {
  const stripe = Math.max(2, height / 2 - 2.5);
  context.fillStyle = latent ? palette.mix('k', 'v', 0.5) : palette.css('k');
  context.fillRect(x + 2, y + 2, 3, stripe);
  context.fillStyle = latent ? palette.css('k') : palette.css('v');
  context.fillRect(x + 2, y + height - 2 - stripe, 3, stripe);
}

/** From a KV head to each of its query heads.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette
 * @param {AttentionSpace} space @param {readonly HeadRow[]} rows @param {number} x @param {number} y @param {number} height */
function lines(context, palette, space, rows, x, y, height) {
  const end = space.queryX - 3;
  const bend = (x + end) / 2;
  context.strokeStyle = palette.css('line-strong');
  context.lineWidth = palette.px('mark');
  context.beginPath();
  for (const row of rows) {
    const at = middleOf(row);
    const start = Math.min(y + height - 2, Math.max(y + 2, at));
    context.moveTo(x, start);
    context.lineTo(bend, start);
    context.lineTo(end, at);
  }
  context.stroke();
}

/** Height of a row's chip. @param {HeadRow} row @returns {number} */
function middleOf(row) {
  return row.open ? row.base - Math.min(row.height / 2, 16) : row.top + row.height / 2;
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {AttentionSpace} space @param {HeadRow} row
 * @param {boolean} chosen @param {boolean} hovered */
export function drawQueryChip(context, palette, space, row, chosen, hovered) {
  const small = palette.px('text-xs');
  const height = Math.min(row.height - (row.height < small * 1.4 ? 1 : 2), small * 1.6);
  if (height < 4) return;
  const y = middleOf(row) - height / 2;
  if (row.head === null) {
    useFont(context, palette.font('text-s', 'ui', 600));
    context.fillStyle = palette.css('ink');
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    context.fillText(texts.attention.mean, space.queryX + space.queryWidth, y + height / 2 + 0.5);
    return;
  }
  context.fillStyle = palette.css('now', chosen || hovered ? 1 : 0.86);
  roundRect(context, space.queryX, y, space.queryWidth, height, 4);
  context.fill();
  if (chosen) {
    context.strokeStyle = palette.css('selected');
    context.lineWidth = palette.px('mark');
    roundRect(context, space.queryX - 2.5, y - 2.5, space.queryWidth + 5, height + 5, 6);
    context.stroke();
  }
  if (height < small * 0.95) return;
  useFont(context, palette.font('text-xs', 'ui', 600));
  context.fillStyle = palette.css('on-now');
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  const text = fill(texts.attention.query, { head: row.head });
  context.fillText(
    fitText(context, text, space.queryWidth - 2),
    space.queryX + space.queryWidth / 2,
    y + height / 2 + 0.5,
  );
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {HeadRow} row @param {ColumnEdges} edges
 * @param {readonly Bar[]} bars @param {number} rise */
export function drawHeadRow(context, palette, row, edges, bars, rise) {
  context.fillStyle = palette.css('row-open');
  if (row.open) {
    roundRect(context, edges.left - 5, row.top + 1, Math.max(80, edges.right - edges.left + 10), row.height - 1, 5);
    context.fill();
  }
  context.fillStyle = palette.css('line');
  context.fillRect(edges.left, Math.round(row.base), Math.max(0, edges.right - edges.left - 1), palette.px('mark'));
  drawBars(context, bars, Math.round(row.base), rise, palette.css('bar'), row.height < 12 ? 0 : 1);
}

/** The largest weight of a row, at its end.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {AttentionSpace} space
 * @param {HeadRow} row @param {number} x @param {number} weight @param {string} name @param {boolean} strong */
export function drawTop(context, palette, space, row, x, weight, name, strong) {
  const small = palette.px('text-xs');
  if (row.height < small * 1.05) return;
  const y = row.open ? row.base - Math.min(row.height / 2, 16) : row.top + row.height / 2 + 1;
  useFont(context, palette.font('text-xs'));
  context.textBaseline = 'middle';
  context.textAlign = 'right';
  context.fillStyle = palette.css(strong ? 'ink' : 'ink-2');
  const share = percent(weight);
  const room = small * 3.1;
  context.fillText(share, x + room, y);
  if (space.phone) return;
  context.textAlign = 'left';
  context.fillStyle = palette.css(strong ? 'ink-2' : 'ink-3');
  context.fillText(fitText(context, name, space.width - x - room - 10), x + room + 7, y);
}

/** Positions below the rows. @param {CanvasRenderingContext2D} context @param {Palette} palette @param {AttentionSpace} space
 * @param {ColumnEdges} edges @param {number} numTokens */
export function drawPositions(context, palette, space, edges, numTokens) {
  const t = texts.attention;
  const small = palette.px('text-xs');
  useFont(context, palette.font('text-xs'));
  context.textBaseline = 'top';
  context.textAlign = 'center';
  context.fillStyle = palette.css('ink-3');
  const key = `${t.key} →`;
  const keyWidth = textWidth(context, key);
  let free = edges.left + (space.phone ? 0 : keyWidth + 14);
  const stride = strideOf(edges, numTokens, small);
  for (let position = 0; position < numTokens; position += stride) {
    const c = edges.columnOf(position);
    if (c < 0 || c >= edges.count) continue;
    const x = (edges.x0[c] + edges.x1[c]) / 2;
    const text = String(position);
    const width = textWidth(context, text);
    if (x - width / 2 < free) continue;
    context.fillText(text, x, space.axisTop);
    free = x + width / 2 + small;
  }
  context.textAlign = 'left';
  context.fillStyle = palette.css('ink-2');
  if (!space.phone) context.fillText(key, edges.left, space.axisTop);
  context.textAlign = 'right';
  context.fillText(
    fitText(context, space.phone ? '' : t.asks, space.left - 8),
    space.queryX + space.queryWidth,
    space.axisTop,
  );
}

/** @param {ColumnEdges} edges @param {number} numTokens @param {number} small @returns {number} */
function strideOf(edges, numTokens, small) {
  const width = Math.max(1, edges.right - edges.left);
  const least = (small * 3.2 * numTokens) / width;
  return [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((stride) => stride >= least) ?? 2000;
}
