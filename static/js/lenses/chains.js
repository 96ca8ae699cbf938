/** The requests as chains of logical blocks: a lettered badge, a line of text, and one tile per block of the table. */
import { fitText, textWidth } from '../canvas.js';
import { count, fill, readable } from '../text.js';
import { chainBox, layoutChain, LEVEL_WITH_ARROW } from './pages-space.js';
import { fillOf, listedRequests } from './pages-picture.js';
import { drawBadge } from './request-hues.js';
import { drawTile, hasFoot } from './tile.js';
import { texts } from './texts.js';

/** @typedef {import('../palette.js').Palette} Palette */
/** @typedef {import('../types.d.ts').Request} Request */
/** @typedef {import('./pages-picture.js').BlockView} BlockView */
/** @typedef {import('./pages-picture.js').PagesPicture} PagesPicture */
/** @typedef {import('./tile.js').Box} Box */

/**
 * One tile of a chain, for hit tests and connectors. `gone`: the request has ended and the block holds something else now.
 * @typedef {{request: number, logical: number, block: number, box: Box, gone: boolean, lane: number}} ChainTile
 */

/** @typedef {{request: Request, box: Box, badge: Box, area: Box, layout: ReturnType<typeof layoutChain>}} ChainRow */

const MOST_ROWS = 6;
/** Chains up to this level of smallness stand in tiles of one size; a longer one is smaller alone. */
const COMMON_LEVEL = 2;

/** @param {PagesPicture} picture @param {Box} area @param {number} heading @param {number} small @param {number|null} wanted
 * @returns {{rows: ChainRow[], numHidden: number}} */
export function layoutChains(picture, area, heading, small, wanted) {
  const room = Math.max(1, Math.min(MOST_ROWS, Math.floor((area.height - heading) / (small * 6.4))));
  const { requests, numHidden } = listedRequests(picture.after, room, wanted);
  const size = picture.after.blockSize;
  const badge = Math.round(small * 2.6);
  const lane = Math.round(small * 0.9);
  const perRow = (area.height - heading - (numHidden > 0 ? small * 1.4 : 0)) / Math.max(1, requests.length);
  const limit = Math.min(perRow, small * (requests.length <= 2 ? 16 : 11));
  let y = area.y + heading + (numHidden > 0 ? small * 1.4 : 0);
  const line = Math.round(small * 1.7);
  const tileArea = { x: area.x + badge + Math.round(small * 0.8), y: 0, width: area.width - badge - small * 0.8, height: Math.max(8, limit - line - lane) };
  const counts = requests.map((request) => {
    const later = request.state === 'finished' ? 0 : Math.ceil((request.promptLength + request.maxNewTokens - 1) / size);
    return Math.max(1, (request.lastTable ?? request.table).length, later);
  });
  const levels = counts.map((count_) => layoutChain(tileArea, count_, small).level);
  const common = Math.max(0, ...levels.filter((level) => level <= COMMON_LEVEL));
  const rows = requests.map((request, index) => {
    const tiles = { ...tileArea, y: y + line };
    const layout = layoutChain(tiles, counts[index], small, common);
    const held = Math.max((request.lastTable ?? request.table).length, 1);
    const lines = Math.max(1, Math.ceil(Math.min(layout.shown, held) / layout.perLine));
    const used = line + lines * (layout.height + layout.gap) - layout.gap;
    const row = {
      request, area: tiles, layout, box: { x: area.x, y, width: area.width, height: used },
      badge: { x: area.x, y: tiles.y, width: badge, height: Math.max(small * 2.2, Math.min(layout.height, small * 3.8)) },
    };
    y += Math.min(perRow, Math.max(used + lane * 1.6, Math.min(limit, small * 6.6)));
    return row;
  });
  return { rows, numHidden };
}

/**
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {PagesPicture} picture
 * @param {readonly ChainRow[]} rows @param {number} progress @param {(request: Request, logical: number, block: number) => boolean} isGone
 * @returns {ChainTile[]}
 */
