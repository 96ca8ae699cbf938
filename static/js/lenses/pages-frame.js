/** Draws the pages lens at one progress, and says what stands under a point. */
import { doubleOutline, lerp, roundRect, span, textWidth, useFont } from '../canvas.js';
import { within } from '../phases.js';
import { poolCounts } from '../selectors.js';
import { count, fill } from '../text.js';
import { Chains, layoutChains } from './chains.js';
import { drawConnectors, MOST_LINES } from './connectors.js';
import { blockAt, layoutPool, poolBox } from './pages-space.js';
import { drawPool, drawRowNames } from './pool-tiles.js';
import { drawQueue } from './queue.js';
import { drawSlabs } from './slab-bars.js';
import { SlabHistory } from './slab.js';
import { TileCache } from './tile-cache.js';
import { texts } from './texts.js';

/** @typedef {import('../canvas.js').CanvasStack} CanvasStack */
/** @typedef {import('../types.d.ts').Ctx} Ctx */
/** @typedef {import('../types.d.ts').Request} Request */
/** @typedef {import('../types.d.ts').Selection} Selection */
/** @typedef {import('../types.d.ts').World} World */
/** @typedef {import('./chains.js').ChainRow} ChainRow */
/** @typedef {import('./chains.js').ChainTile} ChainTile */
/** @typedef {import('./pages-picture.js').PagesPicture} PagesPicture */
/** @typedef {import('./pages-space.js').PagesSpace} PagesSpace */
/** @typedef {import('./queue.js').QueueTile} QueueTile */
/** @typedef {import('./tile.js').Box} Box */

export class PagesFrame {
  /** @type {PagesPicture|null} */
  picture = null;
  /** @type {PagesSpace|null} */
  space = null;
  /** @type {ReturnType<typeof layoutPool>|null} */
  pool = null;
  /** @type {ChainRow[]} */
  rows = [];
  /** @type {QueueTile[]} */
  queueTiles = [];
  numHidden = 0;
  #cache = new TileCache();
  #stillKey = '';

