/** Dropped entries of one request for the cache lens: the share of heads that dropped them, by layer and position. Pure. */

/** @import { World, Request } from '../../core/types.d.ts' */

/**
 * `shares[layer % lists · shown + position]`: 0 if all heads of the layer keep the entry, 1 if none does. One list can
 * apply to all layers.
 * @typedef {{lists: number, heads: number, shown: number, shares: Float32Array, numKept: number}} Gone
 */

/** @param {World} world @param {Request} request @param {number} shown positions @returns {Gone|null} null while nothing is forgotten */
export function goneOf(world, request, shown) {
  const lists = request.forgotten.length;
  if (lists === 0) return null;
  const heads = request.forgotten[0].length;
  const shares = new Float32Array(lists * shown);
  let numGone = 0;
  request.forgotten.forEach((perHead, layer) =>
    perHead.forEach((gone) => {
      for (const [position, since] of gone) {
        if (since > world.seq || position >= shown) continue;
        shares[layer * shown + position] += 1 / perHead.length;
        numGone++;
      }
    }),
  );
  for (let i = 0; i < shares.length; i++) if (shares[i] > 0.999) shares[i] = 1;
  return { lists, heads, shown, shares, numKept: shown - numGone / (lists * heads) };
}

/** @param {Gone|null} gone @param {number} layer @param {number} from @param {number} to positions @returns {number} how much of them is gone, 0-1 */
export function goneShare(gone, layer, from, to) {
  if (!gone) return 0;
  const first = (gone.lists === 1 ? 0 : layer) * gone.shown;
  let sum = 0;
  for (let position = from; position < Math.min(to, gone.shown); position++) sum += gone.shares[first + position];
  return sum / Math.max(1, to - from);
}

/** Whether a position is dropped in every layer and head. @param {Gone} gone @param {number} position */
export function goneEverywhere(gone, position) {
  for (let list = 0; list < gone.lists; list++) if (gone.shares[list * gone.shown + position] < 1) return false;
  return true;
}
