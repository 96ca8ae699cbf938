/**
 * The cache lens: rows are layers, columns are cached tokens, each cell has K over V. Prefill writes whole rows.
 * Decode writes one entry per layer and then reads the row, which opens while it is read.
 */
import { Bitmap } from '../../ui/canvas.js';
import { h } from '../../ui/dom.js';
import { fill, percent, three } from '../../ui/format.js';
import { BlockHistory } from '../shared/block-history.js';
import { heldPack } from '../shared/frame-rows.js';
import { LensShell } from '../shared/lens-shell.js';
import { texts } from '../shared/texts.js';
import { cellTables } from './cell-paint.js';
import { CacheControls } from './controls.js';
import { CacheFrame } from './frame.js';
import { ageLevels, normLevels, ReceivedAttention } from './levels.js';
import { Norms } from './norms.js';
import { cachePicture, settledEdges } from './picture.js';
import { rowAt } from './rows.js';
import { cacheSpace } from './space.js';
import { describeCache, entryText, largestText, fillTable } from './text.js';
/** @import { Ctx, Dirty, Scene, Selection } from '../../core/types.d.ts' */
/** @import { CachePicture } from './picture.js' */
/** @import { Levels } from './levels.js' */
/** @import { ColumnEdges } from './columns.js' */

/** @type {import('../../core/types.d.ts').CreateLens} */
export function create(root, ctx) {
  return new CacheLens(root, ctx);
}

class CacheLens extends LensShell {
  /** @type {CachePicture|null} */
  picture = null;
  /** @type {Levels|null} */
  levels = null;
  /** @type {Norms|null} */
  norms = null;
  normsOf = '';
  /** @type {ReceivedAttention|null} */
  received = null;
  progress = 0;
  /** Position of the keyboard cursor. */
  cursorPosition = 0;

  /** @param {HTMLElement} root @param {Ctx} ctx */
  constructor(root, ctx) {
    super(root, ctx, h('div', { class: 'lens-canvas', role: 'group', 'aria-label': texts.cache.label }), {
      cursor: texts.cache.cursor,
      canvases: ['grid', 'cells', 'motion'],
    });
    this.history = new BlockHistory(ctx.log);
    this.tables = cellTables(ctx.palette);
    this.tablesVersion = ctx.palette.version;
    this.controls = new CacheControls(ctx.ui);
    this.mount(this.controls.element, this.box);
    this.frame = new CacheFrame(this.stack, ctx, [new Bitmap(), new Bitmap()]);
    this.listen(this.box);
  }

  /** @param {Scene} scene @param {Set<Dirty>} dirty */
  update(scene, dirty) {
    const { ctx } = this;
    const header = ctx.log.header;
    if (!header) return;
    if (dirty.has('theme') || this.tablesVersion !== ctx.palette.version) {
      this.tables = cellTables(ctx.palette);
      this.tablesVersion = ctx.palette.version;
    }
    this.stack.resize(this.size.width, this.size.height);
    const space = this.#space(0);
    this.picture = cachePicture(scene, ctx.log, ctx.ui, {
      x: space.columnsLeft,
      width: space.columnsWidth,
      maxPitch: Math.max(44, ctx.palette.px('text-xs') * 3.8),
    });
    this.#gather();
    this.controls.update();
    this.#legend();
    this.#emptyState();
    this.frame.reset(this.picture, this.levels, this.tables, this.history);
    this.tellInTime();
  }

