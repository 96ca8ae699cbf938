/**
 * The pool as a tree of prefixes: a block's parent is the one that its chained hash extends, so prompts diverge where
 * the tree branches. Requests are attached to their last block. A pure function of a world and of the known hash
 * chains.
 */

/** @import { Log } from '../../core/log.js' */
/** @import { World } from '../../core/types.d.ts' */

/**
 * @typedef {object} TreeNode
 * @property {string} key
 * @property {number[]} blocks of the pool that hold it (several: computed twice)
 * @property {number|null} host block of the host tier that holds it
 * @property {TreeNode|null} parent
 * @property {TreeNode[]} children
 * @property {number} depth 0 for the first block of a prompt
 * @property {number[]} tokens ids
 * @property {number[]} writers request that wrote each of them
 * @property {number} position of the first token, -1 if unknown
 * @property {number} shared how many of its first tokens another branch has too
 * @property {number[]} owners requests that hold it
 * @property {number[]} ends requests whose last block it is
 */

/** The prefix that each cached block extends; follows a log. */
export class PrefixParents {
  /** @param {Log} log */
  constructor(log) {
    this.log = log;
    /** @type {string|null} */
    this.logId = null;
    this.seen = -1;
    /** @type {Map<string, string|null>} */
    this.parents = new Map();
  }

  /** @returns {ReadonlyMap<string, string|null>} */
  all() {
    const { log } = this;
    if (log.logId !== this.logId || log.lastSeq < this.seen || log.firstSeq > this.seen + 1) {
      this.logId = log.logId;
      this.seen = log.firstSeq - 1;
      this.parents = new Map();
    }
    for (; this.seen < log.lastSeq; this.seen += 1) {
      const event = log.at(this.seen + 1)?.[2];
      if (!event) break;
      if (event.type === 'block_cached') this.parents.set(event.hash, event.parent_hash);
    }
    return this.parents;
  }
}

/** @param {World} world @param {ReadonlyMap<string, string|null>} parents @returns {{roots: TreeNode[], nodes: Map<string, TreeNode>}} */
export function prefixTree(world, parents) {
  /** @type {Map<string, TreeNode>} */
  const nodes = new Map();
  /** @type {Map<string, string|null>} parents that are only known from block tables */
  const told = new Map();
  for (const id of world.unfinished) walkTable(world, id, nodes, told);
  for (let block = 0; block < world.numBlocks; block += 1) {
    const hash = world.hash[block];
    if (hash !== null) holdBlock(world, nodeOf(nodes, hash), block);
  }
  for (const [id, block] of world.host) if (block.hash !== null) holdHost(nodeOf(nodes, block.hash), id, block.entries);
  for (const key of [...nodes.keys()]) link(nodes, key, (one) => told.get(one) ?? parents.get(one) ?? null);
  const roots = [...nodes.values()].filter((node) => node.parent === null);
  arrange(roots, 0);
  return { roots, nodes };
}

/** @param {Map<string, TreeNode>} nodes @param {string} key @returns {TreeNode} */
function nodeOf(nodes, key) {
  let node = nodes.get(key);
  if (!node)
    nodes.set(
      key,
      (node = {
        key,
        blocks: [],
        host: null,
        parent: null,
        children: [],
        depth: 0,
        tokens: [],
        writers: [],
        position: -1,
        shared: 0,
        owners: [],
        ends: [],
      }),
    );
  return node;
}

/** @param {World} world @param {number} id @param {Map<string, TreeNode>} nodes @param {Map<string, string|null>} told */
function walkTable(world, id, nodes, told) {
  /** @type {string|null} */
  let former = null;
  /** @type {TreeNode|null} */
  let last = null;
  for (const block of world.requests.get(id)?.table ?? []) {
    if (block < 0) continue;
    const key = world.hash[block] ?? `block ${block}`;
    last = nodeOf(nodes, key);
    if (!last.owners.includes(id)) last.owners.push(id);
    holdBlock(world, last, block);
    if (former !== null && former !== key) told.set(key, former);
    former = key;
  }
  if (last) last.ends.push(id);
}

/** @param {World} world @param {TreeNode} node @param {number} block */
function holdBlock(world, node, block) {
  if (node.blocks.includes(block)) return;
  node.blocks.push(block);
  /** @type {number[]} */
  const tokens = [];
  /** @type {number[]} */
  const writers = [];
  const from = block * world.blockSize;
  for (let slot = from; slot < from + world.blockSize && world.slotSeq[slot] >= 0; slot += 1) {
    tokens.push(world.slotToken[slot]);
    writers.push(world.slotRequest[slot]);
  }
  if (tokens.length > node.tokens.length) Object.assign(node, { tokens, writers, position: world.slotPosition[from] });
}

/** @param {TreeNode} node @param {number} id @param {readonly import('../../core/types.d.ts').HostEntry[]} entries */
function holdHost(node, id, entries) {
  node.host = id;
  if (node.tokens.length > 0 || entries.length === 0) return;
  Object.assign(node, {
    tokens: entries.map((entry) => entry[4]),
    writers: entries.map((entry) => entry[1]),
    position: entries[0][2],
  });
}

/** Attaches a node to the one it extends; an evicted parent has a place but holds nothing.
 * @param {Map<string, TreeNode>} nodes @param {string} key @param {(key: string) => string|null} parentOf */
function link(nodes, key, parentOf) {
  let node = nodeOf(nodes, key);
  for (let guard = 0; guard < 10_000 && node.parent === null; guard += 1) {
    const above = parentOf(node.key);
    if (above === null) return;
    const parent = nodeOf(nodes, above);
    node.parent = parent;
    parent.children.push(node);
    node = parent;
  }
}

/** Order, depth, and the point where siblings diverge. @param {TreeNode[]} siblings @param {number} depth */
function arrange(siblings, depth) {
  const rank = (/** @type {TreeNode} */ node) => (isUsed(node) ? 0 : 1);
  siblings.sort(
    (a, b) =>
      rank(a) - rank(b) ||
      Math.min(...a.owners, Infinity) - Math.min(...b.owners, Infinity) ||
      (a.blocks[0] ?? 1e9) - (b.blocks[0] ?? 1e9),
  );
  for (const node of siblings) {
    node.depth = depth;
    for (const other of siblings)
      if (other !== node) node.shared = Math.max(node.shared, sharedTokens(node.tokens, other.tokens));
    arrange(node.children, depth + 1);
  }
}

/** @param {TreeNode} node @returns {boolean} */
function isUsed(node) {
  return node.owners.length > 0 || node.children.some(isUsed);
}

/** @param {readonly number[]} a @param {readonly number[]} b */
function sharedTokens(a, b) {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n += 1;
  return n;
}

/** Nodes in reading order. @param {readonly TreeNode[]} roots @returns {TreeNode[]} */
export function readingOrder(roots) {
  return roots.flatMap((node) => [node, ...readingOrder(node.children)]);
}
