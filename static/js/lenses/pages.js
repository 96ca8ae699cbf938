/**
 * The pages lens: requests as chains of logical blocks, the physical pool, the free queue with the block that is taken
 * next, and the same requests in a contiguous allocator.
 */
import { CanvasStack, doubleOutline, roundRect, SizeWatch, span } from '../canvas.js';
import { h, replace } from '../dom.js';
import { within } from '../phases.js';
import { poolCounts } from '../selectors.js';
import { fill } from '../text.js';
import { BlockHistory } from './block-history.js';
import { drawChains, layoutChains } from './chains.js';
import { drawConnectors } from './connectors.js';
import { PagesPicture } from './pages-picture.js';
import { blockAt, layoutPool, pagesSpace, poolBox } from './pages-space.js';
import { blockText, describePages, fillPagesTable, tileText } from './pages-text.js';
import { PoolTiles } from './pool-tiles.js';
import { drawQueue } from './queue.js';
import { drawSlabs } from './slab-bars.js';
import { SlabHistory } from './slab.js';
import { texts } from './texts.js';
import { Tip } from './tip.js';

/** @typedef {import('../types.d.ts').Ctx} Ctx */
/** @typedef {import('../types.d.ts').Dirty} Dirty */
/** @typedef {import('../types.d.ts').Request} Request */
/** @typedef {import('../types.d.ts').Scene} Scene */
/** @typedef {import('../types.d.ts').Selection} Selection */
/** @typedef {import('./chains.js').ChainRow} ChainRow */
/** @typedef {import('./chains.js').ChainTile} ChainTile */
/** @typedef {import('./pages-space.js').PagesSpace} PagesSpace */
/** @typedef {import('./queue.js').QueueTile} QueueTile */
/** @typedef {import('./tile.js').Box} Box */

const TABLE_MS = 800;

/** @type {import('../types.d.ts').CreateLens} */
export function create(root, ctx) {
  return new PagesLens(root, ctx);
}

class PagesLens {
  /** @type {PagesPicture|null} */
  picture = null;
  /** @type {PagesSpace|null} */
  space = null;
  /** @type {ReturnType<typeof layoutPool>|null} */
  pool = null;
  /** @type {ChainRow[]} */
  rows = [];
  /** @type {ChainTile[]} */
  chainTiles = [];
  /** @type {QueueTile[]} */
  queueTiles = [];
  numHidden = 0;
  progress = 0;
  stale = true;
  tableAt = 0;
  cursorBlock = 0;

  /** @param {HTMLElement} root @param {Ctx} ctx */
  constructor(root, ctx) {
    this.root = root;
    this.ctx = ctx;
    this.history = new BlockHistory(ctx.log);
    this.slabs = new SlabHistory(ctx.log);
    this.poolTiles = new PoolTiles();
    this.canvasBox = h('div', { class: 'lens-canvas lens-scroll', role: 'group', 'aria-label': texts.pages.label });
    this.sheet = h('div', { class: 'lens-sheet' });
    this.stack = new CanvasStack(this.sheet, ['pool', 'motion']);
    this.option = h('div', { class: 'visually-hidden', role: 'option', id: 'pages-block', 'aria-selected': 'false' });
    this.cursor = h('div', { class: 'lens-cursor', role: 'listbox', tabindex: 0, 'aria-label': texts.pages.cursor, 'aria-activedescendant': 'pages-block' }, this.option);
    this.empty = h('div', { class: 'lens-empty lens-empty-corner', hidden: true });
    this.table = h('table', { class: 'visually-hidden' });
    this.sheet.append(this.cursor, this.empty);
    this.canvasBox.append(this.sheet);
    this.tip = new Tip(this.sheet);
    root.append(this.canvasBox, this.table);
    this.size = new SizeWatch(this.canvasBox, () => ctx.ui.changes.emit('ui'));
    this.#listen();
  }

