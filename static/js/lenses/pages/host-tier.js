/** The host tier: blocks of swapped requests, with their letters, and of cached prefixes, hatched. */
import { layoutPool, poolBox } from './space.js';
import { drawTile } from './tile.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { PagesPicture, BlockView } from './picture.js' */
/** @import { Box } from './tile.js' */

/** How many host blocks are shown: all, or up to the last one in use.
 * @param {PagesPicture} picture @param {number} size of the tier, 0 if unknown */
export function hostCount(picture, size) {
  const last = Math.max(-1, ...picture.before.host.keys(), ...picture.middle.host.keys(), ...picture.after.host.keys());
  return Math.max(size, last + 1);
}

/** @param {Box} area @param {number} heading @param {number} count @param {number} small */
export function layoutHost(area, heading, count, small) {
  return layoutPool(area, heading, Math.max(1, count), small);
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {PagesPicture} picture
 * @param {ReturnType<typeof layoutPool>} layout @param {number} count @param {number} progress */
export function drawHost(context, palette, picture, layout, count, progress) {
  const host = picture.host(progress);
  for (let id = 0; id < count; id += 1) {
    const block = host.get(id);
    const owner = block?.requestId ?? null;
    /** @type {BlockView} */
    const view = {
      form: !block ? 'blank' : owner === null ? 'cached' : 'used',
      owners: owner === null ? [] : [owner],
      filled: block?.entries.length ?? 0,
      fresh: 0,
      freshPart: 1,
      falling: 0,
      ring: 0,
      count: 0,
    };
    const letter = owner === null ? '' : (picture.after.requests.get(owner)?.letter ?? '');
    drawTile(context, palette, poolBox(layout, id), picture.after.blockSize, view, {
      id: String(id),
      note: letter,
      strong: false,
      letters: [],
    });
  }
}
