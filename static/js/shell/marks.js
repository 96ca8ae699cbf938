/** Marks of rare events on the timeline: each kind has its own shape, so its colour isn't needed to recognise it. */

/** @typedef {import('../core/log.js').Mark['kind']} MarkKind */
/** @import { Palette } from '../ui/palette.js' */

/** From common to rare; rarer marks are drawn on top. @type {MarkKind[]} */
const ORDER = ['hit', 'finish', 'window', 'forgotten', 'reset', 'eviction', 'fork', 'copy', 'preemption', 'differs'];

/** @type {Record<MarkKind, string>} */
const COLORS = {
  eviction: 'mark-eviction',
  window: 'mark-eviction',
  preemption: 'mark-preemption',
  hit: 'mark-hit',
  copy: 'mark-copy',
  fork: 'mark-copy',
  finish: 'mark-finish',
  reset: 'mark-finish',
  forgotten: 'mark-eviction',
  differs: 'mark-copy',
};

/** @param {MarkKind} kind @returns {number} */
export function rankOf(kind) {
  return ORDER.indexOf(kind);
}

/** @param {CanvasRenderingContext2D} g @param {Palette} palette @param {MarkKind} kind @param {number} x middle; the mark is 10 px high */
export function drawMark(g, palette, kind, x) {
  g.fillStyle = g.strokeStyle = palette.css(COLORS[kind]);
  g.beginPath();
  switch (kind) {
    case 'eviction':
      triangle(g, x);
      break;
    case 'hit':
      diamond(g, x);
      break;
    case 'preemption':
      return cross(g, palette, x);
    case 'copy':
      return twoSheets(g, palette, x);
    case 'fork':
      return branch(g, palette, x);
    case 'forgotten':
      return hollow(g, palette, x);
    case 'differs':
      return unequal(g, palette, x);
    default:
      g.rect(x - 3, 2, 6, 6);
  }
  g.fill();
  return undefined;
}

/** @param {CanvasRenderingContext2D} g @param {number} x */
function triangle(g, x) {
  g.moveTo(x - 5, 1);
  g.lineTo(x + 5, 1);
  g.lineTo(x, 9);
  g.closePath();
}

/** @param {CanvasRenderingContext2D} g @param {number} x */
function diamond(g, x) {
  g.moveTo(x, 0);
  g.lineTo(x + 5, 5);
  g.lineTo(x, 10);
  g.lineTo(x - 5, 5);
  g.closePath();
}

/** A preemption. @param {CanvasRenderingContext2D} g @param {Palette} palette @param {number} x */
function cross(g, palette, x) {
  g.moveTo(x - 4, 1);
  g.lineTo(x + 4, 9);
  g.moveTo(x + 4, 1);
  g.lineTo(x - 4, 9);
  outlined(g, palette, 2.5);
}

/** One sheet over another. @param {CanvasRenderingContext2D} g @param {Palette} palette @param {number} x */
function twoSheets(g, palette, x) {
  const color = g.fillStyle;
  g.rect(x - 5, 0.5, 7, 7);
  g.fill();
  g.beginPath();
  g.rect(x - 2, 3, 8, 8);
  g.fillStyle = palette.css('ground');
  g.fill();
  g.beginPath();
  g.rect(x - 1, 4, 6, 6);
  g.fillStyle = color;
  g.fill();
}

/** One line that splits into two. @param {CanvasRenderingContext2D} g @param {Palette} palette @param {number} x */
function branch(g, palette, x) {
  g.moveTo(x, 10);
  g.lineTo(x, 5.5);
  g.lineTo(x - 4, 1);
  g.moveTo(x, 5.5);
  g.lineTo(x + 4, 1);
  outlined(g, palette, 2);
}

/** A dropped entry. @param {CanvasRenderingContext2D} g @param {Palette} palette @param {number} x */
function hollow(g, palette, x) {
  g.rect(x - 3, 2, 6, 6);
  outlined(g, palette, 1.5);
}

/** Another token: the sign ≠. @param {CanvasRenderingContext2D} g @param {Palette} palette @param {number} x */
function unequal(g, palette, x) {
  g.moveTo(x - 5, 3.5);
  g.lineTo(x + 5, 3.5);
  g.moveTo(x - 5, 7.5);
  g.lineTo(x + 5, 7.5);
  g.moveTo(x + 3, 0.5);
  g.lineTo(x - 3, 10.5);
  outlined(g, palette, 1.8);
}

/** Strokes the path so that it is visible over the marks below it.
 * @param {CanvasRenderingContext2D} g @param {Palette} palette @param {number} width */
function outlined(g, palette, width) {
  const color = g.strokeStyle;
  g.strokeStyle = palette.css('ground');
  g.lineWidth = width + 2;
  g.stroke();
  g.strokeStyle = color;
  g.lineWidth = width;
  g.stroke();
}
