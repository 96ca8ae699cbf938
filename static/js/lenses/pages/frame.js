/** Draws the pages lens at one progress, and finds the thing under a point. */
import { within } from '../../core/phases.js';
import { shownRequest } from '../../core/selectors.js';
import { doubleOutline, roundRect, span } from '../../ui/canvas.js';
import { layoutChains } from './chain-layout.js';
import { Chains } from './chains.js';
import { drawConnectors, MOST_LINES } from './connectors.js';
import { drawHeadings } from './headings.js';
import { heldAt } from './held.js';
import { drawHost, layoutHost } from './host-tier.js';
import { drawMoves, movesOf } from './moves.js';
import { drawPool, drawRowNames } from './pool-tiles.js';
import { PoolTree } from './pool-tree.js';
import { PrefixParents } from './prefix-tree.js';
import { drawQueue } from './queue.js';
import { drawSlabs } from './slab-bars.js';
import { SlabHistory } from './slab.js';
import { blockAt, layoutPool, poolBox } from './space.js';
import { TileCache } from './tile-cache.js';
/** @import { CanvasStack } from '../../ui/canvas.js' */
/** @import { Ctx, Request, Selection } from '../../core/types.d.ts' */
/** @import { ChainRow } from './chain-layout.js' */
/** @import { ChainTile } from './chains.js' */
/** @import { Move } from './moves.js' */
/** @import { PagesPicture } from './picture.js' */
/** @import { PagesSpace } from './space.js' */
/** @import { QueueTile } from './queue.js' */
/** @import { Box } from './tile.js' */

export class PagesFrame {
  /** @type {PagesPicture|null} */
  picture = null;
  /** @type {PagesSpace|null} */
  space = null;
  /** @type {ReturnType<typeof layoutPool>|null} */
  pool = null;
  /** @type {ReturnType<typeof layoutPool>|null} */
  host = null;
  numHost = 0;
  /** @type {ChainRow[]} */
  rows = [];
  /** @type {QueueTile[]} */
  queueTiles = [];
  /** @type {Request[]} */
  hidden = [];
  /** @type {PoolTree|null} the pool by prefix */
  tree = null;
  /** @type {Move[]} */
  #moves = [];
  #cache = new TileCache();
  #stillKey = '';

