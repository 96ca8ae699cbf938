/** Tiles on a canvas that isn't cleared: a tile is painted again only when its look changes. */

/** @import { Box } from './tile.js' */

export class TileCache {
  /** @type {Map<string, {sign: string, box: Box, margin: number}>} */
  #painted = new Map();

  /**
   * @param {CanvasRenderingContext2D} context @param {string} key which tile @param {Box} box @param {number} margin around it that is its own
   * @param {string} sign what it looks like @param {() => void} paint
   */
  draw(context, key, box, margin, sign, paint) {
    const known = this.#painted.get(key);
    if (known && known.sign === sign && known.box.x === box.x && known.box.y === box.y && known.box.width === box.width)
      return;
    if (known) clear(context, known.box, known.margin);
    clear(context, box, margin);
    this.#painted.set(key, { sign, box, margin });
    paint();
  }

  /** Clears the tiles whose keys start with this prefix. @param {CanvasRenderingContext2D} context @param {string} prefix */
  wipe(context, prefix) {
    for (const [key, { box, margin }] of this.#painted) {
      if (!key.startsWith(prefix)) continue;
      clear(context, box, margin);
      this.#painted.delete(key);
    }
  }

  /** The canvas was cleared. */
  forget() {
    this.#painted.clear();
  }
}

/** @param {CanvasRenderingContext2D} context @param {Box} box @param {number} margin */
function clear(context, box, margin) {
  context.clearRect(box.x - margin, box.y - margin, box.width + 2 * margin, box.height + 2 * margin);
}

/** @param {import('./picture.js').BlockView} view @returns {string} */
export function signOf(view) {
  return `${view.form}/${view.owners.join()}/${view.filled}/${view.fresh}/${Math.round(view.freshPart * 40)}/${Math.round(view.falling * 40)}/${Math.round(view.ring * 20)}`;
}
