/** The look of a lane's token on the tape of the compare lens. */
import { fitText, roundRect, textWidth, useFont } from '../../ui/canvas.js';
import { fill } from '../../ui/format.js';
import { clip, readable } from '../../ui/text.js';
import { texts } from '../shared/texts.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { Piece } from '../../core/types.d.ts' */
/** @import { Lane } from './model.js' */

const t = texts.compare.tape;
const MAX_CHARS = 40;
/** Width of the mark of a leading space. */
export const LEAD_EM = 0.42;

/** A token of a lane, or nothing.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Lane} lane @param {Piece|null} piece @param {number} index
 * @param {number} x @param {number} y @param {number} width @param {number} line */
export function drawCell(context, palette, lane, piece, index, x, y, width, line) {
  const one = lane.measured[index];
  if (!one || index >= lane.count) return;
  const first = lane.figures?.first_divergence ?? null;
  const own = lane.index > 0 && first !== null && index >= first;
  const pad = line * 0.18;
  roundRect(context, x, y + 1, width, line - 2, 4);
  if (lane.index === 0 || (own && piece)) {
    context.fillStyle = palette.css(lane.index === 0 ? 'control' : 'raised');
    context.fill();
  }
  if (own && index === first) {
    context.lineWidth = 2 * palette.px('mark');
    context.strokeStyle = palette.css('ink');
    context.stroke();
  }
  useFont(context, palette.font('text-m', 'mono', own && index === first ? 700 : 400));
  context.textAlign = 'left';
  context.fillStyle = palette.css(lane.index === 0 || own ? 'ink' : 'ink-3');
  const lead = piece && hasLead(piece) ? LEAD_EM * palette.px('text-m') : 0;
  if (piece)
    context.fillText(fitText(context, tapeText(piece), width - 2 * pad - lead), x + pad + lead, y + line / 2 + 0.5);
  if (lead > 0) leadMark(context, palette, x + pad, y + line * 0.66, lead * 0.7);
  if (own && !piece && lane.measured[index - 1]?.free_piece !== null) {
    useFont(context, palette.font('text-xs'));
    context.fillStyle = palette.css('ink-3');
    context.fillText(t.ended, x + pad, y + line / 2);
  }
}

/** The flag below a token where the lane would generate another one.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Lane} lane @param {number} index @param {number} x @param {number} y middle @param {number} small */
export function drawFlag(context, palette, lane, index, x, y, small) {
  const one = lane.measured[index];
  if (lane.index === 0 || !one || index >= lane.count || one.agrees) return;
  unequal(context, palette, x, y, small);
  if (index !== lane.figures?.first_divergence) return;
  useFont(context, palette.font('text-xs', 'ui', 700));
  context.fillStyle = palette.css('warn');
  context.fillText(t.first, x + small * 1.1, y);
}

/** The direction of the first difference, when it is outside the box.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} index of the first difference
 * @param {number} x of its left edge @param {number} width of the box @param {number} y middle */
export function drawPointer(context, palette, index, x, width, y) {
  const before = x < 0;
  if (!before && x < width) return;
  useFont(context, palette.font('text-xs', 'ui', 700));
  const text = fill(before ? t.earlier : t.later, { n: index });
  const room = textWidth(context, text);
  const from = before ? 0 : width - room;
  context.fillStyle = palette.css('ground');
  context.fillRect(from - 4, y - palette.px('text-xs') * 0.65, room + 10, palette.px('text-xs') * 1.3);
  context.fillStyle = palette.css('warn');
  context.fillText(text, from, y);
}

/** The sign ≠, which some fonts lack.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} x @param {number} y middle @param {number} size */
function unequal(context, palette, x, y, size) {
  context.lineWidth = 1.5 * palette.px('mark');
  context.strokeStyle = palette.css('warn');
  context.beginPath();
  for (const shift of [-0.17, 0.17]) {
    context.moveTo(x, y + shift * size);
    context.lineTo(x + 0.75 * size, y + shift * size);
  }
  context.moveTo(x + 0.55 * size, y - 0.45 * size);
  context.lineTo(x + 0.2 * size, y + 0.45 * size);
  context.stroke();
}

/** A low bracket. @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} x @param {number} y @param {number} width */
function leadMark(context, palette, x, y, width) {
  context.lineWidth = palette.px('mark');
  context.strokeStyle = palette.css('ink-3');
  context.beginPath();
  context.moveTo(x + 0.5, y - 2.5);
  context.lineTo(x + 0.5, y + 0.5);
  context.lineTo(x + width - 0.5, y + 0.5);
  context.lineTo(x + width - 0.5, y - 2.5);
  context.stroke();
}

/** A ring around the selected cell.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} x @param {number} y @param {number} width @param {number} height */
export function drawRing(context, palette, x, y, width, height) {
  context.lineWidth = 1.5 * palette.px('mark');
  context.strokeStyle = palette.css('selected');
  roundRect(context, x + 0.5, y + 0.5, width - 1, height - 1, 4);
  context.stroke();
}

/** The token without its leading space, which is drawn as a thin mark. @param {Piece} piece @returns {string} */
export function tapeText(piece) {
  if (piece.kind === 'bytes') return piece.text || (piece.hex ?? '');
  return clip(readable(piece.text).text, MAX_CHARS);
}

/** @param {Piece} piece @returns {boolean} */
export function hasLead(piece) {
  return piece.kind === 'text' && piece.text.startsWith(' ');
}
