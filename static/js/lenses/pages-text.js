/** The pages lens in words. */
import { h, replace } from '../dom.js';
import { poolCounts } from '../selectors.js';
import { fill } from '../text.js';
import { fillOf } from './pages-picture.js';
import { texts } from './texts.js';

/** @typedef {import('../types.d.ts').World} World */
/** @typedef {import('../types.d.ts').Request} Request */
/** @typedef {import('./block-history.js').BlockHistory} BlockHistory */
/** @typedef {import('./chains.js').ChainTile} ChainTile */

/** @param {World} world @param {number} block @returns {string} */
export function blockText(world, block) {
  const t = texts.pages.block;
  const n = world.free.length;
  const at = world.free.indexOf(block);
  const place = at === 0 ? fill(t.head, { n }) : fill(t.place, { place: at + 1, n });
  if (world.refCount[block] > 0) {
    const owners = [];
    for (const id of world.unfinished) {
      const request = world.requests.get(id);
      const logical = request?.table.indexOf(block) ?? -1;
      if (request && logical >= 0) owners.push(`${fill(t.request, { letter: request.letter })}, ${fill(t.tokens, { from: logical * world.blockSize, to: (logical + 1) * world.blockSize - 1 })}`);
    }
    return fill(t.used, { block, owners: owners.join('; '), filled: fillOf(world, block, Infinity).filled, size: world.blockSize, count: world.refCount[block] });
  }
  if (world.hash[block] === null) return fill(t.blank, { block, place });
  const from = Math.max(0, world.slotPosition[block * world.blockSize]);
  return fill(t.cached, { block, since: world.freeSince[block], from, to: from + world.blockSize - 1, place });
}

/** @param {World} world @param {ChainTile} tile @param {{step: number, taker: number|null}|null} gone @returns {string} */
export function tileText(world, tile, gone) {
  const t = texts.pages.block;
  const letter = world.requests.get(tile.request)?.letter ?? '';
  if (!gone) return tile.block >= 0 ? blockText(world, tile.block) : '';
  const values = { logical: tile.logical, letter, block: tile.block, step: gone.step };
  const taker = gone.taker === null ? null : world.requests.get(gone.taker)?.letter ?? null;
  return taker === null ? fill(t.gone, values) : fill(t.goneTaken, { ...values, taker });
}

/** @param {World} world @returns {string} */
export function describePages(world) {
  const t = texts.pages;
  const next = world.free.length > 0 ? fill(t.describeNext, { block: world.free[0] }) : t.describeFull;
  return fill(t.describe, { ...poolCounts(world), next });
}

/** Block tables of the listed requests. @param {HTMLTableElement} table @param {World} world @param {readonly Request[]} requests
 * @param {(request: Request, logical: number, block: number) => boolean} isGone */
export function fillPagesTable(table, world, requests, isGone) {
  const t = texts.pages.table;
  const rows = requests.flatMap((request) => (request.lastTable ?? request.table).map((block, logical) => {
    const over = request.state === 'finished';
    const gone = over && (block < 0 || isGone(request, logical, block));
    return h('tr', {}, h('th', { scope: 'row' }, request.letter), h('td', {}, logical), h('td', {}, block < 0 ? '–' : block),
      h('td', {}, gone ? texts.pages.tile.gone : block < 0 ? '' : blockText(world, block)));
  }));
  replace(table, rows.length > 0 && [
    h('caption', {}, t.caption),
    h('thead', {}, h('tr', {}, [t.request, t.logical, t.physical, t.state].map((text) => h('th', { scope: 'col' }, text)))),
    h('tbody', {}, rows.slice(-200)),
  ]);
}
