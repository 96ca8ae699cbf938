/** The physical pool: one tile per block. Only tiles that look different from the last time are painted again. */
import { useFont } from '../../ui/canvas.js';
import { texts } from '../shared/texts.js';
import { poolBox } from './space.js';
import { signOf } from './tile-cache.js';
import { drawTile } from './tile.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { PagesPicture } from './picture.js' */
/** @import { layoutPool as LayoutPool } from './space.js' */
/** @import { TileCache } from './tile-cache.js' */

/**
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {PagesPicture} picture
 * @param {ReturnType<LayoutPool>} layout @param {number} progress @param {TileCache} cache
 * @param {boolean} all look at every tile, not only at those that the step changes
 */
export function drawPool(context, palette, picture, layout, progress, cache, all) {
  const next = nextVictims(picture, progress);
  const blocks = all ? Array.from({ length: picture.after.numBlocks }, (_, block) => block) : changing(picture);
  const t = texts.pages.tile;
  for (const block of blocks) {
    const view = picture.view(block, progress);
    const isNext = next.has(block);
    const box = poolBox(layout, block);
    cache.draw(context, `pool/${block}`, box, layout.gap / 2, `${signOf(view)}/${isNext}`, () =>
      drawTile(context, palette, box, picture.after.blockSize, view, {
        id: String(block),
        note: isNext ? t.next : view.form === 'cached' ? t.cached : '',
        strong: isNext,
        letters: view.owners.length > 1 ? view.owners.map((id) => picture.after.requests.get(id)?.letter ?? '') : [],
      }),
    );
  }
}

/** Block numbers next to the rows, for tiles that are too small for numbers.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} numBlocks @param {ReturnType<LayoutPool>} layout */
export function drawRowNames(context, palette, numBlocks, layout) {
  if (!layout.rowNames) return;
  const rows = Math.ceil(numBlocks / layout.columns);
  useFont(context, palette.font('text-xs', 'mono'));
  context.fillStyle = palette.css('ink-3');
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  const stride = Math.ceil((palette.px('text-xs') * 1.15) / (layout.height + layout.gap));
  for (let row = 0; row < rows; row += stride) {
    context.fillText(
      String(row * layout.columns),
      layout.x - 6,
      layout.y + row * (layout.height + layout.gap) + layout.height / 2,
    );
  }
}

/** Blocks that the step touches. @param {PagesPicture} picture @returns {number[]} */
export function changing(picture) {
  return [
    ...new Set([
      ...picture.taken.keys(),
      ...picture.hit.keys(),
      ...picture.freed.keys(),
      ...picture.wrote.keys(),
      ...picture.evicted,
      ...picture.left,
      picture.before.free[0] ?? -1,
      picture.middle.free[0] ?? -1,
      picture.after.free[0] ?? -1,
      ...(picture.step?.forked ?? []).flatMap((event) => event.block_ids.map((block) => block ?? -1)),
    ]),
  ].filter((block) => block >= 0);
}

/** The current head of the free queue. @param {PagesPicture} picture @param {number} progress @returns {Set<number>} */
export function nextVictims(picture, progress) {
  const { orders, taken, returned } = picture.queue(progress);
  const head = returned >= 0.5 ? orders[2][0] : taken >= 0.5 ? orders[1][0] : orders[0][0];
  return new Set(head === undefined ? [] : [head]);
}
