/**
 * The pages lens: requests as chains of logical blocks, the physical pool, the free queue with the block that is
 * reused next, and the same requests with contiguous allocation.
 */
import { h, setText } from '../../ui/dom.js';
import { BlockHistory } from '../shared/block-history.js';
import { LensShell } from '../shared/lens-shell.js';
import { texts } from '../shared/texts.js';
import { PagesControls } from './controls.js';
import { PagesFrame } from './frame.js';
import { hostCount } from './host-tier.js';
import { PagesPicture } from './picture.js';
import { pagesSpace } from './space.js';
import { blockText, describePages, fillPagesTable, hostText, tileText } from './text.js';
/** @import { Ctx, Request, Scene } from '../../core/types.d.ts' */
/** @import { PagesSpace } from './space.js' */

/** @type {import('../../core/types.d.ts').CreateLens} */
export function create(root, ctx) {
  return new PagesLens(root, ctx);
}

class PagesLens extends LensShell {
  /** @type {PagesPicture|null} */
  picture = null;
  /** @type {PagesSpace|null} */
  space = null;
  progress = 0;
  stale = true;
  cursorBlock = 0;

  /** @param {HTMLElement} root @param {Ctx} ctx */
  constructor(root, ctx) {
    const sheet = h('div', { class: 'lens-sheet' });
    super(
      root,
      ctx,
      h('div', { class: 'lens-canvas lens-scroll', role: 'group', 'aria-label': texts.pages.label }, sheet),
      { cursor: texts.pages.cursor, option: 'pages-block', sheet, canvases: ['pool', 'motion'], pages: false },
    );
    this.empty.classList.add('lens-empty-corner');
    this.history = new BlockHistory(ctx.log);
    this.frame = new PagesFrame(
      this.stack,
      ctx,
      (request, logical, block) => this.#goneSince(request, logical, block) !== null,
    );
    this.controls = new PagesControls(ctx.ui);
    /** Place of the keyboard cursor in the tree. */
    this.cursorKey = '';
    this.mount(this.controls.element, this.box);
    this.listen(sheet);
  }

  /** @param {Scene} scene */
  update(scene) {
    const { ctx } = this;
    if (!ctx.log.header) return;
    const { palette } = ctx;
    this.controls.update();
    const last = ctx.log.step(scene.position);
    const step = scene.step ? scene.step.firstSeq : (last?.firstSeq ?? Infinity);
    this.picture = new PagesPicture(scene, step, last);
    const numHost = ctx.log.usesHost ? hostCount(this.picture, ctx.log.header.pool.num_host_blocks ?? 0) : 0;
    const space = pagesSpace(this.size.width, this.size.height, palette, scene.after.numBlocks, {
      numHost,
      numRows: scene.after.unfinished.length,
      byPrefix: ctx.ui.pagesBy === 'prefix',
    });
    if (this.stack.resize(space.width, space.height)) this.frame.blank();
    this.sheet.style.height = `${space.height}px`;
    this.space = space;
    this.frame.reset(this.picture, space, numHost);
    this.stale = true;
    this.#emptyState();
    this.tellInTime();
  }

