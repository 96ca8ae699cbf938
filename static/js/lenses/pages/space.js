/** The layout of the pages lens and of its tiles. Pure functions of size and counts. */

/** @import { Palette } from '../../ui/palette.js' */
/** @import { Box } from './tile.js' */

/**
 * @typedef {object} PagesSpace
 * @property {number} width @property {number} height of the whole picture (a phone scrolls it)
 * @property {boolean} stacked one section below the other
 * @property {Box} chains @property {Box} pool @property {Box} queue @property {Box} slabs @property {Box|null} host
 * @property {number} heading height of a heading
 * @property {number} gutter x at which connectors run up and down
 */

const STACKED_WIDTH = 700;
/** Height of a tile of the free queue, in widths, and of the text below it, in units of the smallest text. */
export const TILE_SHAPE = 0.82;
export const QUEUE_NOTE = 2.1;
/** Below this height of chains and queue, in units of the smallest text, many requests make the queue's tiles small. */
const SHORT = 22;
const PAD = 16;

/** @param {number} width @param {number} height @param {Palette} palette @param {number} numBlocks @param {{numHost?: number, numRows?: number, byPrefix?: boolean}} [more] blocks of the host tier, requests that have not ended, the pool as a tree
 * @returns {PagesSpace} */
export function pagesSpace(width, height, palette, numBlocks, { numHost = 0, numRows = 0, byPrefix = false } = {}) {
  const small = palette.px('text-xs');
  const figure = palette.px('text-figure');
  const heading = Math.round(small * 2);
  const slabHeight = Math.round(heading + small * 3.8 + 8 + Math.max(figure * 1.2, small * 3));
  const upper = height - slabHeight - PAD - 14;
  const isShort = width >= STACKED_WIDTH && numRows > 2 && upper < small * SHORT;
  const queueTile = isShort ? small * 3 : queueTileSize(small, numBlocks);
  const queueHeight = Math.round(heading + queueTile * TILE_SHAPE + small * QUEUE_NOTE);
  if (width < STACKED_WIDTH)
    return stacked(
      width,
      height,
      small,
      heading,
      slabHeight + small * 2,
      queueHeight,
      numBlocks,
      numHost,
      numRows,
      byPrefix,
    );
  const gutterWidth = Math.max(36, width * 0.04);
  const leftWidth = Math.round((width - 2 * PAD - gutterWidth) * (numBlocks > 150 ? 0.44 : 0.5));
  const poolX = PAD + leftWidth + gutterWidth;
  const chainsHeight = upper - queueHeight - 18;
  const hostHeight = numHost === 0 ? 0 : hostHeightOf(width - poolX - PAD, upper * 0.3, heading, small, numHost);
  return {
    width,
    height,
    stacked: false,
    heading,
    chains: { x: PAD, y: 6, width: leftWidth, height: chainsHeight },
    queue: { x: PAD, y: 6 + chainsHeight + 12, width: leftWidth, height: queueHeight },
    pool: { x: poolX, y: 6, width: width - poolX - PAD, height: upper - (hostHeight > 0 ? hostHeight + 10 : 0) },
    host:
      hostHeight > 0 ? { x: poolX, y: 6 + upper - hostHeight, width: width - poolX - PAD, height: hostHeight } : null,
    slabs: { x: PAD, y: height - slabHeight - 4, width: width - 2 * PAD, height: slabHeight },
    gutter: PAD + leftWidth + 8,
  };
}

/** Height of the host tier; its tiles are at most as large as the queue's.
 * @param {number} width @param {number} most @param {number} heading
 * @param {number} small @param {number} numHost @returns {number} */
function hostHeightOf(width, most, heading, small, numHost) {
  const tile = small * 3.9;
  const lines = Math.ceil(numHost / Math.max(1, Math.floor(width / tile)));
  return Math.round(Math.max(heading + small * 2.4, Math.min(most, heading + lines * (tile * 0.8 + 5))));
}

/** Width of a tile of the free queue: about that of the pool's tiles, and never too small to read.
 * @param {number} small @param {number} numBlocks @returns {number} */
function queueTileSize(small, numBlocks) {
  return Math.round(small * (numBlocks <= 64 ? 5 : 3.9));
}

/** @param {number} width @param {number} height @param {number} small @param {number} heading @param {number} slabHeight
 * @param {number} queueHeight @param {number} numBlocks @param {number} numHost @param {number} numRows @param {boolean} byPrefix @returns {PagesSpace} */
function stacked(width, height, small, heading, slabHeight, queueHeight, numBlocks, numHost, numRows, byPrefix) {
  const pad = 8;
  const inner = width - 2 * pad;
  const columns = Math.max(1, Math.floor(inner / Math.max(small * 3.6, 44)));
  const tile = numBlocks > 96 ? 18 : inner / columns;
  const byAddress = heading + Math.ceil(numBlocks / Math.floor(inner / tile)) * tile * 0.92 + 12;
  const poolHeight = byPrefix
    ? Math.max(byAddress, heading + small * 2.6 * Math.min(20, Math.ceil(numBlocks * 0.6)))
    : byAddress;
  const chainsHeight = Math.round(heading + small * Math.max(12, Math.min(numRows, 10) * 4));
  let y = 4;
  const take = (/** @type {number} */ h) => {
    const box = { x: pad, y, width: inner, height: h };
    y += h + 12;
    return box;
  };
  const chains = take(chainsHeight);
  const queue = take(queueHeight);
  const pool = take(poolHeight);
  const host = numHost > 0 ? take(hostHeightOf(inner, small * 14, heading, small, numHost)) : null;
  const slabs = take(slabHeight);
  return {
    width,
    height: Math.max(height, y),
    stacked: true,
    heading,
    chains,
    queue,
    pool,
    host,
    slabs,
    gutter: width - 4,
  };
}

