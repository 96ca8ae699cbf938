/** The row that is being read: one bar per cached token, the five largest with labels, and the query at the row's end. */
import { clamp, fitText, roundRect, span, textWidth, useFont } from '../../ui/canvas.js';
import { weightOf } from './frame-rows.js';
/** @import { ColumnEdges } from '../cache/columns.js' */
/** @import { WeightRow } from './frame-rows.js' */
/** @import { Palette } from '../../ui/palette.js' */

/**
 * A rectangle of a bar, with its tokens. `peak` is the token with the most weight, null if the frame doesn't resolve
 * single tokens.
 * @typedef {{x0: number, x1: number, height: number, from: number, to: number, weight: number, peak: number|null, peakWeight: number}} Bar
 */

/** A bar is as high as the largest weight of its tokens, or as their sum if the frame doesn't resolve them.
 * @param {ColumnEdges} edges @param {WeightRow} row @param {number} room height of the largest bar
 * @param {number} [most] weight of a bar of that height; the largest of the row unless rows are to be compared
 * @returns {Bar[]} left to right */
export function layoutBars(edges, row, room, most) {
  /** @type {Bar[]} */
  const bars = [];
  let c = 0;
  while (c < edges.count && edges.from[c] < row.numTokens) {
    const from = edges.from[c];
    const last = Math.ceil((from + 1) / row.bin) * row.bin;
    let end = c;
    while (end + 1 < edges.count && edges.to[end] < Math.min(last, row.numTokens)) end += 1;
    const to = Math.min(edges.to[end], row.numTokens);
    const weight = weightOf(row, from, to);
    let peak = from;
    if (row.bin === 1) for (let p = from + 1; p < to; p += 1) if (row.weights[p] > row.weights[peak]) peak = p;
    const told = row.bin === 1 || to - from === 1;
    bars.push({
      x0: edges.x0[c],
      x1: edges.x1[end],
      height: 0,
      from,
      to,
      weight,
      peak: told ? peak : null,
      peakWeight: row.bin === 1 ? row.weights[peak] : weight,
    });
    c = end + 1;
  }
  const top = most ?? bars.reduce((largest, bar) => Math.max(largest, bar.peakWeight), 0);
  for (const bar of bars) bar.height = top > 0 ? (bar.peakWeight / top) * room : 0;
  return bars;
}

/**
 * @param {CanvasRenderingContext2D} context @param {readonly Bar[]} bars @param {number} base y on which they stand
 * @param {number} rise 0-1 @param {string} color @param {number} [least] height of the smallest bar
 */
export function drawBars(context, bars, base, rise, color, least = 1) {
  context.fillStyle = color;
  for (const bar of bars) {
    const width = bar.x1 - bar.x0;
    const gap = width >= 6 ? width * 0.24 : width >= 3 ? 1 : 0;
    const height = Math.max(bar.weight > 0 ? least * Math.min(1, rise * 4) : 0, bar.height * rise);
    if (height < 0.4) continue;
    context.fillRect(bar.x0 + gap / 2, base - height, Math.max(0.75, width - gap - (width >= 4 ? 1 : 0)), height);
  }
}

/** A text next to its bar.
 * @typedef {{text: string, x: number, y: number, bar: Bar, strong: boolean, leader: Place['leader']}} BarLabel */

/** Places the labels of the largest bars, largest first. Labels that don't fit are listed together in one line.
 * @param {CanvasRenderingContext2D} context with the font set
 * @param {readonly Bar[]} bars @param {number} count
 * @param {(bar: Bar) => string} name @param {(list: string) => string} also text of the line of the rest
 * @param {{left: number, right: number, top: number, base: number, line: number}} space `line` is the line height
 * @returns {BarLabel[]} */
