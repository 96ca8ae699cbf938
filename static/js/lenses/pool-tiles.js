/** The physical pool: one tile per block. Only tiles that look different from the last time are painted again. */
import { fill } from '../text.js';
import { poolBox } from './pages-space.js';
import { drawTile } from './tile.js';
import { texts } from './texts.js';

/** @typedef {import('../palette.js').Palette} Palette */
/** @typedef {import('./pages-picture.js').PagesPicture} PagesPicture */
/** @typedef {import('./pages-space.js').layoutPool} LayoutPool */

export class PoolTiles {
  /** What each tile looked like when it was painted. @type {string[]} */
  #painted = [];
  #layoutKey = '';

  /** Paint everything anew. */
  forget() {
    this.#layoutKey = '';
  }

  /**
   * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {PagesPicture} picture
   * @param {ReturnType<LayoutPool>} layout @param {number} progress
   * @param {boolean} all look at every tile, not only at those that the step changes
   */
  draw(context, palette, picture, layout, progress, all) {
    const key = JSON.stringify([layout, palette.version, picture.after.numBlocks, picture.after.blockSize]);
    if (key !== this.#layoutKey) {
      this.#layoutKey = key;
      this.#painted = [];
      this.#clearAll(context, palette, picture, layout);
    }
    const next = nextVictims(picture, progress);
    const blocks = all ? Array.from({ length: picture.after.numBlocks }, (_, block) => block) : changing(picture);
    for (const block of blocks) {
      const view = picture.view(block, progress);
      const isNext = next.has(block);
      const sign = `${view.form}/${view.owners.join()}/${view.filled}/${view.fresh}/${view.freshPart.toFixed(2)}/${view.falling.toFixed(2)}/${view.ring.toFixed(2)}/${isNext}`;
      if (this.#painted[block] === sign) continue;
      this.#painted[block] = sign;
      const box = poolBox(layout, block);
      const margin = layout.gap / 2;
      context.clearRect(box.x - margin, box.y - margin, box.width + 2 * margin, box.height + 2 * margin);
      const t = texts.pages.tile;
      drawTile(context, palette, box, picture.after.blockSize, view, {
        id: String(block), note: isNext ? t.next : view.form === 'cached' ? t.cached : '', strong: isNext,
        letters: view.owners.length > 1 ? view.owners.map((id) => picture.after.requests.get(id)?.letter ?? '') : [],
      });
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {PagesPicture} picture @param {ReturnType<LayoutPool>} layout */
  #clearAll(context, palette, picture, layout) {
    const rows = Math.ceil(picture.after.numBlocks / layout.columns);
    context.clearRect(layout.x - 200, layout.y - 6, layout.columns * (layout.width + layout.gap) + 210, rows * (layout.height + layout.gap) + 12);
    if (!layout.rowNames) return;
    context.font = palette.font('text-xs', 'mono');
    context.fillStyle = palette.css('ink-3');
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    const stride = Math.ceil((palette.px('text-xs') * 1.15) / (layout.height + layout.gap));
    for (let row = 0; row < rows; row += stride) {
      context.fillText(fill('{n}', { n: row * layout.columns }), layout.x - 6, layout.y + row * (layout.height + layout.gap) + layout.height / 2);
    }
  }
}

/** Blocks that the step touches. @param {PagesPicture} picture @returns {number[]} */
function changing(picture) {
  return [...new Set([...picture.taken.keys(), ...picture.hit.keys(), ...picture.freed.keys(), ...picture.wrote.keys(), ...picture.evicted,
    picture.before.free[0] ?? -1, picture.queueTaken[0] ?? -1, picture.after.free[0] ?? -1])].filter((block) => block >= 0);
}

/** The head of the free queue as it stands now. @param {PagesPicture} picture @param {number} progress @returns {Set<number>} */
export function nextVictims(picture, progress) {
  const { orders, taken, returned } = picture.queue(progress);
  const head = returned >= 0.5 ? orders[2][0] : taken >= 0.5 ? orders[1][0] : orders[0][0];
  return new Set(head === undefined ? [] : [head]);
}
