/** The pages lens in words. */
import { poolCounts } from '../../core/selectors.js';
import { replace } from '../../ui/dom.js';
import { fill } from '../../ui/format.js';
import { rowOf, tableParts } from '../../ui/table.js';
import { texts } from '../shared/texts.js';
import { hostCounts } from './headings.js';
import { fillOf } from './picture.js';
/** @import { World, Request } from '../../core/types.d.ts' */
/** @import { ChainTile } from './chains.js' */
/** @import { PoolTree } from './pool-tree.js' */

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
      if (request && logical >= 0)
        owners.push(
          `${fill(t.request, { letter: request.letter })}, ${fill(t.tokens, { from: logical * world.blockSize, to: (logical + 1) * world.blockSize - 1 })}`,
        );
    }
    return fill(t.used, {
      block,
      owners: owners.join('; '),
      filled: fillOf(world, block, Infinity).filled,
      size: world.blockSize,
      count: world.refCount[block],
    });
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
  const taker = gone.taker === null ? null : (world.requests.get(gone.taker)?.letter ?? null);
  return taker === null ? fill(t.gone, values) : fill(t.goneTaken, { ...values, taker });
}

/** @param {World} world @returns {string} */
export function describePages(world) {
  const t = texts.pages;
  const next = world.free.length > 0 ? fill(t.describeNext, { block: world.free[0] }) : t.describeFull;
  const told = fill(t.describe, { ...poolCounts(world), next });
  return world.host.size > 0 ? `${told} ${fill(t.host.describe, hostCounts(world))}` : told;
}

/** A block of the host tier. @param {World} world @param {number} id @returns {string} */
export function hostText(world, id) {
  const t = texts.pages.host;
  const block = world.host.get(id);
  if (!block) return fill(t.blank, { host: id });
  if (block.requestId !== null)
    return fill(t.swapped, {
      host: id,
      filled: block.entries.length,
      letter: world.requests.get(block.requestId)?.letter ?? '',
    });
  const from = block.entries[0]?.[2] ?? 0;
  return fill(t.cached, { host: id, from, to: from + world.blockSize - 1 });
}

/** Block tables of the listed requests, the host tier, and the tree if the pool is shown as one.
 * @param {HTMLTableElement} table @param {World} world @param {readonly Request[]} requests
 * @param {(request: Request, logical: number, block: number) => boolean} isGone @param {PoolTree|null} tree */
export function fillPagesTable(table, world, requests, isGone, tree) {
  const t = texts.pages.table;
  const state = texts.pages.state;
  const rows = requests.flatMap((request) => {
    const blocks = request.lastTable ?? request.table;
    if (blocks.length === 0 && request.state !== 'finished')
      return [rowOf(request.letter, '–', '–', state[request.state])];
    return blocks.map((block, logical) => {
      const over = request.state === 'finished';
      const gone = over && (block < 0 || isGone(request, logical, block));
      return rowOf(
        request.letter,
        logical,
        block < 0 ? '–' : block,
        gone ? texts.pages.tile.gone : block < 0 ? '' : blockText(world, block),
      );
    });
  });
  for (const id of [...world.host.keys()].sort((a, b) => a - b)) {
    const letter = world.requests.get(world.host.get(id)?.requestId ?? -1)?.letter ?? '–';
    rows.push(rowOf(letter, '–', fill(texts.pages.tree.host, { host: id }), hostText(world, id)));
  }
  for (const node of tree?.nodes ?? []) {
    const place =
      node.blocks.length > 0
        ? node.blocks.join(' = ')
        : node.host === null
          ? '–'
          : fill(texts.pages.tree.host, { host: node.host });
    rows.push(
      rowOf(
        node.owners.map((id) => world.requests.get(id)?.letter ?? '').join(' ') || '–',
        node.depth,
        place,
        tree?.describe(world, node) ?? '',
      ),
    );
  }
  replace(
    table,
    rows.length > 0 && tableParts(t.caption, [t.request, t.logical, t.physical, t.state], rows.slice(-300)),
  );
}
