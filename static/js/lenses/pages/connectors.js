/** Lines from a logical block to its physical block, only in the gutters, never behind a tile. */
import { hueOf, hueOutline } from '../shared/request-hues.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { ChainTile } from './chains.js' */
/** @import { Box } from './tile.js' */

/** Maximum number of lines at the same time. */
export const MOST_LINES = 8;
const LANE = 4;

/**
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {readonly ChainTile[]} tiles
 * @param {(block: number) => Box|null} boxOf @param {number} gutter x of the first lane @param {number} poolGap
 * @param {number} t 0-1: how far the lines have come
 */
export function drawConnectors(context, palette, tiles, boxOf, gutter, poolGap, t) {
  tiles.slice(0, MOST_LINES).forEach((tile, index) => {
    if (tile.block < 0) return;
    const target = boxOf(tile.block);
    if (!target) return;
    const lane = gutter + index * LANE;
    const start = tile.box.x + tile.box.width / 2;
    const end = target.x + target.width / 2 + ((index % 3) - 1) * 3;
    const above = target.y - Math.max(2, poolGap / 2);
    /** @type {[number, number][]} */
    const points = [
      [start, tile.box.y + tile.box.height + 1],
      [start, tile.lane],
      [lane, tile.lane],
      [lane, above],
      [end, above],
      [end, target.y - 0.5],
    ];
    const outline = tile.request % 4 === 0 ? hueOutline(palette) : null;
    if (outline) trace(context, points, outline, 3.4 * palette.px('mark'), t);
    trace(context, points, hueOf(palette, tile.request), 2 * palette.px('mark'), t);
  });
}

/** @param {CanvasRenderingContext2D} context @param {readonly [number, number][]} points @param {string} color @param {number} width @param {number} t */
function trace(context, points, color, width, t) {
  let total = 0;
  for (let i = 1; i < points.length; i += 1)
    total += Math.hypot(points[i][0] - points[i - 1][0], points[i][1] - points[i - 1][1]);
  context.strokeStyle = color;
  context.lineWidth = width;
  context.lineJoin = 'round';
  context.setLineDash([total * t, total]);
  context.beginPath();
  points.forEach(([x, y], i) => (i === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
  context.stroke();
  context.setLineDash([]);
}