  #listen() {
    const { sheet, cursor } = this;
    sheet.addEventListener('pointermove', (event) => this.#point(event));
    sheet.addEventListener('pointerleave', () => this.#leave());
    sheet.addEventListener('click', (event) => this.#click(event));
    cursor.addEventListener('keydown', (event) => this.#key(event));
    cursor.addEventListener('focus', () => this.#moveCursor(this.cursorBlock));
    cursor.addEventListener('blur', () => this.#leave());
  }

  /** @param {Scene} scene @param {Set<Dirty>} dirty */
  update(scene, dirty) {
    const { ctx } = this;
    if (!ctx.log.header) return;
    const { palette } = ctx;
    const space = pagesSpace(this.size.width, this.size.height, palette, scene.after.numBlocks);
    if (this.stack.resize(space.width, space.height) || dirty.has('theme')) this.poolTiles.forget();
    this.sheet.style.height = `${space.height}px`;
    this.space = space;
    const step = scene.step ? scene.step.firstSeq : ctx.log.stepRange(scene.position)?.[0] ?? Infinity;
    this.picture = new PagesPicture(scene, step);
    this.pool = layoutPool(space.pool, space.heading, scene.after.numBlocks, palette.px('text-xs'));
    const wanted = ctx.ui.requestId;
    const { rows, numHidden } = layoutChains(this.picture, space.chains, space.heading, palette.px('text-xs'), wanted);
    this.rows = rows;
    this.numHidden = numHidden;
    this.stale = true;
    this.#emptyState();
    const now = performance.now();
    if (!ctx.timeline.moving || now - this.tableAt > TABLE_MS) {
      this.tableAt = now;
      this.#tell();
    }
  }

  #emptyState() {
    const { empty, picture, ctx, space } = this;
    const none = picture !== null && picture.after.requests.size === 0;
    if (space) {
      empty.style.top = `${space.chains.y + space.heading}px`;
      empty.style.left = `${space.chains.x}px`;
      empty.style.width = `${space.chains.width}px`;
    }
    if (empty.hidden !== none) return;
    empty.hidden = !none;
    if (none) replace(empty, h('p', {}, texts.pages.noRequest), h('button', { type: 'button', class: 'primary', on: { click: () => ctx.ui.set({ drawerOpen: true }) } }, texts.pages.noRequestAction));
  }

  #tell() {
    const { picture } = this;
    if (!picture) return;
    fillPagesTable(this.table, picture.after, this.rows.map((row) => row.request), (request, logical, block) => this.#isGone(request, logical, block));
    this.#cursorValue();
  }

  /** @param {Scene} scene @returns {string} */
  describe(scene) {
    this.#tell();
    return describePages(scene.after);
  }

  /** Does a block hold something else than what this request left there? @param {Request} request @param {number} logical @param {number} block */
  #isGone(request, logical, block) {
    return this.#goneSince(request, logical, block) !== null;
  }

  /** @param {Request} request @param {number} logical @param {number} block */
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
    const { picture, space, pool, ctx, stack } = this;
    if (!picture || !space || !pool || stack.width === 0) return;
    const { palette } = ctx;
    this.progress = progress;
    this.poolTiles.draw(stack.context('pool'), palette, picture, pool, progress, this.stale || progress === 0);
    this.stale = false;
    const context = stack.clear('motion');
    this.#headings(context);
    this.chainTiles = drawChains(context, palette, picture, this.rows, progress, (request, logical, block) => this.#isGone(request, logical, block));
    this.queueTiles = drawQueue(context, palette, picture, space.queue, space.heading, progress);
    const { before, after, phases } = picture;
    const t = phases ? span(within(phases.layers, progress), 0, 1) : 1;
    const over = phases && phases.release[1] > phases.release[0] ? within(phases.release, progress) >= 0.5 : true;
    const seq = !phases ? before.seq : over && progress > 0 ? after.seq : picture.step ? Math.max(before.seq, this.#startedBy(progress)) : before.seq;
    const shown = phases && !over ? { ...this.#running() } : null;
    drawSlabs(context, palette, space.slabs, space.heading, before, shown?.world ?? after, phases ? (progress > 0 ? t : 0) : 1, this.slabs.at(seq), this.slabs.capacity, space.stacked);
    this.#connect(context, progress);
    this.#selection(context);
  }

  /** Seq up to which requests count as started at a progress of the step. @param {number} progress @returns {number} */
  #startedBy(progress) {
    const { picture, ctx } = this;
    if (!picture?.step || !picture.phases) return -1;
    if (progress < picture.phases.blocks[1] * 0.5) return picture.before.seq;
    for (let seq = picture.step.lastSeq; seq >= picture.step.firstSeq; seq -= 1) {
      if (ctx.log.at(seq)?.[2].type === 'request_started') return seq;
    }
    return picture.before.seq;
  }

  /** The world while the step runs, before anything is given back: its requests still hold their tables. */
  #running() {
    const { picture } = this;
    if (!picture?.step || picture.step.finished.length === 0) return { world: picture?.after };
    const world = Object.create(picture.after);
    world.requests = new Map(picture.after.requests);
    for (const { request_id: id } of picture.step.finished) {
      const request = picture.after.requests.get(id);
      if (request?.lastTable) world.requests.set(id, { ...request, state: 'running', table: request.lastTable });
    }
    world.unfinished = picture.before.unfinished;
    return { world };
  }

  /** @param {CanvasRenderingContext2D} context */
  #headings(context) {
    const { space, ctx, picture, numHidden } = this;
    if (!space || !picture) return;
    const { palette } = ctx;
    const t = texts.pages;
    const small = palette.px('text-xs');
    const put = (/** @type {Box} */ area, /** @type {string} */ title, /** @type {string} */ note) => {
      context.textBaseline = 'middle';
      context.textAlign = 'left';
      context.font = palette.font('text-xs', 'ui', 600);
      context.fillStyle = palette.css('ink-2');
      const y = area.y + space.heading * 0.4;
      context.fillText(title, area.x, y);
      const used = context.measureText(title).width + 14;
      context.font = palette.font('text-xs');
      context.fillStyle = palette.css('ink-3');
      if (context.measureText(note).width <= area.width - used) context.fillText(note, area.x + used, y);
    };
    put(space.chains, t.requests, '');
    const { after } = picture;
    put(space.pool, t.pool, fill(t.poolCount, { ...poolCounts(this.progress > 0.5 ? after : picture.before), n: after.numBlocks, size: after.blockSize }));
    put(space.queue, t.queue, '');
    put(space.slabs, t.slabs, t.slabsHint);
    if (numHidden > 0) {
      context.textBaseline = 'middle';
      context.fillText(fill(t.hidden, { n: numHidden }), space.chains.x, space.chains.y + space.heading + small * 0.5);
    }
  }

  /** Lines of what is hovered or pinned, else of what the step changes. @param {CanvasRenderingContext2D} context @param {number} progress */
  #connect(context, progress) {
    const { picture, pool, space, ctx, chainTiles } = this;
    if (!picture || !pool || !space || space.stacked) return;
    const shown = ctx.ui.shown;
    const live = chainTiles.filter((tile) => !tile.gone && tile.block >= 0);
    /** @type {ChainTile[]} */
    let tiles = [];
    let t = 1;
    if (shown?.kind === 'block') tiles = live.filter((tile) => tile.block === shown.block);
    else if (shown?.kind === 'request') tiles = live.filter((tile) => tile.request === shown.request).slice(-8);
    else if (shown?.kind === 'entry' || shown?.kind === 'token') {
      const logical = Math.floor(shown.position / picture.after.blockSize);
      tiles = live.filter((tile) => tile.request === shown.request && tile.logical === logical);
    } else if (picture.phases && progress > 0) {
      tiles = live.filter((tile) => picture.taken.get(tile.block) === tile.request || picture.hit.get(tile.block) === tile.request);
      t = picture.phases.blocks[1] > 0 ? span(within(picture.phases.blocks, progress), 0.6, 1) * (1 - span(within(picture.phases.layers, progress), 0.2, 0.5)) : 0;
    }
    if (tiles.length > 0 && t > 0) drawConnectors(context, ctx.palette, tiles, (block) => poolBox(pool, block), space.gutter, pool.gap, t);
  }

  /** @param {CanvasRenderingContext2D} context */
  #selection(context) {
    const { ctx } = this;
    const { hovered, pinned } = ctx.ui.selection;
    for (const [selection, firm] of /** @type {const} */ ([[pinned, true], [hovered, false]])) {
      if (!selection) continue;
      for (const box of this.#boxesOf(selection)) this.#ring(context, box, firm);
    }
  }

  /** Everywhere a selection stands. @param {Selection} selection @returns {Box[]} */
  #boxesOf(selection) {
    const { picture, pool, queueTiles, chainTiles, rows } = this;
    if (!picture || !pool) return [];
    let block = -1;
    if (selection.kind === 'block') block = selection.block;
    else if (selection.kind === 'entry' || selection.kind === 'token') {
      const request = picture.after.requests.get(selection.request);
      const table = request ? request.lastTable ?? request.table : [];
      block = table[Math.floor(selection.position / picture.after.blockSize)] ?? -1;
    } else if (selection.kind === 'request') return rows.filter((row) => row.request.id === selection.request).map((row) => row.badge);
    if (block < 0 || block >= picture.after.numBlocks) return [];
    return [poolBox(pool, block), ...queueTiles.filter((tile) => tile.block === block).map((tile) => tile.box),
      ...chainTiles.filter((tile) => tile.block === block && !tile.gone).map((tile) => tile.box)];
  }