/** Tiles of the pool: as large as possible, close to a fixed shape.
 * @param {Box} area @param {number} heading @param {number} numBlocks @param {number} small
 * @returns {{columns: number, width: number, height: number, gap: number, x: number, y: number, rowNames: boolean}} */
export function layoutPool(area, heading, numBlocks, small) {
  const room = { width: area.width, height: Math.max(20, area.height - heading) };
  const dense = numBlocks > 150;
  const names = dense ? small * 2.6 : 0;
  const largest = small * (numBlocks <= 8 ? 15 : 10);
  let best = { columns: 1, width: 0, height: 0, gap: 0 };
  for (let columns = 1; columns <= numBlocks; columns += 1) {
    if (dense && columns % 4 !== 0) continue;
    const rows = Math.ceil(numBlocks / columns);
    const gap = dense ? 3 : 7;
    const width = Math.min(largest, (room.width - names - gap * (columns - 1)) / columns);
    const height = Math.min(width * (dense ? 0.94 : 0.8), (room.height - gap * (rows - 1)) / rows);
    if (width <= 2 || height <= 2) continue;
    const size = Math.min(width, height * 1.25);
    if (size >= Math.min(best.width, best.height * 1.25) - 0.5)
      best = { columns, width: Math.min(width, height * 1.5), height, gap };
  }
  return {
    ...best,
    width: Math.floor(best.width),
    height: Math.floor(best.height),
    x: area.x + names,
    y: area.y + heading,
    rowNames: dense,
  };
}

/** @param {ReturnType<typeof layoutPool>} pool @param {number} block @returns {Box} */
export function poolBox(pool, block) {
  const column = block % pool.columns;
  const row = Math.floor(block / pool.columns);
  return {
    x: pool.x + column * (pool.width + pool.gap),
    y: pool.y + row * (pool.height + pool.gap),
    width: pool.width,
    height: pool.height,
  };
}

/** @param {ReturnType<typeof layoutPool>} pool @param {number} numBlocks @param {number} x @param {number} y @returns {number} block or -1 */
export function blockAt(pool, numBlocks, x, y) {
  const column = Math.floor((x - pool.x) / (pool.width + pool.gap));
  const row = Math.floor((y - pool.y) / (pool.height + pool.gap));
  if (column < 0 || row < 0 || column >= pool.columns) return -1;
  const block = row * pool.columns + column;
  return block < numBlocks ? block : -1;
}

/** Sizes of a chain's tiles and the gaps between them, from large to small, in units of the smallest text. */
const LEVELS = [
  [8.6, 5.2, 8],
  [4.6, 3.6, 5],
  [3.4, 2.9, 6],
  [2.6, 2.35, 4],
  [1.7, 1.5, 4],
  [0.9, 0.8, 2],
];
/** Up to this level, a tile has space for "logical → physical". */
export const LEVEL_WITH_ARROW = 1;

/** The tiles of one request's chain: the largest size at which all blocks it may need fit, in lines.
 * @param {Box} area where the tiles may stand @param {number} count blocks @param {number} small
 * @param {number} [from] largest level that is allowed
 * @returns {{width: number, height: number, gap: number, perLine: number, shown: number, level: number}} */
export function layoutChain(area, count, small, from = 0) {
  const last = LEVELS.length - 1;
  for (let level = Math.min(from, last); level <= last; level += 1) {
    const [w, h, gap] = [Math.floor(LEVELS[level][0] * small), Math.floor(LEVELS[level][1] * small), LEVELS[level][2]];
    const perLine = Math.max(1, Math.floor((area.width + gap) / (w + gap)));
    const lines = Math.floor((area.height + gap) / (h + gap));
    if (perLine * lines >= count || level === last) {
      return { width: w, height: h, gap, perLine, shown: Math.min(count, perLine * Math.max(1, lines)), level };
    }
  }
  throw new Error('A chain needs at least one level.');
}

/** @param {Box} area @param {ReturnType<typeof layoutChain>} chain @param {number} index of the shown tiles @returns {Box} */
export function chainBox(area, chain, index) {
  const line = Math.floor(index / chain.perLine);
  return {
    x: area.x + (index % chain.perLine) * (chain.width + chain.gap),
    y: area.y + line * (chain.height + chain.gap),
    width: chain.width,
    height: chain.height,
  };
}

/** Places in the visible part of the free queue: its head and its last blocks, with a gap if not all fit.
 * @param {number} width @param {number} tile @param {number} gap @param {number} length of the queue
 * @returns {{x: number, hidden: boolean}[]} by place */
export function queuePlaces(width, tile, gap, length) {
  const fits = Math.max(2, Math.floor((width + gap) / (tile + gap)));
  /** @type {{x: number, hidden: boolean}[]} */
  const places = [];
  if (length <= fits) {
    for (let i = 0; i < length; i += 1) places.push({ x: i * (tile + gap), hidden: false });
    return places;
  }
  const space = tile * 0.9;
  const shown = Math.max(2, Math.floor((width - space + gap) / (tile + gap)));
  const tail = Math.max(1, Math.min(4, Math.floor(shown / 3)));
  const head = shown - tail;
  const middle = head * (tile + gap);
  for (let i = 0; i < length; i += 1) {
    if (i < head) places.push({ x: i * (tile + gap), hidden: false });
    else if (i >= length - tail) places.push({ x: width - (length - i) * (tile + gap) + gap, hidden: false });
    else places.push({ x: middle, hidden: true });
  }
  return places;
}