  /** @param {CanvasStack} stack @param {Ctx} ctx @param {(request: Request, logical: number, block: number) => boolean} isGone */
  constructor(stack, ctx, isGone) {
    this.stack = stack;
    this.ctx = ctx;
    this.isGone = isGone;
    this.slabs = new SlabHistory(ctx.log);
    this.chains = new Chains(this.#cache, isGone);
  }

  /** @param {PagesPicture} picture @param {PagesSpace} space */
  reset(picture, space) {
    const { palette, ui } = this.ctx;
    const small = palette.px('text-xs');
    this.picture = picture;
    this.space = space;
    this.pool = layoutPool(space.pool, space.heading, picture.after.numBlocks, small);
    Object.assign(this, layoutChains(picture, space.chains, space.heading, small, ui.requestId));
  }

  /** @param {number} progress @param {boolean} all look at every tile of the pool */
  draw(progress, all) {
    const { picture, space, pool, ctx, stack } = this;
    if (!picture || !space || !pool) return;
    const { palette } = ctx;
    const still = this.#still(all);
    drawPool(still, palette, picture, pool, progress, this.#cache, all);
    const context = stack.clear('motion');
    this.#headings(context, progress);
    this.chains.draw(still, context, palette, picture, this.rows, progress, all);
    drawRowNames(context, palette, picture.after.numBlocks, pool);
    this.queueTiles = drawQueue(context, palette, picture, space.queue, space.heading, progress);
    const { world, computed, seq } = this.#held(progress);
    drawSlabs(context, palette, space.slabs, space.heading, world, computed, this.slabs.at(seq), this.slabs.capacity, space.stacked);
    this.#connect(context, progress);
    this.#selection(context);
  }

  /** The canvases were made blank. */
  blank() {
    this.#stillKey = '';
  }

  get chainTiles() {
    return this.chains.tiles;
  }

  /** The canvas of the tiles, blank after a change of size, layout or colours. @param {boolean} all @returns {CanvasRenderingContext2D} */
  #still(all) {
    const { stack, pool, space, ctx, picture } = this;
    if (!all) return stack.context('pool');
    const key = JSON.stringify([pool, space, ctx.palette.version, stack.ratio, picture?.after.blockSize, picture?.after.numBlocks, ctx.log.logId]);
    if (key === this.#stillKey) return stack.context('pool');
    this.#stillKey = key;
    this.#cache.forget();
    this.chains.forget();
    return stack.clear('pool');
  }

  /** What requests hold at a progress: whose block tables count, how many entries each has, which slabs exist.
   * @param {number} progress @returns {{world: World, computed: (id: number) => number, seq: number}} */
  #held(progress) {
    const { before, after, phases, step } = /** @type {PagesPicture} */ (this.picture);
    const computedIn = (/** @type {World} */ world) => (/** @type {number} */ id) => world.requests.get(id)?.numComputed ?? 0;
    if (!phases || !step || progress <= 0) return { world: before, computed: computedIn(before), seq: before.seq };
    const { blocks, layers, release } = phases;
    if (within(blocks, progress) < 0.5 && blocks[1] > 0) return { world: before, computed: computedIn(before), seq: before.seq };
    if (release[1] <= release[0] || within(release, progress) >= 0.5) return { world: after, computed: this.#growing(span(within(layers, progress), 0, 1)), seq: after.seq };
    return { world: this.#beforeRelease(), computed: this.#growing(span(within(layers, progress), 0, 1)), seq: this.#startedSeq() };
  }

  /** Entries on the way through the layers. @param {number} t @returns {(id: number) => number} */
  #growing(t) {
    const { before, after, hit } = /** @type {PagesPicture} */ (this.picture);
    const hitters = new Set(hit.values());
    return (id) => {
      const is = after.requests.get(id);
      const was = before.requests.get(id)?.numComputed ?? 0;
      return is ? lerp(Math.max(was, hitters.has(id) ? is.numHitTokens : 0), is.numComputed, t) : was;
    };
  }

  /** The world at the end of the step but for what is given back: requests that end still hold their tables. @returns {World} */
  #beforeRelease() {
    const { before, after, step, freed } = /** @type {PagesPicture} */ (this.picture);
    if (!step || step.finished.length === 0) return after;
    const world = Object.create(after);
    world.refCount = after.refCount.slice();
    for (const block of freed.keys()) world.refCount[block] = 1;
    world.requests = new Map(after.requests);
    for (const { request_id: id } of step.finished) {
      const request = after.requests.get(id);
      if (request?.lastTable) world.requests.set(id, { ...request, table: request.lastTable });
    }
    world.unfinished = before.unfinished;
    return world;
  }

  /** Seq up to which the step's requests have started and none has ended. @returns {number} */
  #startedSeq() {
    const { before, step } = /** @type {PagesPicture} */ (this.picture);
    const { log } = this.ctx;
    for (let seq = step?.lastSeq ?? -1; step && seq >= step.firstSeq; seq -= 1) {
      if (log.at(seq)?.[2].type === 'request_started') return seq;
    }
    return before.seq;
  }

