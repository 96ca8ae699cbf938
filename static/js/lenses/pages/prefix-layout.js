/** Positions of the nodes of the prefix tree: one column per block of a prompt, one row per branch. Pure. */

/** @import { TreeNode } from './prefix-tree.js' */
/** @import { Box } from './tile.js' */

/** One place: a node, or a run of nodes without branches. @typedef {{nodes: TreeNode[], box: Box, row: number}} TreePlace */
/** @typedef {{places: TreePlace[], lines: {from: TreePlace, to: TreePlace}[], numHidden: number, step: number}} TreeLayout */

const LEAST_WIDTH = 4.2;
const MOST_WIDTH = 17;
const LEAST_ROW = 2.1;
const MOST_ROW = 4.4;

/** A run of nodes is merged into one place if a column per block would be too narrow.
 * @typedef {{nodes: TreeNode[], children: Run[]}} Run */

/** @param {readonly TreeNode[]} nodes @param {boolean} merge @returns {Run[]} */
function runs(nodes, merge) {
  return nodes.map((node) => {
    const chain = [node];
    let last = node;
    while (merge && last.children.length === 1 && last.ends.length === 0 && alike(last, last.children[0]))
      chain.push((last = last.children[0]));
    return { nodes: chain, children: runs(last.children, merge) };
  });
}

/** @param {TreeNode} a @param {TreeNode} b */
function alike(a, b) {
  return (
    a.blocks.length > 0 === b.blocks.length > 0 &&
    (a.host === null) === (b.host === null) &&
    a.owners.join() === b.owners.join()
  );
}

/** @param {readonly Run[]} list @returns {number} */
function depthOf(list) {
  return list.length === 0 ? 0 : 1 + Math.max(...list.map((run) => depthOf(run.children)));
}

/** @param {readonly Run[]} list @returns {number} */
function leavesOf(list) {
  return list.reduce((sum, run) => sum + Math.max(1, leavesOf(run.children)), 0);
}

/** @param {readonly TreeNode[]} roots @param {Box} area @param {number} heading @param {number} small @returns {TreeLayout} */
export function layoutTree(roots, area, heading, small) {
  const gap = Math.round(small * 1.1);
  const fits = Math.max(1, Math.floor((area.width + gap) / (small * LEAST_WIDTH + gap)));
  let list = runs(roots, false);
  if (depthOf(list) > fits) list = runs(roots, true);
  const depth = Math.max(1, Math.min(depthOf(list), fits));
  const width = Math.min(small * MOST_WIDTH, (area.width - gap * (depth - 1)) / depth);
  const numRows = Math.max(1, leavesOf(list));
  const height = area.height - heading;
  const step = Math.max(small * LEAST_ROW, Math.min(small * MOST_ROW, height / numRows));
  const last = Math.floor((height + 2) / step);
  /** @type {TreeLayout} */
  const layout = { places: [], lines: [], numHidden: 0, step };
  let row = 0;
  /** @param {readonly Run[]} children @param {number} column @param {TreePlace|null} from */
  const place = (children, column, from) => {
    for (const run of children) {
      const box = {
        x: area.x + column * (width + gap),
        y: area.y + heading + row * step,
        width,
        height: step - Math.max(3, small * 0.4),
      };
      const shown = row < last && column < depth;
      const at = { nodes: run.nodes, box, row };
      if (shown) layout.places.push(at);
      else layout.numHidden += run.nodes.length;
      if (shown && from) layout.lines.push({ from, to: at });
      if (run.children.length > 0) place(run.children, column + 1, shown ? at : null);
      else row += 1;
    }
  };
  place(list, 0, null);
  return layout;
}
