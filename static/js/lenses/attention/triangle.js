/** The whole triangle of a prefill step: every query of the step against every key, one head, on a logarithmic scale. */
import { Bitmap, fitText, textWidth, useFont } from '../../ui/canvas.js';
import { texts } from '../shared/texts.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { Pack } from '../../core/types.d.ts' */

/** Ends of the scale. */
export const TRIANGLE_LOW = 0.001;
export const TRIANGLE_HIGH = 1;

/** Weights of a prefill step: query i is at position `start` + i, key column c has `bin` tokens.
 * @typedef {object} Triangle
 * @property {number} numQueries @property {number} numColumns @property {number} start @property {number} bin
 * @property {(query: number, column: number) => number} weight */

/** @param {Pack} pack @param {boolean} hideSink @returns {Triangle|null} */
export function readTriangle(pack, hideSink) {
  const shape = pack.meta.arrays.find((array) => array.name === 'weights')?.shape;
  const { weights, weights_scale: scale } = pack.arrays;
  if (!shape || !weights || !scale) return null;
  const [numQueries, numColumns] = shape;
  const value = (/** @type {number} */ query, /** @type {number} */ column) =>
    weights[query * numColumns + column] * scale[query];
  return {
    numQueries,
    numColumns,
    start: pack.meta.start ?? 0,
    bin: pack.meta.bin ?? 1,
    weight: (query, column) => {
      if (!hideSink) return value(query, column);
      return column === 0 ? 0 : value(query, column) / Math.max(1e-6, 1 - value(query, 0));
    },
  };
}

/**
 * @typedef {object} TriangleSpace
 * @property {number} x @property {number} y @property {number} cell width of a column @property {number} cellHeight
 * @property {number} width @property {number} height
 */

/** Square cells if they fit.
 * @param {Triangle} triangle @param {number} x @param {number} y @param {number} width @param {number} height
 * @returns {TriangleSpace} */
export function triangleSpace({ numQueries, numColumns }, x, y, width, height) {
  const side = Math.min(26, width / numColumns, height / numQueries);
  const cell = side >= 2 ? Math.floor(side) : Math.min(26, width / numColumns);
  const cellHeight = side >= 2 ? Math.floor(side) : Math.min(26, height / numQueries);
  return { x, y, cell, cellHeight, width: cell * numColumns, height: cellHeight * numQueries };
}

/** @param {Bitmap} bitmap @param {Triangle} triangle @param {Uint32Array} scale */
export function paintTriangle(bitmap, triangle, scale) {
  const { numQueries, numColumns, start, bin } = triangle;
  bitmap.resize(numColumns, numQueries);
  bitmap.words.fill(0);
  const range = Math.log(TRIANGLE_HIGH / TRIANGLE_LOW);
  for (let query = 0; query < numQueries; query += 1) {
    for (let column = 0; column < numColumns && column * bin <= start + query; column += 1) {
      const t = Math.log(Math.max(triangle.weight(query, column), TRIANGLE_LOW) / TRIANGLE_LOW) / range;
      bitmap.words[query * numColumns + column] = scale[Math.min(255, Math.round(t * 255))];
    }
  }
  bitmap.commit();
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Bitmap} bitmap @param {TriangleSpace} space
 * @param {Triangle} triangle @param {(position: number) => string} name */
export function drawTriangle(context, palette, bitmap, space, triangle, name) {
  const small = space.cell < 1 || space.cellHeight < 1;
  bitmap.draw(context, space.x, space.y, space.width, space.height, small);
  if (space.cell >= 6) grid(context, palette, space, triangle);
  const size = palette.px('text-xs');
  useFont(context, palette.font('text-xs', 'mono'));
  context.fillStyle = palette.css('ink-2');
  context.textBaseline = 'middle';
  context.textAlign = 'right';
  const stride = Math.ceil((size * 1.15) / space.cellHeight);
  for (let query = 0; query < triangle.numQueries; query += stride) {
    const position = triangle.start + query;
    const text = stride <= 1 ? name(position) : String(position);
    context.fillText(fitText(context, text, space.x - 14), space.x - 6, space.y + (query + 0.5) * space.cellHeight);
  }
  useFont(context, palette.font('text-xs'));
  context.textAlign = 'center';
  context.textBaseline = 'top';
  context.fillStyle = palette.css('ink-3');
  const wide = textWidth(context, '0000');
  const every = Math.max(1, Math.ceil((wide * 1.4) / space.cell));
  for (let column = 0; column < triangle.numColumns; column += every) {
    context.fillText(String(column * triangle.bin), space.x + (column + 0.5) * space.cell, space.y + space.height + 5);
  }
  context.textAlign = 'left';
  context.fillStyle = palette.css('ink-2');
  context.fillText(`${texts.attention.key} →`, space.x, space.y + space.height + 5 + size * 1.4);
}

/** Thin gaps between cells. @param {CanvasRenderingContext2D} context @param {Palette} palette @param {TriangleSpace} space @param {Triangle} triangle */
function grid(context, palette, space, { numQueries, numColumns }) {
  context.fillStyle = palette.css('ground');
  for (let c = 1; c <= numColumns; c += 1) context.fillRect(space.x + c * space.cell - 1, space.y, 1, space.height);
  for (let q = 1; q <= numQueries; q += 1)
    context.fillRect(space.x, space.y + q * space.cellHeight - 1, space.width, 1);
}

/** The cell under a point.
 * @param {TriangleSpace} space @param {Triangle} triangle @param {number} x @param {number} y
 * @returns {{query: number, column: number}|null} */
export function triangleAt(space, triangle, x, y) {
  const column = Math.floor((x - space.x) / space.cell);
  const query = Math.floor((y - space.y) / space.cellHeight);
  if (column < 0 || query < 0 || column >= triangle.numColumns || query >= triangle.numQueries) return null;
  return column * triangle.bin <= triangle.start + query ? { query, column } : null;
}