  /** @param {CanvasStack} stack @param {Ctx} ctx @param {(request: Request, logical: number, block: number) => boolean} isGone */
  constructor(stack, ctx, isGone) {
    this.stack = stack;
    this.ctx = ctx;
    this.isGone = isGone;
    this.histories = { asked: new SlabHistory(ctx.log), full: new SlabHistory(ctx.log, true) };
    this.parents = new PrefixParents(ctx.log);
    this.chains = new Chains(this.#cache, isGone);
  }

  get slabs() {
    return this.ctx.ui.slabFull ? this.histories.full : this.histories.asked;
  }

  /** @param {PagesPicture} picture @param {PagesSpace} space @param {number} numHost */
  reset(picture, space, numHost) {
    const { palette, ui } = this.ctx;
    const small = palette.px('text-xs');
    this.picture = picture;
    this.space = space;
    this.pool = layoutPool(space.pool, space.heading, picture.after.numBlocks, small);
    this.numHost = numHost;
    this.host = space.host ? layoutHost(space.host, space.heading, numHost, small) : null;
    this.tree = ui.pagesBy === 'prefix' ? new PoolTree(this.parents.all(), space.pool, space.heading, small) : null;
    this.#moves = movesOf(picture.told);
    Object.assign(
      this,
      layoutChains(picture, space.chains, space.heading, small, shownRequest(picture.scene, ui)?.id ?? null),
    );
  }

  /** @param {number} progress @param {boolean} all look at every tile of the pool */
  draw(progress, all) {
    const { picture, space, pool, ctx, stack } = this;
    if (!picture || !space || !pool) return;
    const { palette, log, ui } = ctx;
    const still = this.#still(all);
    if (!this.tree) drawPool(still, palette, picture, pool, progress, this.#cache, all);
    const context = stack.clear('motion');
    const held = heldAt(picture, progress);
    const slabs = this.slabs.at(held.seq);
    if (this.tree) this.tree.draw(context, palette, picture, held.world, progress);
    else drawRowNames(context, palette, picture.after.numBlocks, pool);
    drawHeadings(context, palette, space, held, {
      hidden: this.hidden,
      byPrefix: this.tree !== null,
      treeHidden: this.tree?.layout.numHidden ?? 0,
      numHost: this.numHost,
      slabs,
      capacity: this.slabs.capacity,
      full: ui.slabFull,
      context: log.header?.model.max_positions ?? 0,
    });
    this.chains.draw(still, context, palette, picture, this.rows, progress, all);
    this.queueTiles = drawQueue(
      context,
      palette,
      picture,
      space.queue,
      space.heading,
      progress,
      this.host !== null && Boolean(log.header?.policies.offload),
    );
    if (this.host) drawHost(context, palette, picture, this.host, this.numHost, progress);
    drawSlabs(
      context,
      palette,
      space.slabs,
      space.heading,
      held.world,
      held.computed,
      slabs,
      this.slabs.capacity,
      space.stacked,
    );
    this.#connect(context, progress);
    this.#move(context, progress);
    this.#selection(context);
  }

  /** The canvases were cleared. */
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
    const key = JSON.stringify([
      pool,
      space,
      ctx.palette.version,
      stack.ratio,
      picture?.after.blockSize,
      picture?.after.numBlocks,
      ctx.log.logId,
      ctx.ui.pagesBy,
    ]);
    if (key === this.#stillKey) return stack.context('pool');
    this.#stillKey = key;
    this.#cache.forget();
    this.chains.forget();
    return stack.clear('pool');
  }

  /** Position of a block in the pool; null if it isn't shown. @param {number} block @returns {Box|null} */
  boxOf(block) {
    if (this.tree) return this.tree.boxOf(block);
    return this.pool && block >= 0 && block < (this.picture?.after.numBlocks ?? 0) ? poolBox(this.pool, block) : null;
  }

  /**
   * Copies and moves between tiers, in motion while the step takes its blocks. At rest, copies stay visible; after
   * other moves, one end already holds something else.
   * @param {CanvasRenderingContext2D} context @param {number} progress
   */
  #move(context, progress) {
    const { picture, host, ctx } = this;
    const { phases } = picture ?? {};
    const moves = phases ? this.#moves : this.#moves.filter((move) => move.kind === 'copy');
    if (!picture || moves.length === 0) return;
    const t = !phases ? 1 : progress <= 0 ? 0 : span(within(phases.blocks, progress), 0.3, 0.8);
    const alpha = !phases || progress <= 0 ? Number(!phases) : 1 - span(within(phases.layers, progress), 0.3, 0.6);
    drawMoves(
      context,
      ctx.palette,
      moves,
      (block) => this.boxOf(block),
      (id) => (host ? poolBox(host, id) : null),
      t,
      alpha,
    );
  }

  /** Lines of the hovered or pinned thing, else of what the step changes.
   * @param {CanvasRenderingContext2D} context @param {number} progress */
  #connect(context, progress) {
    const { picture, pool, space, ctx, chainTiles } = this;
    if (!picture || !pool || !space || space.stacked) return;
    const { shown } = ctx.ui;
    const live = chainTiles.filter((tile) => !tile.gone && tile.block >= 0);
    let tiles = live.filter((tile) => shown !== null && this.#means(shown, tile)).slice(-MOST_LINES);
    let t = 1;
    let alpha = 1;
    if (tiles.length === 0 && picture.phases && progress > 0) {
      tiles = live.filter(
        (tile) => picture.taken.get(tile.block) === tile.request || picture.hit.get(tile.block) === tile.request,
      );
      t = picture.phases.blocks[1] > 0 ? span(within(picture.phases.blocks, progress), 0.6, 1) : 0;
      alpha = 1 - span(within(picture.phases.layers, progress), 0.2, 0.5); // a line that shrank would point at another block
    }
    if (tiles.length === 0 || t <= 0 || alpha <= 0) return;
    context.globalAlpha = alpha;
    drawConnectors(
      context,
      ctx.palette,
      tiles,
      (block) => this.boxOf(block),
      space.gutter,
      this.tree ? 6 : pool.gap,
      t,
    );
    context.globalAlpha = 1;
  }

  /** @param {Selection} selection @param {ChainTile} tile @returns {boolean} */
  #means(selection, tile) {
    if (selection.kind === 'block') return tile.block === selection.block;
    if (selection.kind === 'request') return tile.request === selection.request;
    if (selection.kind !== 'entry' && selection.kind !== 'token') return false;
    return (
      tile.request === selection.request &&
      tile.logical === Math.floor(selection.position / (this.picture?.after.blockSize ?? 1))
    );
  }

