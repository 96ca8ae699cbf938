/** The pool as a tree of prefixes, built for the shown world. */
import { fill } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { changing } from './pool-tiles.js';
import { drawTree, nodeText } from './prefix-draw.js';
import { layoutTree } from './prefix-layout.js';
import { prefixTree, readingOrder } from './prefix-tree.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { World } from '../../core/types.d.ts' */
/** @import { PagesPicture } from './picture.js' */
/** @import { TreeNode } from './prefix-tree.js' */
/** @import { Box } from './tile.js' */

export class PoolTree {
  /** @type {ReturnType<typeof layoutTree>} */
  layout = { places: [], lines: [], numHidden: 0, step: 1 };
  /** @type {TreeNode[]} in reading order */
  nodes = [];
  /** @type {Map<number, Box>} */
  #boxes = new Map();
  /** @type {World|null} */
  #world = null;

  /** @param {ReadonlyMap<string, string|null>} parents @param {Box} area @param {number} heading @param {number} small */
  constructor(parents, area, heading, small) {
    this.parents = parents;
    this.area = area;
    this.heading = heading;
    this.small = small;
  }

  /** @param {World} world */
  show(world) {
    if (world === this.#world) return;
    this.#world = world;
    const { roots } = prefixTree(world, this.parents);
    this.nodes = readingOrder(roots);
    this.layout = layoutTree(roots, this.area, this.heading, this.small);
    this.#boxes = new Map(
      this.layout.places.flatMap(({ nodes, box }) =>
        nodes.flatMap((node) => node.blocks.map((block) => /** @type {[number, Box]} */ ([block, box]))),
      ),
    );
  }

  /** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {PagesPicture} picture @param {World} world @param {number} progress */
  draw(context, palette, picture, world, progress) {
    this.show(world);
    const changed = new Set(
      picture.step ? changing(picture).filter((block) => picture.view(block, progress).ring > 0.4) : [],
    );
    drawTree(context, palette, world, this.layout, world.free[0], changed);
  }

  /** @param {number} block @returns {Box|null} */
  boxOf(block) {
    return this.#boxes.get(block) ?? null;
  }

  /** @param {(box: Box) => boolean} inside @returns {number} */
  blockAt(inside) {
    return this.layout.places.find((place) => inside(place.box))?.nodes[0].blocks[0] ?? -1;
  }

  /** A node in words. @param {World} world @param {TreeNode} node @returns {string} */
  describe(world, node) {
    const t = texts.pages.tree;
    const n = node.children.length;
    const where =
      node.blocks.length > 0
        ? fill(t.inPool, { blocks: node.blocks.join(' = ') })
        : node.host !== null
          ? fill(t.inHost, { host: node.host })
          : t.nowhere;
    const branches = n === 0 ? t.branches.zero : n === 1 ? t.branches.one : fill(t.branches.many, { n });
    const from = node.depth * world.blockSize;
    const text = fill(t.node, {
      from,
      to: from + Math.max(1, node.tokens.length) - 1,
      text: nodeText(world, node).trim(),
      where,
      branches,
    });
    const letters = node.ends.map((id) => world.requests.get(id)?.letter ?? '').join(' ');
    return letters === '' ? text : `${text} ${fill(t.ends, { letters })}`;
  }

  /** Target of an arrow key: the previous block, the first following one, or along the reading order.
   * @param {TreeNode} node @param {string} key @returns {TreeNode} */
  moved(node, key) {
    const { nodes } = this;
    const at = nodes.indexOf(node);
    if (key === 'ArrowLeft') return node.parent ?? node;
    if (key === 'ArrowRight') return node.children[0] ?? node;
    if (key === 'Home') return nodes[0];
    if (key === 'End') return nodes[nodes.length - 1];
    return nodes[Math.max(0, Math.min(nodes.length - 1, at + (key === 'ArrowUp' ? -1 : 1)))] ?? node;
  }
}