export function placeLabels(context, bars, count, name, also, space) {
  const order = bars
    .filter((bar) => bar.weight > 0)
    .sort((a, b) => b.peakWeight - a.peakWeight)
    .slice(0, count);
  /** @type {(BarLabel & Place)[]} */
  const placed = [];
  /** @type {string[]} */
  const rest = [];
  for (const bar of order) {
    const text = fitText(context, name(bar), (space.right - space.left) * 0.5);
    const width = textWidth(context, text);
    const center = (bar.x0 + bar.x1) / 2;
    const top = space.base - bar.height;
    const starts = [0.5, 0.15, 0.85, 0.3, 0.7].map((share) => center - width * share);
    starts.push(bar.x1 - 1 - width, bar.x0);
    starts.splice(1, 0, bar.x1 + 5, bar.x0 - 6 - width);
    const found = firstFree(starts, width, top, bar, bars, placed, space);
    if (found) placed.push({ text, bar, strong: bar === order[0], ...found, x: found.x0, y: found.y1 });
    else rest.push(name(bar));
  }
  const line = rest.length > 0 ? placeLine(context, also(rest.join(', ')), bars, placed, space) : null;
  return line ? [...placed, { ...line, bar: order[0], strong: false }] : placed;
}

/** A line of text in a free place, as far right and as high as possible.
 * @param {CanvasRenderingContext2D} context @param {string} text @param {readonly Bar[]} bars @param {readonly Place[]} placed
 * @param {{left: number, right: number, top: number, base: number, line: number}} space */
function placeLine(context, text, bars, placed, space) {
  const width = textWidth(context, text);
  for (let y1 = space.top + space.line - 2; y1 < space.base - 6; y1 += space.line) {
    for (let x0 = space.right - width - 4; x0 >= space.left; x0 -= 24) {
      const box = { x0, x1: x0 + width, y0: y1 - space.line + 2, y1, leader: null };
      if (!placed.some((other) => meets(box, other)) && !hitsBar(box, bars, space.base))
        return { text, ...box, x: x0, y: y1 };
    }
  }
  return null;
}

/** The place of a label and, if it has one, the thin line down to its bar.
 * @typedef {{x0: number, x1: number, y0: number, y1: number, leader: {x: number, y0: number, y1: number}|null}} Place */

/**
 * @param {number[]} starts @param {number} width @param {number} top of the bar @param {Bar} own
 * @param {readonly Bar[]} bars @param {readonly Place[]} placed
 * @param {{left: number, right: number, top: number, base: number, line: number}} space
 * @returns {Place|null}
 */
function firstFree(starts, width, top, own, bars, placed, space) {
  const levels = Math.max(1, Math.floor((space.base - space.top) / space.line));
  for (let level = 0; level < levels + 1; level += 1) {
    for (const start of starts) {
      const beside = start >= own.x1 || start + width <= own.x0;
      if (beside && level > 0) continue;
      const y1 = beside
        ? Math.max(space.top + space.line, Math.min(space.base - 2, top + space.line - 3)) - (level * space.line) / 2
        : top - 3 - (level * space.line) / 2;
      const center = (own.x0 + own.x1) / 2;
      const leads = top - y1 > 7 && center >= start - 1 && center <= start + width + 1;
      const leader = leads ? { x: center, y0: y1 + 2, y1: top - 2 } : null;
      const box = { x0: start, x1: start + width, y0: y1 - space.line + 2, y1, leader };
      if (box.y0 < space.top - 3 || box.x0 < space.left || box.x1 > space.right) continue;
      if (placed.some((other) => meets(box, other)) || hitsBar(box, bars, space.base)) continue;
      return box;
    }
  }
  return null;
}

/** Whether a label, or its line, overlaps another or its line. @param {Place} a @param {Place} b @returns {boolean} */
function meets(a, b) {
  if (a.x0 < b.x1 + 8 && a.x1 > b.x0 - 8 && a.y0 < b.y1 && a.y1 > b.y0) return true;
  const crosses = (/** @type {Place} */ one, /** @type {Place} */ { x0, x1, y0, y1 }) =>
    one.leader !== null && one.leader.x > x0 - 3 && one.leader.x < x1 + 3 && one.leader.y0 < y1 && one.leader.y1 > y0;
  return crosses(a, b) || crosses(b, a);
}

