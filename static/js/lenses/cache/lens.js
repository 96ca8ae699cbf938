/**
 * The cache lens: rows are layers, columns cached tokens, each cell K over V. Prefill writes whole rows, decode writes
 * one entry a layer and then reads the row, which opens while it is read.
 */
import { Bitmap, CanvasStack, SizeWatch } from '../../ui/canvas.js';
import { h, replace } from '../../ui/dom.js';
import { fill, percent } from '../../ui/text.js';
import { Tip } from '../../ui/tip.js';
import { BlockHistory } from '../shared/block-history.js';
import { heldPack } from '../shared/frame-rows.js';
import { texts } from '../shared/texts.js';
import { cellTables } from './cell-paint.js';
import { CacheControls, scaleNumber } from './controls.js';
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

/** The table for readers follows the picture at most this often while it moves. */
const TABLE_MS = 600;

/** @type {import('../../core/types.d.ts').CreateLens} */
export function create(root, ctx) {
  return new CacheLens(root, ctx);
}

class CacheLens {
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
  tableAt = 0;
  /** Position under the keyboard's cursor. */
  cursorPosition = 0;

  /** @param {HTMLElement} root @param {Ctx} ctx */
  constructor(root, ctx) {
    this.root = root;
    this.ctx = ctx;
    this.history = new BlockHistory(ctx.log);
    this.tables = cellTables(ctx.palette);
    this.tablesVersion = ctx.palette.version;
    this.controls = new CacheControls(ctx.ui);
    this.canvasBox = h('div', { class: 'lens-canvas' });
    this.stack = new CanvasStack(this.canvasBox, ['grid', 'cells', 'motion']);
    this.cursor = h('div', { class: 'lens-cursor', role: 'slider', tabindex: 0, 'aria-label': texts.cache.cursor, 'aria-valuemin': 0, 'aria-valuemax': 0, 'aria-valuenow': 0 });
    this.empty = h('div', { class: 'column lens-empty', hidden: true });
    this.table = h('table', {});
    this.tip = new Tip(this.canvasBox);
    this.canvasBox.append(this.cursor, this.empty);
    root.append(this.controls.element, this.canvasBox, h('div', { class: 'visually-hidden' }, this.table));
    this.frame = new CacheFrame(this.stack, ctx, [new Bitmap(), new Bitmap()]);
    this.size = new SizeWatch(this.canvasBox, () => ctx.ui.changes.emit('ui'));
    this.#listen();
  }

  #listen() {
    const box = this.canvasBox;
    box.addEventListener('pointermove', (event) => this.#point(event));
    box.addEventListener('pointerleave', () => this.#leave());
    box.addEventListener('click', (event) => this.#click(event));
    this.cursor.addEventListener('keydown', (event) => this.#key(event));
    this.cursor.addEventListener('focus', () => this.#moveCursor(0, 0));
    this.cursor.addEventListener('blur', () => this.#leave());
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
      x: space.columnsLeft, width: space.columnsWidth, maxPitch: Math.max(44, ctx.palette.px('text-xs') * 3.8),
    });
    this.#gather();
    this.controls.update();
    this.#legend();
    this.#emptyState();
    this.frame.reset(this.picture, this.levels, this.tables, this.history);
    const now = performance.now();
    if (!ctx.timeline.moving || now - this.tableAt > TABLE_MS) {
      this.tableAt = now;
      this.#tell();
    }
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
      return ageLevels(edges, numLayers, after, request.lastTable ?? request.table, ctx.log, step ? step.step : position, request.maxNewTokens);
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
    const scale = (/** @type {string} */ title, /** @type {[number, number]} */ [low, high]) => ({ title, low: scaleNumber(low), high: scaleNumber(high) });
    if (ctx.ui.view === 'magnitude' && norms?.scale) {
      const names = latent ? [t.latent, t.rotary] : [t.key, t.value];
      this.controls.showScales([scale(names[0], norms.scale.key), scale(names[1], norms.scale.value)], '');
    } else if (ctx.ui.view === 'attention' && received?.scale) {
      const all = received.numKnown + received.numMissing;
      const note = received.numMissing > 0 ? fill(t.partial, { n: received.numKnown, all }) : '';
      this.controls.showScales([{ title: t.attention, low: percent(received.scale[0]), high: percent(received.scale[1]) }], note);
    } else if (ctx.ui.view === 'age' && request) {
      this.controls.showScales([{ title: t.age, low: '0', high: String(request.maxNewTokens) }], '');
    } else if (ctx.ui.view === 'state') {
      this.controls.showStates(latent, layers.some((layer) => layer.window !== null), request?.state === 'finished', picture?.stages.after.gone !== null && request?.state === 'running');
    } else this.controls.showScales([], t.unknown);
  }

  #emptyState() {
    const { ctx, picture } = this;
    const none = !picture?.request;
    if (this.empty.hidden !== none) return;
    this.empty.hidden = !none;
    if (!none) return;
    const t = texts.cache;
    replace(this.empty,
      h('p', { class: 'lens-empty-title' }, t.empty), h('p', {}, fill(t.emptyLong, { layers: ctx.log.header?.model.num_layers ?? 0 })),
      h('button', { type: 'button', class: 'primary', on: { click: () => ctx.ui.set({ drawerOpen: true }) } }, t.emptyAction));
  }

  /** @param {number} progress */
  draw(progress) {
    if (!this.picture || this.stack.width === 0) return;
    this.progress = progress;
    this.frame.draw(progress, (wave) => this.#space(wave));
  }

  /** The same picture as text: a table of the open row and the value of the cursor. */
  #tell() {
    const { picture, ctx } = this;
    if (!picture) return;
    const list = this.frame.largestNow(ctx.ui.layer);
    fillTable(this.table, picture, ctx.ui.layer, list);
    this.canvasBox.setAttribute('role', 'group');
    this.canvasBox.setAttribute('aria-label', texts.cache.label);
    this.#cursorValue();
  }

  #cursorValue() {
    const { picture, ctx, cursor } = this;
    const last = picture?.request ? Math.max(0, picture.columnsAfter.numShown - 1) : 0;
    this.cursorPosition = Math.min(this.cursorPosition, last);
    cursor.setAttribute('aria-valuemax', String(last));
    cursor.setAttribute('aria-valuenow', String(this.cursorPosition));
    const text = picture?.request ? this.#entryText(this.cursorPosition, ctx.ui.layer) : texts.cache.empty;
    cursor.setAttribute('aria-valuetext', text);
  }

  /** @param {number} position @param {number} layer */
  #entryText(position, layer) {
    const { picture, ctx } = this;
    if (!picture?.request) return '';
    return entryText(picture, position, layer, ctx.log.header?.model.layers[layer]?.window ?? null, this.frame.attentionOf(layer, position), this.history);
  }