  /** @param {CanvasRenderingContext2D} context @param {number} progress */
  #headings(context, progress) {
    const { space, ctx, picture, numHidden } = this;
    if (!space || !picture) return;
    const { palette } = ctx;
    const t = texts.pages;
    const put = (/** @type {Box} */ area, /** @type {string} */ title, /** @type {readonly string[]} */ notes) => {
      context.textBaseline = 'middle';
      context.textAlign = 'left';
      useFont(context, palette.font('text-xs', 'ui', 600));
      context.fillStyle = palette.css('ink-2');
      const y = area.y + space.heading * 0.4;
      context.fillText(title, area.x, y);
      const used = textWidth(context, title) + 14;
      useFont(context, palette.font('text-xs'));
      context.fillStyle = palette.css('ink-3');
      const note = notes.find((text) => textWidth(context, text) <= area.width - used);
      if (note) context.fillText(note, area.x + used, y);
    };
    const { world, seq } = this.#held(progress);
    const counts = { ...poolCounts(world), n: world.numBlocks, size: world.blockSize };
    const slots = this.slabs.at(seq).slabs.reduce((sum, slab) => sum + slab.size, 0);
    put(space.chains, t.requests, numHidden > 0 ? [fill(numHidden === 1 ? t.hidden.one : t.hidden.many, { n: numHidden })] : []);
    put(space.pool, t.pool, [t.poolCount, t.poolCountShort].map((text) => fill(text, counts)));
    put(space.queue, t.queue, []);
    put(space.slabs, t.slabs, (slots > 0 ? t.slabsHint : t.slabsNone).map((text) => fill(text, { slots: count(slots) })));
  }

  /** Lines of what is hovered or pinned, else of what the step changes. @param {CanvasRenderingContext2D} context @param {number} progress */
  #connect(context, progress) {
    const { picture, pool, space, ctx, chainTiles } = this;
    if (!picture || !pool || !space || space.stacked) return;
    const { shown } = ctx.ui;
    const live = chainTiles.filter((tile) => !tile.gone && tile.block >= 0);
    let tiles = live.filter((tile) => shown !== null && this.#means(shown, tile)).slice(-MOST_LINES);
    let t = 1;
    if (tiles.length === 0 && picture.phases && progress > 0) {
      tiles = live.filter((tile) => picture.taken.get(tile.block) === tile.request || picture.hit.get(tile.block) === tile.request);
      t = picture.phases.blocks[1] > 0 ? span(within(picture.phases.blocks, progress), 0.6, 1) * (1 - span(within(picture.phases.layers, progress), 0.2, 0.5)) : 0;
    }
    if (tiles.length > 0 && t > 0) drawConnectors(context, ctx.palette, tiles, (block) => poolBox(pool, block), space.gutter, pool.gap, t);
  }

  /** @param {Selection} selection @param {ChainTile} tile @returns {boolean} */
  #means(selection, tile) {
    if (selection.kind === 'block') return tile.block === selection.block;
    if (selection.kind === 'request') return tile.request === selection.request;
    if (selection.kind !== 'entry' && selection.kind !== 'token') return false;
    return tile.request === selection.request && tile.logical === Math.floor(selection.position / (this.picture?.after.blockSize ?? 1));
  }

  /** @param {CanvasRenderingContext2D} context */
  #selection(context) {
    const { hovered, pinned } = this.ctx.ui.selection;
    for (const [selection, firm] of /** @type {const} */ ([[pinned, true], [hovered, false]])) {
      if (selection) for (const box of this.#boxesOf(selection)) this.#ring(context, box, firm);
    }
  }

  /** Everywhere a selection stands. @param {Selection} selection @returns {Box[]} */
  #boxesOf(selection) {
    const { picture, pool, queueTiles, chainTiles, rows } = this;
    if (!picture || !pool) return [];
    if (selection.kind === 'request') return rows.filter((row) => row.request.id === selection.request).map((row) => row.badge);
    let block = -1;
    if (selection.kind === 'block') block = selection.block;
    else if (selection.kind === 'entry' || selection.kind === 'token') {
      const request = picture.after.requests.get(selection.request);
      block = (request?.lastTable ?? request?.table ?? [])[Math.floor(selection.position / picture.after.blockSize)] ?? -1;
    }
    if (block < 0 || block >= picture.after.numBlocks) return [];
    return [poolBox(pool, block), ...queueTiles.filter((tile) => tile.block === block).map((tile) => tile.box),
      ...chainTiles.filter((tile) => tile.block === block && !tile.gone).map((tile) => tile.box)];
  }

  /** @param {CanvasRenderingContext2D} context @param {Box} box @param {boolean} firm */
  #ring(context, box, firm) {
    const { palette } = this.ctx;
    const mark = palette.px('mark');
    if (firm) {
      doubleOutline(context, box.x, box.y, box.width, box.height, { line: palette.css('selected'), gap: palette.css('selected-gap'), radius: 5, mark });
      return;
    }
    context.strokeStyle = palette.css('selected');
    context.lineWidth = 1.5 * mark;
    roundRect(context, box.x - 2, box.y - 2, box.width + 4, box.height + 4, 6);
    context.stroke();
  }

  /** @param {number} x @param {number} y @returns {{selection: Selection|null, tile: ChainTile|null}} */
  hit(x, y) {
    const { picture, pool, chainTiles, queueTiles, rows, space } = this;
    const inside = (/** @type {Box} */ box) => x >= box.x - 1 && x < box.x + box.width + 1 && y >= box.y - 1 && y < box.y + box.height + 1;
    if (!picture || !pool || !space) return { selection: null, tile: null };
    const tile = chainTiles.find((one) => inside(one.box)) ?? null;
    if (tile) return { selection: tile.block >= 0 && !tile.gone ? { kind: 'block', block: tile.block } : { kind: 'request', request: tile.request }, tile };
    const row = rows.find((one) => inside(one.badge) || inside({ ...one.box, height: one.area.y - one.box.y }));
    if (row) return { selection: { kind: 'request', request: row.request.id }, tile: null };
    const waiting = queueTiles.find((one) => inside(one.box));
    const block = waiting ? waiting.block : inside(space.pool) ? blockAt(pool, picture.after.numBlocks, x, y) : -1;
    return { selection: block >= 0 ? { kind: 'block', block } : null, tile: null };
  }
}
