/** The requests in the list of the pages lens, and their layout: tall rows while they fit, else rows of one line. Pure. */
import { layoutChain } from './space.js';
/** @import { World, Request } from '../../core/types.d.ts' */
/** @import { PagesPicture } from './picture.js' */
/** @import { Box } from './tile.js' */

/** `title`: place of the text; `area`: place of the tiles.
 * @typedef {{request: Request, box: Box, badge: Box, title: Box, area: Box, compact: boolean, layout: ReturnType<typeof layoutChain>}} ChainRow */

const MOST_ROWS = 6;
const MOST_COMPACT_ROWS = 16;
/** Height of a row in units of the smallest text. */
const ROOMY = 6.4;
const COMPACT = 3.25;
const DENSE = 2.6;
/** Width from which rows of one line can be in two columns. */
const TWO_COLUMNS = 36;
/** Width of a tile with a number and the gap after it. */
const NUMBERED = 2.8;
/** Minimum width of a row without text; these can be in more columns. */
const BARE_COLUMN = 12.5;
/** Up to this size level, all chains have tiles of one size; only a longer chain has smaller ones. */
const COMMON_LEVEL = 2;
/** Priority of the states if not all requests fit. */
const RANK = { running: 0, preempted: 1, swapped: 1, waiting: 2, finished: 3 };

/** The requests in the list: running ones, then waiting ones, then the last finished ones; in order of id.
 * @param {World} world @param {number} room how many fit @param {number|null} wanted a request that must be there
 * @returns {{requests: Request[], hidden: Request[]}} */
function listedRequests(world, room, wanted) {
  const all = [...world.requests.values()];
  const age = (/** @type {Request} */ request) => (request.state === 'finished' ? -request.id : request.id);
  const order = all
    .slice()
    .sort(
      (a, b) => Number(b.id === wanted) - Number(a.id === wanted) || RANK[a.state] - RANK[b.state] || age(a) - age(b),
    );
  const most = Math.max(1, room);
  const byId = (/** @type {Request} */ a, /** @type {Request} */ b) => a.id - b.id;
  return { requests: order.slice(0, most).sort(byId), hidden: order.slice(most).sort(byId) };
}

/** @param {PagesPicture} picture @param {Box} area @param {number} heading @param {number} small @param {number|null} wanted
 * @returns {{rows: ChainRow[], hidden: Request[]}} */
export function layoutChains(picture, area, heading, small, wanted) {
  const height = area.height - heading;
  const roomy = Math.max(1, Math.min(MOST_ROWS, Math.floor(height / (small * ROOMY))));
  if (picture.after.unfinished.length > roomy) return compactRows(picture, area, heading, small, wanted);
  const { requests, hidden } = listedRequests(picture.after, roomy, wanted);
  const badge = Math.round(small * 2.6);
  const lane = Math.round(small * 0.9);
  const perRow = height / Math.max(1, requests.length);
  const limit = Math.min(perRow, small * (requests.length <= 2 ? 16 : 11));
  let y = area.y + heading;
  const line = Math.round(small * 1.7);
  const tileArea = {
    x: area.x + badge + Math.round(small * 0.8),
    y: 0,
    width: area.width - badge - small * 0.8,
    height: Math.max(8, limit - line - lane),
  };
  const counts = requests.map((request) => mostBlocks(request, picture.after.blockSize));
  const levels = counts.map((count) => layoutChain(tileArea, count, small).level);
  const common = Math.max(0, ...levels.filter((level) => level <= COMMON_LEVEL));
  const rows = requests.map((request, index) => {
    const tiles = { ...tileArea, y: y + line };
    const layout = layoutChain(tiles, counts[index], small, common);
    const held = Math.max((request.lastTable ?? request.table).length, 1);
    const lines = Math.max(1, Math.ceil(Math.min(layout.shown, held) / layout.perLine));
    const used = line + lines * (layout.height + layout.gap) - layout.gap;
    const row = {
      request,
      area: tiles,
      layout,
      compact: false,
      box: { x: area.x, y, width: area.width, height: used },
      title: { x: tiles.x, y, width: tiles.width, height: line },
      badge: {
        x: area.x,
        y: tiles.y,
        width: badge,
        height: Math.max(small * 2.2, Math.min(layout.height, small * 3.8)),
      },
    };
    y += Math.min(perRow, Math.max(used + lane * 1.6, Math.min(limit, small * 6.6)));
    return row;
  });
  return { rows, hidden };
}

/** Blocks that a request may need in the end. @param {Request} request @param {number} blockSize */
function mostBlocks(request, blockSize) {
  const later =
    request.state === 'finished' ? 0 : Math.ceil((request.promptLength + request.maxNewTokens - 1) / blockSize);
  return Math.max(1, (request.lastTable ?? request.table).length, later);
}

/** Badge, text and tiles side by side.
 * @param {PagesPicture} picture @param {Box} area @param {number} heading @param {number} small
 * @param {number|null} wanted @returns {{rows: ChainRow[], hidden: Request[]}} */
function compactRows(picture, area, heading, small, wanted) {
  const height = area.height - heading;
  const live = picture.after.unfinished.length;
  const fits = (/** @type {number} */ row) =>
    Math.max(1, Math.min(MOST_COMPACT_ROWS, Math.floor(height / (small * row))));
  const two = live > fits(COMPACT) && area.width >= small * TWO_COLUMNS ? 2 : 1;
  const most = Math.max(two, Math.floor(area.width / (small * BARE_COLUMN)));
  const bare = live > fits(DENSE) * two && most > two;
  const columns = bare ? Math.min(most, Math.ceil(live / fits(DENSE))) : two;
  const room = fits(live > fits(COMPACT) * columns ? DENSE : COMPACT);
  const { requests, hidden } = listedRequests(picture.after, room * columns, wanted);
  const perColumn = Math.ceil(requests.length / columns);
  const perRow = Math.floor(Math.min(small * 4.6, height / Math.max(1, perColumn)));
  const gap = Math.round(small * 0.6);
  const width = Math.floor((area.width - (columns - 1) * 2 * gap) / columns);
  const badge = Math.round(small * 2.3);
  const longest = Math.max(...requests.map((request) => mostBlocks(request, picture.after.blockSize)));
  const needed = longest * NUMBERED * small;
  const usual = Math.round(Math.min(small * 16, Math.max(small * 6.6, width * 0.33)));
  const beside = width - badge - gap;
  // Omit the text if that leaves the tiles their numbers.
  const words = bare || (beside - usual - gap < needed && beside >= needed) ? 0 : usual;
  const tall = perRow - Math.round(small * 0.4);
  const rows = requests.map((request, index) => {
    const left = area.x + Math.floor(index / perColumn) * (width + 2 * gap);
    const y = area.y + heading + (index % perColumn) * perRow;
    const x = left + badge + gap + (words > 0 ? words + gap : 0);
    const tiles = { x, y, width: left + width - x, height: tall };
    const layout = layoutChain(tiles, mostBlocks(request, picture.after.blockSize), small, COMMON_LEVEL);
    return {
      request,
      area: tiles,
      layout,
      compact: true,
      box: { x: left, y, width, height: tall },
      badge: { x: left, y, width: badge, height: Math.min(tall, small * 2.9) },
      title: { x: left + badge + gap, y, width: words, height: tall },
    };
  });
  return { rows, hidden };
}