/** @param {{x0: number, x1: number, y1: number}} box @param {readonly Bar[]} bars @param {number} base */
function hitsBar(box, bars, base) {
  return bars.some((bar) => bar.x1 > box.x0 - 2 && bar.x0 < box.x1 + 2 && base - bar.height < box.y1 + 1);
}

/**
 * @param {CanvasRenderingContext2D} context @param {readonly BarLabel[]} labels
 * @param {{ink: string, quiet: string, line: string, ground: string, height: number}} style
 */
export function drawLabels(context, labels, style) {
  context.textAlign = 'left';
  context.textBaseline = 'alphabetic';
  context.lineWidth = 1;
  for (const label of labels) {
    if (label.leader) {
      context.strokeStyle = style.line;
      context.beginPath();
      context.moveTo(label.leader.x, label.leader.y0);
      context.lineTo(label.leader.x, label.leader.y1);
      context.stroke();
    }
    context.fillStyle = style.ground;
    context.fillRect(label.x - 2, label.y - style.height, textWidth(context, label.text) + 4, style.height + 1);
    context.fillStyle = label.strong ? style.ink : style.quiet;
    context.fillText(label.text, label.x, label.y - style.height * 0.12);
  }
}

/** The query: a filled chip while it reads, which falls away when the row has been read; otherwise an outline.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette
 * @param {{x: number, y: number, within: number|null, text: string, note: readonly string[], room: number}} query
 *   `within` is how far the layer's work is, null when nothing reads; (x, y) is the middle of the chip's left edge */
export function drawQuery(context, palette, { x, y, within, text, note, room }) {
  const size = palette.px('text-l');
  useFont(context, palette.font('text-l', 'ui', 700));
  const width = Math.max(size * 1.8, textWidth(context, text) + size);
  const height = size * 1.6;
  const leave = within === null ? 1 : span(within, 0.84, 1);
  const come = within === null ? 1 : span(within, 0.26, 0.4);
  const drop = within === null ? 0 : leave * height * 0.5;
  const alpha = within === null ? 1 : come * (1 - leave);
  if (within === null || alpha < 0.999)
    ghost(context, palette, x, y, width, height, text, within === null ? 1 : 1 - come);
  if (within !== null && alpha > 0) {
    context.globalAlpha = alpha;
    context.fillStyle = palette.css('now');
    roundRect(context, x, y - height / 2 + drop, width, height, 6);
    context.fill();
    context.fillStyle = palette.css('on-now');
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    context.fillText(text, x + width / 2, y + drop + 1);
    context.globalAlpha = 1;
  }
  useFont(context, palette.font('text-xs'));
  context.fillStyle = palette.css('ink-3');
  context.textAlign = 'left';
  context.textBaseline = 'alphabetic';
  const line = palette.px('text-xs') * 1.25;
  note.forEach((part, index) => {
    context.fillText(fitText(context, part, room), x, y + height / 2 + line * (index + 1));
  });
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} x @param {number} y
 * @param {number} width @param {number} height @param {string} text @param {number} alpha */
function ghost(context, palette, x, y, width, height, text, alpha) {
  context.globalAlpha = clamp(alpha, 0, 1);
  context.strokeStyle = palette.css('line-strong');
  context.lineWidth = palette.px('mark');
  context.setLineDash([3, 3]);
  roundRect(context, x + 0.5, y - height / 2 + 0.5, width - 1, height - 1, 6);
  context.stroke();
  context.setLineDash([]);
  context.fillStyle = palette.css('ink-3');
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.fillText(text, x + width / 2, y + 1);
  context.globalAlpha = 1;
}
