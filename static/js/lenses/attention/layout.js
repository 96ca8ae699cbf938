/** Positions of the query heads from top to bottom, grouped by the KV head they share. Pure. */

/** @import { Palette } from '../../ui/palette.js' */
/** @import { LayerGeometry, ModelHeader } from '../../core/types.d.ts' */

/**
 * One row of bars. `head` null is the mean over heads.
 * @typedef {object} HeadRow
 * @property {number|null} head @property {number} kv the KV head it reads through, -1 for the mean
 * @property {number} top @property {number} height @property {number} base where the bars stand
 * @property {boolean} open
 */

/** Query heads from … to that share one KV head. @typedef {{kv: number, top: number, bottom: number, from: number, to: number}} Bracket */

/**
 * @typedef {object} AttentionSpace
 * @property {number} width @property {number} height @property {boolean} phone
 * @property {number} left where columns begin @property {number} columnsWidth
 * @property {number} chipTop @property {number} chipHeight
 * @property {number} rowsTop @property {number} rowsHeight @property {number} axisTop
 * @property {number} bracketX @property {number} queryX @property {number} queryWidth
 * @property {number} noteX where the name of a row's largest token stands, given the end of the columns
 */

const PHONE_WIDTH = 560;

/** How many KV heads a layer's query heads read through. @param {LayerGeometry|undefined} layer @param {ModelHeader} model */
export function numKvHeads(layer, model) {
  if (layer?.cache === 'latent') return 1;
  return Math.max(1, layer?.key_shape?.[0] ?? model.num_kv_heads);
}

/** @param {number} width @param {number} height @param {Palette} palette @returns {AttentionSpace} */
export function attentionSpace(width, height, palette) {
  const small = palette.px('text-xs');
  const phone = width < PHONE_WIDTH;
  const queryWidth = Math.round(small * (phone ? 2.3 : 2.8));
  const bracketX = phone ? 3 : 8;
  const queryX = Math.round(phone ? small * 2.4 : small * 7.6);
  const left = queryX + queryWidth + Math.round(small * (phone ? 0.5 : 1));
  const noteWidth = small * (phone ? 4.4 : 11);
  const chipHeight = Math.round(small * 1.15 + (phone ? 6 : 10));
  const chipTop = 4;
  const axisTop = Math.round(height - small * 2.1);
  const rowsTop = chipTop + chipHeight + 6;
  return {
    width,
    height,
    phone,
    left,
    columnsWidth: Math.max(60, width - left - noteWidth),
    chipTop,
    chipHeight,
    rowsTop,
    rowsHeight: Math.max(40, axisTop - rowsTop - 4),
    axisTop,
    bracketX,
    queryX,
    queryWidth,
    noteX: 10,
  };
}

/**
 * @param {AttentionSpace} space @param {number} numHeads @param {number} numKv @param {number|null} chosen head whose row is open
 * @param {number} small size of the smallest text
 * @returns {{rows: HeadRow[], brackets: Bracket[]}}
 */
export function layoutHeads(space, numHeads, numKv, chosen, small) {
  const perKv = Math.max(1, Math.ceil(numHeads / numKv));
  const gap = Math.min(12, Math.max(2, (space.rowsHeight * 0.2) / Math.max(1, numKv)));
  const free = space.rowsHeight - gap * numKv;
  const single = free / (numHeads + 1);
  const openHeight = Math.min(Math.max(single * 2, small * (space.phone ? 4 : 6)), free * 0.4);
  const height = Math.min(56, (free - openHeight) / numHeads);
  /** @type {HeadRow[]} */
  const rows = [];
  /** @type {Bracket[]} */
  const brackets = [];
  let y = space.rowsTop;
  const put = (/** @type {number|null} */ head, /** @type {number} */ kv) => {
    const open = head === chosen;
    const tall = open ? openHeight : height;
    rows.push({ head, kv, top: y, height: tall, base: y + tall - Math.max(1, Math.min(4, tall * 0.12)), open });
    y += tall;
  };
  put(null, -1);
  for (let kv = 0; kv < numKv; kv += 1) {
    y += gap;
    const top = y;
    const from = kv * perKv;
    const to = Math.min(numHeads, from + perKv);
    for (let head = from; head < to; head += 1) put(head, kv);
    if (to > from) brackets.push({ kv, top, bottom: y, from, to });
  }
  return { rows, brackets };
}

/** @param {readonly HeadRow[]} rows @param {number} y @returns {HeadRow|null} */
export function headAt(rows, y) {
  return rows.find((row) => y >= row.top && y < row.top + row.height) ?? null;
}