  /** @param {Scene} scene @returns {string} */
  describe(scene) {
    const { picture, ctx } = this;
    if (!picture || picture.scene.after !== scene.after) return '';
    this.#tell();
    return describeCache(picture, ctx.log.header?.model.num_layers ?? 0, ctx.ui.layer, largestText(picture, this.frame.largestNow(ctx.ui.layer)));
  }

  /** @param {MouseEvent} event @returns {Selection|null} */
  #hit(event) {
    const { picture, frame } = this;
    const box = this.canvasBox.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const { rows, edges, space, table } = frame;
    if (!picture?.request || !edges || !space) return null;
    const c = edges.columnAt(x);
    if (y < space.chipTop + space.chipHeight + 3) {
      const block = c < 0 ? -1 : table[Math.floor(edges.from[c] / picture.scene.after.blockSize)] ?? -1;
      return block >= 0 && y >= space.chipTop ? { kind: 'block', block } : null;
    }
    const apart = frame.apart;
    const layer = apart && y >= apart.top && y < apart.top + apart.height ? apart.layer : rowAt(rows, y);
    if (layer < 0) return null;
    if (x < space.columnsLeft - 4) return { kind: 'layer', layer };
    return c < 0 ? null : { kind: 'entry', request: picture.request.id, position: edges.from[c], layer };
  }

  /** @param {PointerEvent} event */
  #point(event) {
    const hit = this.#hit(event);
    this.canvasBox.classList.toggle('pointing', hit !== null);
    this.ctx.ui.hover(hit);
    if (hit?.kind === 'entry') this.tip.show(event, this.#entryText(hit.position, hit.layer));
    else this.tip.hide();
  }

  #leave() {
    this.ctx.ui.hover(null);
    this.tip.hide();
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const hit = this.#hit(event);
    if (!hit) return this.ctx.ui.selection.pinned ? this.ctx.ui.clear() : undefined;
    if (hit.kind === 'layer') this.ctx.ui.set({ layer: hit.layer });
    else this.ctx.ui.pin(hit);
    if (hit.kind === 'entry') this.cursorPosition = hit.position;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    /** @type {Record<string, [number, number]>} */
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], PageUp: [-16, 0], PageDown: [16, 0], Home: [-1e9, 0], End: [1e9, 0] };
    const { picture, ctx } = this;
    if (!picture?.request) return;
    if (event.key in moves) this.#moveCursor(...moves[event.key]);
    else if (event.key === 'Enter') ctx.ui.pin({ kind: 'entry', request: picture.request.id, position: this.cursorPosition, layer: ctx.ui.layer });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {number} columns @param {number} layers */
  #moveCursor(columns, layers) {
    const { picture, ctx } = this;
    if (!picture?.request) return;
    const last = Math.max(0, picture.columnsAfter.numShown - 1);
    this.cursorPosition = Math.max(0, Math.min(last, this.cursorPosition + columns));
    const layer = Math.max(0, Math.min((ctx.log.header?.model.num_layers ?? 1) - 1, ctx.ui.layer + layers));
    if (layer !== ctx.ui.layer) ctx.ui.set({ layer });
    ctx.ui.hover({ kind: 'entry', request: picture.request.id, position: this.cursorPosition, layer });
    this.#cursorValue();
  }

  destroy() {
    this.size.disconnect();
    this.tip.remove();
    this.root.replaceChildren();
  }
}