  /** @param {number} wave */
  #space(wave) {
    const { ctx, stack } = this;
    const layers = ctx.log.header?.model.layers ?? [];
    const keyShare = layers.map((layer) => (layer.cache === 'latent' ? 0.72 : 0.5));
    return cacheSpace(stack.width, stack.height, ctx.palette, keyShare, 1 / stack.ratio, wave);
  }

  /** Norms and levels of the shown request. */
  #gather() {
    const { ctx, picture } = this;
    if (!picture?.request) {
      this.levels = null;
      return;
    }
    const { request } = picture;
    const numLayers = ctx.log.header?.model.num_layers ?? 0;
    const key = `${ctx.log.logId}/${request.id}`;
    const span = ctx.log.spanOf(request.id);
    if (this.normsOf !== key || !this.norms) {
      this.normsOf = key;
      this.norms = new Norms(numLayers, request.promptLength);
      this.received = new ReceivedAttention(ctx.frames, numLayers, span?.firstStep ?? 1);
    }
    if (span) this.norms.addWhole(ctx.frames.norms(request.id));
    for (const step of [picture.attentionBefore, picture.attentionAfter]) {
      if (step > 0) this.norms.addStep(step, ctx.frames.step(step, request.id));
    }
    this.norms.settle(request.numComputed);
    const edges = settledEdges(picture.columnsAfter);
    this.levels = this.#levelsOf(edges, numLayers);
  }

  /** @param {ColumnEdges} edges @param {number} numLayers @returns {Levels} */
  #levelsOf(edges, numLayers) {
    const { ctx, picture, received } = this;
    const norms = /** @type {Norms} */ (this.norms);
    const { view } = ctx.ui;
    const request = picture?.request;
    if (view === 'age' && picture && request) {
      const { after, position, step } = picture.scene;
      return ageLevels(
        edges,
        numLayers,
        after,
        request.lastTable ?? request.table,
        ctx.log,
        step ? step.step : position,
        request.maxNewTokens,
      );
    }
    if (view === 'attention' && picture && request && received) {
      const span = ctx.log.spanOf(request.id);
      const target = picture.attentionAfter;
      if (received.numMissing > 0 && received.step >= target) received.reset();
      received.seek(target, request.id);
      received.settle(span ? heldPack(ctx.frames, span.firstTokenStep || span.firstStep, request.id) : null);
      return received.levels(edges);
    }
    return normLevels(edges, numLayers, norms, view === 'state');
  }

  #legend() {
    const { ctx, norms, received, picture } = this;
    const t = texts.cache.legend;
    const layers = ctx.log.header?.model.layers ?? [];
    const latent = layers.some((layer) => layer.cache === 'latent');
    const request = picture?.request;
    const scale = (/** @type {string} */ title, /** @type {[number, number]} */ [low, high]) => ({
      title,
      low: three(low),
      high: three(high),
    });
    if (ctx.ui.view === 'magnitude' && norms?.scale) {
      const names = latent ? [t.latent, t.rotary] : [t.key, t.value];
      this.controls.showScales([scale(names[0], norms.scale.key), scale(names[1], norms.scale.value)], '');
    } else if (ctx.ui.view === 'attention' && received?.scale) {
      const all = received.numKnown + received.numMissing;
      const note = received.numMissing > 0 ? fill(t.partial, { n: received.numKnown, all }) : '';
      this.controls.showScales(
        [{ title: t.attention, low: percent(received.scale[0]), high: percent(received.scale[1]) }],
        note,
      );
    } else if (ctx.ui.view === 'age' && request) {
      this.controls.showScales([{ title: t.age, low: '0', high: String(request.maxNewTokens) }], '');
    } else if (ctx.ui.view === 'state') {
      this.controls.showStates(
        latent,
        layers.some((layer) => layer.window !== null),
        request?.state === 'finished',
        picture?.stages.after.gone !== null && request?.state === 'running',
      );
    } else this.controls.showScales([], t.unknown);
  }

  #emptyState() {
    const t = texts.cache;
    this.showEmpty(this.picture?.request ? '' : 'none', () => [
      h('p', { class: 'lens-empty-title' }, t.empty),
      h('p', {}, fill(t.emptyLong, { layers: this.ctx.log.header?.model.num_layers ?? 0 })),
      this.drawerButton(t.emptyAction),
    ]);
  }

  /** @param {number} progress */
  draw(progress) {
    if (!this.picture || this.stack.width === 0) return;
    this.progress = progress;
    this.frame.draw(progress, (wave) => this.#space(wave));
  }

  /** The same picture as text: a table of the open row and the value of the cursor. @override */
  tell() {
    const { picture, ctx } = this;
    if (!picture) return;
    const list = this.frame.largestNow(ctx.ui.layer);
    fillTable(this.table, picture, ctx.ui.layer, list);
    this.#cursorValue();
  }

  #cursorValue() {
    const { picture, ctx } = this;
    const last = picture?.request ? Math.max(0, picture.columnsAfter.numShown - 1) : 0;
    this.cursorPosition = Math.min(this.cursorPosition, last);
    this.slide(
      last,
      this.cursorPosition,
      picture?.request ? this.#entryText(this.cursorPosition, ctx.ui.layer) : texts.cache.empty,
    );
  }

  /** @param {number} position @param {number} layer */
  #entryText(position, layer) {
    const { picture, ctx } = this;
    if (!picture?.request) return '';
    return entryText(
      picture,
      position,
      layer,
      ctx.log.header?.model.layers[layer]?.window ?? null,
      this.frame.attentionOf(layer, position),
      this.history,
    );
  }

  /** @param {Scene} scene @returns {string} */
  describe(scene) {
    const { picture, ctx } = this;
    if (!picture || picture.scene.after !== scene.after) return '';
    this.tell();
    return describeCache(
      picture,
      ctx.log.header?.model.num_layers ?? 0,
      ctx.ui.layer,
      largestText(picture, this.frame.largestNow(ctx.ui.layer)),
    );
  }

  /** @param {MouseEvent} event @returns {Selection|null} */
  #hit(event) {
    const { picture, frame } = this;
    const { x, y } = this.at(event);
    const { rows, edges, space, table } = frame;
    if (!picture?.request || !edges || !space) return null;
    const c = edges.columnAt(x);
    if (y < space.chipTop + space.chipHeight + 3) {
      const block = c < 0 ? -1 : (table[Math.floor(edges.from[c] / picture.scene.after.blockSize)] ?? -1);
      return block >= 0 && y >= space.chipTop ? { kind: 'block', block } : null;
    }
    const apart = frame.apart;
    const layer = apart && y >= apart.top && y < apart.top + apart.height ? apart.layer : rowAt(rows, y);
    if (layer < 0) return null;
    if (x < space.columnsLeft - 4) return { kind: 'layer', layer };
    return c < 0 ? null : { kind: 'entry', request: picture.request.id, position: edges.from[c], layer };
  }

  /** @override @param {PointerEvent} event */
  point(event) {
    const hit = this.#hit(event);
    this.box.classList.toggle('pointing', hit !== null);
    this.ctx.ui.hover(hit);
    if (hit?.kind === 'entry') this.tip.show(event, this.#entryText(hit.position, hit.layer));
    else this.tip.hide();
  }

  /** @override @param {MouseEvent} event */
  click(event) {
    const hit = this.#hit(event);
    if (!hit) return this.ctx.ui.selection.pinned ? this.ctx.ui.clear() : undefined;
    if (hit.kind === 'layer') this.ctx.ui.set({ layer: hit.layer });
    else this.ctx.ui.pin(hit);
    if (hit.kind === 'entry') this.cursorPosition = hit.position;
  }

  /** @override */
  enter() {
    const { picture, ctx } = this;
    if (!picture?.request) return false;
    ctx.ui.pin({ kind: 'entry', request: picture.request.id, position: this.cursorPosition, layer: ctx.ui.layer });
  }

  /** @override @param {number} columns @param {number} rows layers, which rise */
  move(columns, rows) {
    const { picture, ctx } = this;
    if (!picture?.request) return false;
    const last = Math.max(0, picture.columnsAfter.numShown - 1);
    this.cursorPosition = Math.max(0, Math.min(last, this.cursorPosition + columns));
    const layer = Math.max(0, Math.min((ctx.log.header?.model.num_layers ?? 1) - 1, ctx.ui.layer - rows));
    if (layer !== ctx.ui.layer) ctx.ui.set({ layer });
    ctx.ui.hover({ kind: 'entry', request: picture.request.id, position: this.cursorPosition, layer });
    this.#cursorValue();
  }
}
