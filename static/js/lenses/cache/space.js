/** The layout of the cache lens: gutters, chips, rows, axis. Pure function of size and type size. */

/** @import { Palette } from '../../ui/palette.js' */
/** @import { RowSpace } from './rows.js' */

/**
 * @typedef {object} CacheSpace
 * @property {number} width @property {number} height
 * @property {boolean} phone the opened row stands apart, above a strip of all layers
 * @property {number} columnsLeft @property {number} columnsWidth
 * @property {number} chipTop @property {number} chipHeight
 * @property {RowSpace} rows
 * @property {number} openTop @property {number} openHeight of the row that stands apart
 * @property {number} axisTop @property {number} axisText y of its sentences @property {number} line height of a line
 * @property {number} queryRoom width for the query at the row's end
 */

const PHONE_WIDTH = 560;

/**
 * @param {number} width @param {number} height @param {Palette} palette @param {readonly number[]} keyShare by layer
 * @param {number} unit one device pixel @param {number} wave 0-1: how far the open row is that of a prefill wave, without bars
 * @returns {CacheSpace}
 */
export function cacheSpace(width, height, palette, keyShare, unit, wave) {
  const small = palette.px('text-xs');
  const phone = width < PHONE_WIDTH;
  const line = Math.round(small * 1.5);
  const columnsLeft = Math.round(phone ? small * 2.9 : small * 4.9);
  const queryRoom = Math.round(phone ? small * 3.4 : small * 6.3);
  const chipTop = Math.round(phone ? 2 : 4);
  const chipHeight = Math.round(small * 1.15 + (phone ? 6 : 10));
  const axisLines = phone ? 1.2 : 2.2;
  const rowsTop = chipTop + chipHeight + (phone ? 8 : 12);
  const axisTop = Math.round(height - line * axisLines);
  const columnsWidth = Math.max(60, width - columnsLeft - queryRoom - (phone ? 4 : 8));
  const area = Math.max(40, axisTop - rowsTop - 4);
  const triple = (area * 3) / (keyShare.length + 2);
  const openHeight = Math.round(
    phone
      ? Math.min(240, area * 0.52)
      : Math.min(area * 0.45, Math.max(triple, Math.min(190, Math.max(92, area * 0.2)))),
  );
  const openStrip = phone
    ? Math.max(12, Math.round(openHeight * 0.1))
    : Math.max(9, Math.round(openHeight * 0.11), Math.round(small * 0.8));
  const space = { numLayers: keyShare.length, keyShare, unit, openStrip };
  const waveHeight = Math.round(openStrip * 2 + 22);
  /** @type {RowSpace} */
  const rows = phone
    ? { ...space, top: rowsTop + openHeight + 12, height: area - openHeight - 12, openHeight: 0 }
    : {
        ...space,
        top: rowsTop,
        height: area,
        openHeight: openHeight + (Math.min(openHeight, waveHeight) - openHeight) * wave,
      };
  return {
    width,
    height,
    phone,
    columnsLeft,
    columnsWidth,
    chipTop,
    chipHeight,
    rows,
    openTop: rowsTop,
    openHeight,
    axisTop,
    axisText: phone ? axisTop + 2 : axisTop + line * 0.75 + 4,
    line,
    queryRoom,
  };
}