  #emptyState() {
    const { empty, picture, space } = this;
    if (space) {
      empty.style.top = `${space.chains.y + space.heading}px`;
      empty.style.left = `${space.chains.x}px`;
      empty.style.width = `${space.chains.width}px`;
    }
    this.showEmpty(picture?.after.requests.size === 0 ? 'none' : '', () => [
      h('p', {}, texts.pages.noRequest),
      this.drawerButton(texts.pages.noRequestAction),
    ]);
  }

  /** @override */
  tell() {
    const { picture } = this;
    if (!picture) return;
    this.frame.tree?.show(picture.after);
    fillPagesTable(
      this.table,
      picture.after,
      this.frame.rows.map((row) => row.request),
      this.frame.isGone,
      this.frame.tree,
    );
    this.#cursorValue();
  }

  /** @param {Scene} scene @returns {string} */
  describe(scene) {
    this.tell();
    return describePages(scene.after);
  }

  /** The step since which a block holds something else than this request's contents; null if it doesn't.
   * @param {Request} request @param {number} logical @param {number} block */
  #goneSince(request, logical, block) {
    const { ctx, picture } = this;
    const last = ctx.log.spanOf(request.id)?.lastStep ?? 0;
    const end = ctx.log.step(last)?.writtenSeq[0];
    if (!picture || end === undefined || block < 0 || request.state !== 'finished') return null;
    const filled = Math.min(picture.after.blockSize, request.numComputed - logical * picture.after.blockSize);
    const since = this.history.goneSince(block, end, picture.after.seq);
    return since && !(since.kind === 'blanked' && filled <= 0) ? since : null;
  }

  /** @param {number} progress */
  draw(progress) {
    const { picture, frame } = this;
    if (!picture || this.stack.width === 0) return;
    this.progress = progress;
    frame.draw(progress, this.stale || progress === 0);
    this.stale = false;
  }

  /** @param {MouseEvent} event */
  #hit(event) {
    const { x, y } = this.at(event);
    return this.frame.hit(x, y);
  }

  /** @override @param {PointerEvent} event */
  point(event) {
    const { picture, ctx } = this;
    const { selection, tile, host } = this.#hit(event);
    this.box.classList.toggle('pointing', selection !== null);
    ctx.ui.hover(selection);
    if (picture && host !== null) return this.tip.show(event, hostText(picture.after, host));
    if (!picture || !selection) return this.tip.hide();
    const request = tile ? picture.after.requests.get(tile.request) : null;
    if (tile && request)
      this.tip.show(
        event,
        tileText(picture.after, tile, tile.gone ? this.#goneSince(request, tile.logical, tile.block) : null),
      );
    else if (selection.kind === 'block') this.tip.show(event, blockText(picture.after, selection.block));
    else this.tip.hide();
    return undefined;
  }

  /** @override @param {MouseEvent} event */
  click(event) {
    const { selection } = this.#hit(event);
    if (selection) this.ctx.ui.pin(selection);
    else if (this.ctx.ui.selection.pinned) this.ctx.ui.clear();
    if (selection?.kind === 'block') this.cursorBlock = selection.block;
  }

  /** Through the blocks of the pool, then those of the host tier. @override
   * @override @param {number} columns @param {number} rows @param {string} [key] */
  move(columns, rows, key) {
    const { pool, tree, numHost } = this.frame;
    if (key && (!pool || !this.picture)) return false;
    if (key && tree) return this.#moveInTree(key);
    const numBlocks = this.picture?.after.numBlocks ?? 1;
    this.cursorBlock = Math.max(
      0,
      Math.min(numBlocks + numHost - 1, this.cursorBlock + columns + rows * (pool?.columns ?? 0)),
    );
    this.cursorKey = '';
    this.ctx.ui.hover(this.cursorBlock < numBlocks ? { kind: 'block', block: this.cursorBlock } : null);
    this.#cursorValue();
  }

  /** @override */
  enter() {
    if (!this.frame.pool || !this.picture) return false;
    const { picture, cursorBlock, ctx } = this;
    const numBlocks = picture?.after.numBlocks ?? 0;
    const owner = picture?.after.host.get(cursorBlock - numBlocks)?.requestId ?? null;
    if (cursorBlock < numBlocks) ctx.ui.pin({ kind: 'block', block: cursorBlock });
    else if (owner !== null) ctx.ui.pin({ kind: 'request', request: owner });
  }

  /** The node under the keys. */
  #node() {
    const tree = this.frame.tree;
    return (
      tree?.nodes.find((one) => one.key === this.cursorKey) ??
      tree?.nodes.find((one) => one.blocks.includes(this.cursorBlock)) ??
      tree?.nodes[0] ??
      null
    );
  }

  /** @param {string} key */
  #moveInTree(key) {
    const { tree } = this.frame;
    const node = this.#node();
    if (!tree || !node) return;
    const next = tree.moved(node, key);
    this.cursorKey = next.key;
    if (next.blocks.length > 0) this.cursorBlock = next.blocks[0];
    this.ctx.ui.hover(next.blocks.length > 0 ? { kind: 'block', block: next.blocks[0] } : null);
    this.#cursorValue();
  }

  #cursorValue() {
    const { picture, option, ctx, frame } = this;
    if (!picture) return;
    const { after } = picture;
    const node = frame.tree ? this.#node() : null;
    this.cursorBlock = Math.min(this.cursorBlock, after.numBlocks + frame.numHost - 1);
    const at = node && frame.tree ? frame.tree.nodes.indexOf(node) : this.cursorBlock;
    option.setAttribute('aria-posinset', String(at + 1));
    option.setAttribute('aria-setsize', String(frame.tree ? frame.tree.nodes.length : after.numBlocks + frame.numHost));
    const { pinned } = ctx.ui.selection;
    option.setAttribute('aria-selected', String(pinned?.kind === 'block' && pinned.block === this.cursorBlock));
    const words =
      this.cursorBlock < after.numBlocks
        ? blockText(after, this.cursorBlock)
        : hostText(after, this.cursorBlock - after.numBlocks);
    setText(
      option,
      node && frame.tree ? `${frame.tree.describe(after, node)}${node.blocks.length > 0 ? ` ${words}` : ''}` : words,
    );
  }
}
