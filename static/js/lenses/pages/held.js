/** What requests hold at a progress of a step: whose block tables count, and how many entries each has. Pure. */
import { within } from '../../core/phases.js';
import { lerp, span } from '../../ui/canvas.js';
/** @import { World } from '../../core/types.d.ts' */
/** @import { PagesPicture } from './picture.js' */

/** `seq`: the record up to which contiguous allocations are followed.
 * @typedef {{world: World, computed: (id: number) => number, seq: number}} Held */

/** @param {PagesPicture} picture @param {number} progress @returns {Held} */
export function heldAt(picture, progress) {
  const { before, middle, after, phases, step } = picture;
  if (!phases || !step || progress <= 0) return { world: before, computed: computedIn(before), seq: before.seq };
  const { blocks, layers, release } = phases;
  if (blocks[1] > 0 && within(blocks, progress) < 0.5)
    return { world: before, computed: computedIn(before), seq: before.seq };
  const ends = release[1] > release[0] ? within(release, progress) >= 0.5 : progress >= 1;
  if (ends) return { world: after, computed: computedIn(after), seq: after.seq };
  const t = span(within(layers, progress), 0, 1);
  const computed = (/** @type {number} */ id) => {
    const from = middle.requests.get(id)?.numComputed ?? 0;
    return lerp(from, after.requests.get(id)?.numComputed ?? from, t);
  };
  return { world: middle, computed, seq: middle.seq };
}

/** @param {World} world @returns {(id: number) => number} */
function computedIn(world) {
  return (id) => world.requests.get(id)?.numComputed ?? 0;
}