  /** @param {CanvasRenderingContext2D} context */
  #selection(context) {
    const { hovered, pinned } = this.ctx.ui.selection;
    for (const [selection, firm] of /** @type {const} */ ([
      [pinned, true],
      [hovered, false],
    ])) {
      if (selection) for (const box of this.#boxesOf(selection)) this.#ring(context, box, firm);
    }
  }

  /** All places of a selection. @param {Selection} selection @returns {Box[]} */
  #boxesOf(selection) {
    const { picture, pool, queueTiles, chainTiles, rows } = this;
    if (!picture || !pool) return [];
    if (selection.kind === 'request')
      return rows.filter((row) => row.request.id === selection.request).map((row) => row.badge);
    let block = -1;
    if (selection.kind === 'block') block = selection.block;
    else if (selection.kind === 'entry' || selection.kind === 'token') {
      const request = picture.after.requests.get(selection.request);
      block =
        (request?.lastTable ?? request?.table ?? [])[Math.floor(selection.position / picture.after.blockSize)] ?? -1;
    }
    if (block < 0 || block >= picture.after.numBlocks) return [];
    const place = this.boxOf(block);
    return [
      ...(place ? [place] : []),
      ...queueTiles.filter((tile) => tile.block === block).map((tile) => tile.box),
      ...chainTiles.filter((tile) => tile.block === block && !tile.gone).map((tile) => tile.box),
    ];
  }

  /** @param {CanvasRenderingContext2D} context @param {Box} box @param {boolean} firm */
  #ring(context, box, firm) {
    const { palette } = this.ctx;
    const mark = palette.px('mark');
    if (firm) {
      doubleOutline(context, box.x, box.y, box.width, box.height, {
        line: palette.css('selected'),
        gap: palette.css('selected-gap'),
        radius: 5,
        mark,
      });
      return;
    }
    context.strokeStyle = palette.css('selected');
    context.lineWidth = 1.5 * mark;
    roundRect(context, box.x - 2, box.y - 2, box.width + 4, box.height + 4, 6);
    context.stroke();
  }

  /** @param {number} x @param {number} y @returns {{selection: Selection|null, tile: ChainTile|null, host: number|null}} */
  hit(x, y) {
    const { picture, pool, host, chainTiles, queueTiles, rows, space } = this;
    const inside = (/** @type {Box} */ box) =>
      x >= box.x - 1 && x < box.x + box.width + 1 && y >= box.y - 1 && y < box.y + box.height + 1;
    if (!picture || !pool || !space) return { selection: null, tile: null, host: null };
    const tile = chainTiles.find((one) => inside(one.box)) ?? null;
    if (tile)
      return {
        selection:
          tile.block >= 0 && !tile.gone
            ? { kind: 'block', block: tile.block }
            : { kind: 'request', request: tile.request },
        tile,
        host: null,
      };
    const row = rows.find((one) => inside(one.badge) || inside(one.title));
    if (row) return { selection: { kind: 'request', request: row.request.id }, tile: null, host: null };
    if (host && space.host && inside(space.host)) {
      const id = blockAt(host, this.numHost, x, y);
      const owner = picture.after.host.get(id)?.requestId ?? null;
      return {
        selection: owner === null ? null : { kind: 'request', request: owner },
        tile: null,
        host: id < 0 ? null : id,
      };
    }
    const waiting = queueTiles.find((one) => inside(one.box));
    const block = waiting
      ? waiting.block
      : !inside(space.pool)
        ? -1
        : this.tree
          ? this.tree.blockAt(inside)
          : blockAt(pool, picture.after.numBlocks, x, y);
    return { selection: block >= 0 ? { kind: 'block', block } : null, tile: null, host: null };
  }
}