  /** @param {CanvasRenderingContext2D} context @param {Box} box @param {boolean} firm */
  #ring(context, box, firm) {
    const { palette } = this.ctx;
    if (firm) doubleOutline(context, box.x, box.y, box.width, box.height, { line: palette.css('selected'), gap: palette.css('selected-gap'), radius: 5, mark: palette.px('mark') });
    else {
      context.strokeStyle = palette.css('selected');
      context.lineWidth = 1.5 * palette.px('mark');
      roundRect(context, box.x - 2, box.y - 2, box.width + 4, box.height + 4, 6);
      context.stroke();
    }
  }

  /** @param {MouseEvent} event @returns {{selection: Selection|null, tile: ChainTile|null}} */
  #hit(event) {
    const { picture, pool, chainTiles, queueTiles, rows } = this;
    const area = this.sheet.getBoundingClientRect();
    const [x, y] = [event.clientX - area.left, event.clientY - area.top];
    const inside = (/** @type {Box} */ box) => x >= box.x - 1 && x < box.x + box.width + 1 && y >= box.y - 1 && y < box.y + box.height + 1;
    if (!picture || !pool) return { selection: null, tile: null };
    const tile = chainTiles.find((one) => inside(one.box)) ?? null;
    if (tile) return { selection: tile.block >= 0 && !tile.gone ? { kind: 'block', block: tile.block } : { kind: 'request', request: tile.request }, tile };
    const row = rows.find((one) => inside(one.badge) || inside({ ...one.box, height: one.area.y - one.box.y }));
    if (row) return { selection: { kind: 'request', request: row.request.id }, tile: null };
    const waiting = queueTiles.find((one) => inside(one.box));
    const block = waiting ? waiting.block : blockAt(pool, picture.after.numBlocks, x, y);
    return { selection: block >= 0 && y < (this.space?.slabs.y ?? Infinity) ? { kind: 'block', block } : null, tile: null };
  }

  /** @param {PointerEvent} event */
  #point(event) {
    const { picture, ctx } = this;
    const { selection, tile } = this.#hit(event);
    this.canvasBox.classList.toggle('pointing', selection !== null);
    ctx.ui.hover(selection);
    if (!picture || !selection) return this.tip.hide();
    const request = tile ? picture.after.requests.get(tile.request) : null;
    if (tile && request) this.tip.show(event, tileText(picture.after, tile, tile.gone ? this.#goneSince(request, tile.logical, tile.block) : null));
    else if (selection.kind === 'block') this.tip.show(event, blockText(picture.after, selection.block));
    else this.tip.hide();
    return undefined;
  }

  #leave() {
    this.ctx.ui.hover(null);
    this.tip.hide();
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const { selection } = this.#hit(event);
    if (selection) this.ctx.ui.pin(selection);
    else if (this.ctx.ui.selection.pinned) this.ctx.ui.clear();
    if (selection?.kind === 'block') this.cursorBlock = selection.block;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const { pool, picture } = this;
    if (!pool || !picture) return;
    /** @type {Record<string, number>} */
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -pool.columns, ArrowDown: pool.columns, Home: -1e9, End: 1e9 };
    if (event.key in moves) this.#moveCursor(this.cursorBlock + moves[event.key]);
    else if (event.key === 'Enter') this.ctx.ui.pin({ kind: 'block', block: this.cursorBlock });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {number} block */
  #moveCursor(block) {
    const last = (this.picture?.after.numBlocks ?? 1) - 1;
    this.cursorBlock = Math.max(0, Math.min(last, block));
    this.ctx.ui.hover({ kind: 'block', block: this.cursorBlock });
    this.#cursorValue();
  }

  #cursorValue() {
    const { picture, option, ctx } = this;
    if (!picture) return;
    this.cursorBlock = Math.min(this.cursorBlock, picture.after.numBlocks - 1);
    option.setAttribute('aria-posinset', String(this.cursorBlock + 1));
    option.setAttribute('aria-setsize', String(picture.after.numBlocks));
    const { pinned } = ctx.ui.selection;
    option.setAttribute('aria-selected', String(pinned?.kind === 'block' && pinned.block === this.cursorBlock));
    const text = blockText(picture.after, this.cursorBlock);
    if (option.textContent !== text) option.textContent = text;
  }

  destroy() {
    this.size.disconnect();
    this.tip.remove();
    this.root.replaceChildren();
  }
}