export function drawChains(context, palette, picture, rows, progress, isGone) {
  /** @type {ChainTile[]} */
  const tiles = [];
  for (const row of rows) {
    const was = picture.before.requests.get(row.request.id);
    const now = progress > 0 || !was ? row.request : was;
    const over = now.state === 'finished' && (!picture.step || !was || was.state === 'finished' || (picture.phases !== null && progress > (picture.phases.release[0] + picture.phases.release[1]) / 2));
    header(context, palette, row, now, over);
    drawBadge(context, palette, row.request.id, row.request.letter, row.badge.x, row.badge.y, row.badge.width, row.badge.height, over);
    tiles.push(...drawRow(context, palette, picture, row, progress, over, isGone));
  }
  return tiles;
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {ChainRow} row @param {Request} request @param {boolean} over */
function header(context, palette, row, request, over) {
  const t = texts.pages;
  const y = row.box.y + palette.px('text-xs') * 0.75;
  const { x, width } = row.area;
  context.textBaseline = 'middle';
  context.textAlign = 'left';
  context.font = palette.font('text-s');
  const state = over ? t.state.finished : t.state[request.state];
  const tail = [fill(t.tokens, { n: count(over ? request.numComputed : request.state === 'waiting' ? request.tokens.length : request.numComputed) }), state].filter(Boolean).join(' · ');
  const tailWidth = textWidth(context, tail);
  const title = fitText(context, readable(request.prompt.trim() || request.pieces.map((piece) => piece.text).join('').trim()).text, Math.max(30, width - tailWidth - 16));
  context.fillStyle = palette.css(over ? 'ink-2' : 'ink');
  context.fillText(title, x, y);
  context.fillStyle = palette.css('ink-3');
  context.fillText(tail, x + textWidth(context, title) + 12, y);
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {PagesPicture} picture @param {ChainRow} row
 * @param {number} progress @param {boolean} over @param {(request: Request, logical: number, block: number) => boolean} isGone
 * @returns {ChainTile[]} */
function drawRow(context, palette, picture, row, progress, over, isGone) {
  const { request, layout, area } = row;
  const { table, arriving, arrived } = picture.chain(picture.before.requests.get(request.id), request, progress);
  const t = texts.pages;
  if (table.length === 0 && !over) {
    context.font = palette.font('text-xs');
    context.fillStyle = palette.css('ink-3');
    context.textAlign = 'left';
    context.fillText(t.noBlocks, area.x, area.y + row.badge.height / 2);
    return [];
  }
  const first = Math.max(0, table.length - layout.shown);
  /** @type {ChainTile[]} */
  const tiles = [];
  for (let logical = first; logical < table.length; logical += 1) {
    const block = table[logical];
    const box = chainBox(area, layout, logical - first);
    const gone = over && (block < 0 || isGone(request, logical, block));
    const view = block < 0 || gone ? NOTHING : viewIn(picture, request, block, progress, over);
    const fresh = logical >= arriving ? arrived : 1;
    context.globalAlpha = fresh;
    const note = gone && block >= 0 ? t.tile.gone : request.numHitTokens > logical * picture.after.blockSize && !over ? t.tile.hit : '';
    const id = block < 0 ? `${logical} → –` : fill(t.tile.logical, { logical, block });
    const short = layout.level <= LEVEL_WITH_ARROW ? id : block < 0 ? '–' : String(block);
    const shift = (1 - fresh) * 10;
    drawTile(context, palette, { ...box, x: box.x + shift }, picture.after.blockSize, view, {
      id: short, note, strong: false, letters: view.owners.length > 1 ? view.owners.map((id_) => picture.after.requests.get(id_)?.letter ?? '') : [],
    });
    if (gone) strike(context, palette, box);
    context.globalAlpha = 1;
    tiles.push({ request: request.id, logical, block, box, gone, lane: box.y + box.height + layout.gap / 2 });
  }
  if (first > 0) more(context, palette, area, first);
  return tiles;
}

/** @type {BlockView} */
const NOTHING = { form: 'blank', owners: [], filled: 0, fresh: 0, freshPart: 1, falling: 0, ring: 0, count: 0 };

/** A block as this chain sees it. @param {PagesPicture} picture @param {Request} request @param {number} block @param {number} progress
 * @param {boolean} over @returns {BlockView} */
function viewIn(picture, request, block, progress, over) {
  const view = picture.view(block, progress);
  if (!over) return { ...view, form: 'used', owners: view.owners.length > 0 ? view.owners : [request.id], falling: 0 };
  if (view.form === 'used') return { ...view, form: 'cached', filled: fillOf(picture.after, block, Infinity).filled };
  return view;
}

/** Not this request's any more. @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Box} box */
function strike(context, palette, box) {
  const small = palette.px('text-xs');
  const foot = hasFoot(box.width, box.height, small) ? small * 1.5 : 0;
  context.strokeStyle = palette.css('nobody');
  context.lineWidth = palette.px('mark');
  context.beginPath();
  context.moveTo(box.x + 5, box.y + box.height - 5 - foot);
  context.lineTo(box.x + box.width - 5, box.y + 5);
  context.stroke();
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Box} area @param {number} n */
function more(context, palette, area, n) {
  context.font = palette.font('text-xs');
  context.fillStyle = palette.css('ink-3');
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  context.fillText(fill(texts.pages.more, { n }), area.x + area.width, area.y - palette.px('text-xs'));
}
