/** The free queue: unused blocks, head first, and the mark under the block that is reused next. */
import { fitText, lerp, textWidth, useFont } from '../../ui/canvas.js';
import { fill } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { QUEUE_NOTE, queuePlaces, TILE_SHAPE } from './space.js';
import { drawTile } from './tile.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { PagesPicture } from './picture.js' */
/** @import { Box } from './tile.js' */

const GAP = 6;

/** A tile of the queue, for hit tests. @typedef {{block: number, box: Box}} QueueTile */

/**
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {PagesPicture} picture @param {Box} area
 * @param {number} heading @param {number} progress @param {boolean} offloads evicted prefixes go to the host tier
 * @returns {QueueTile[]}
 */
export function drawQueue(context, palette, picture, area, heading, progress, offloads) {
  const small = palette.px('text-xs');
  const size = Math.round((area.height - heading - small * QUEUE_NOTE) / TILE_SHAPE);
  const tall = Math.round(size * TILE_SHAPE);
  const y = area.y + heading;
  const { orders, taken, returned } = picture.queue(progress);
  const [first, middle, last] = orders.map((order) => placesOf(order, area.width, size));
  const t = texts.pages;
  const head = returned >= 0.5 ? orders[2][0] : taken >= 0.5 ? orders[1][0] : orders[0][0];
  /** @type {QueueTile[]} */
  const tiles = [];
  for (const block of visible(first, middle, last)) {
    const place = blend(first.get(block), middle.get(block), last.get(block), taken, returned);
    if (!place || place.alpha <= 0.01) continue;
    const box = { x: area.x + place.x, y: y + place.lift * size * 0.1, width: size, height: tall };
    context.globalAlpha = place.alpha;
    const view = picture.view(block, progress);
    drawTile(
      context,
      palette,
      box,
      picture.after.blockSize,
      view.form === 'used' ? { ...view, form: 'blank', ring: 1 } : view,
      { id: String(block), note: '', strong: block === head, letters: [] },
    );
    context.globalAlpha = 1;
    tiles.push({ block, box });
  }
  if (tiles.length === 0) {
    useFont(context, palette.font('text-s'));
    context.fillStyle = palette.css('ink-2');
    context.textAlign = 'left';
    context.textBaseline = 'middle';
    context.fillText(fitText(context, t.queueEmpty, area.width), area.x, y + small);
    return tiles;
  }
  ellipsis(context, palette, orders[taken >= 0.5 ? (returned >= 0.5 ? 2 : 1) : 0], area, size, y + tall / 2);
  feet(context, palette, picture, area, head, y + tall + 3, progress, offloads);
  return tiles;
}

/** @typedef {Map<number, {x: number, hidden: boolean}>} Places */

/** @param {readonly number[]} order @param {number} width @param {number} size @returns {Places} */
function placesOf(order, width, size) {
  const places = queuePlaces(width, size, GAP, order.length);
  return new Map(order.map((block, index) => [block, places[index]]));
}

/** Blocks that are drawn at some time in the step. @param {...Places} all @returns {Set<number>} */
function visible(...all) {
  /** @type {Set<number>} */
  const blocks = new Set();
  for (const places of all) for (const [block, place] of places) if (!place.hidden) blocks.add(block);
  return blocks;
}

/** @typedef {{x: number, hidden: boolean}|undefined} Place */

/** @param {Place} first @param {Place} middle @param {Place} last @param {number} taken @param {number} returned */
function blend(first, middle, last, taken, returned) {
  const leaving = step(first, middle, taken);
  const coming = step(middle, last, returned);
  if (!middle) return returned > 0 && last ? coming : leaving;
  return returned > 0 ? coming : leaving;
}

/** The motion from one place to another. Without a place, a tile fades and rises out of the row, or into it.
 * @param {Place} from @param {Place} to @param {number} t @returns {{x: number, alpha: number, lift: number}|null} */
function step(from, to, t) {
  if (from && to)
    return { x: lerp(from.x, to.x, t), alpha: lerp(Number(!from.hidden), Number(!to.hidden), t), lift: 0 };
  if (from) return { x: from.x, alpha: (1 - t) * Number(!from.hidden), lift: -t };
  if (to) return { x: to.x, alpha: t * Number(!to.hidden), lift: -(1 - t) };
  return null;
}

/** Number of blocks between the head and the last ones.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette
 * @param {readonly number[]} order @param {Box} area @param {number} size @param {number} y */
function ellipsis(context, palette, order, area, size, y) {
  const places = queuePlaces(area.width, size, GAP, order.length);
  const hidden = places.filter((place) => place.hidden);
  if (hidden.length === 0) return;
  useFont(context, palette.font('text-xs'));
  context.fillStyle = palette.css('ink-2');
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.fillText(fill(texts.pages.more, { n: hidden.length }), area.x + hidden[0].x + size * 0.42, y);
}

/** The text under the queue.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {PagesPicture} picture
 * @param {Box} area @param {number|undefined} head @param {number} y @param {number} progress @param {boolean} offloads */
function feet(context, palette, picture, area, head, y, progress, offloads) {
  if (head === undefined) return;
  const t = texts.pages;
  const cached = picture.view(head, progress).form === 'cached';
  useFont(context, palette.font('text-xs', 'ui', 500));
  context.textAlign = 'left';
  context.textBaseline = 'top';
  context.fillStyle = palette.css('now');
  const text = fitText(context, !cached ? t.next : offloads ? t.nextMoves : t.nextEvicts, area.width);
  context.fillText(text, area.x, y + 4);
  const used = textWidth(context, text);
  useFont(context, palette.font('text-xs'));
  if (textWidth(context, t.waits) > area.width - used - 24) return;
  context.textAlign = 'right';
  context.fillStyle = palette.css('ink-3');
  context.fillText(t.waits, area.x + area.width, y + 4);
}
