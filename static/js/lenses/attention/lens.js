/**
 * The attention lens: what each query head of one layer reads of the cache, bracketed by the KV head that it shares; and
 * for a prefill step the triangle of all its queries.
 */
import { Bitmap, CanvasStack, SizeWatch } from '../../ui/canvas.js';
import { h, replace } from '../../ui/dom.js';
import { fill, percent, quoted } from '../../ui/text.js';
import { cachePicture } from '../cache/picture.js';
import { BlockHistory } from '../shared/block-history.js';
import { largest } from '../shared/frame-rows.js';
import { texts } from '../shared/texts.js';
import { Arithmetic } from './arithmetic.js';
import { AttentionControls } from './controls.js';
import { AttentionFrame } from './frame.js';
import { attentionSpace, headAt } from './layout.js';
import { Scores } from './scores.js';
import { TriangleView } from './triangle-view.js';
/** @import { Ctx, Scene } from '../../core/types.d.ts' */
/** @import { CachePicture } from '../cache/picture.js' */

const TABLE_MS = 600;
/** From this mean share on the first token is explained as a sink. */
const SINK_SHARE = 0.15;

/** @type {import('../../core/types.d.ts').CreateLens} */
export function create(root, ctx) {
  return new AttentionLens(root, ctx);
}

class AttentionLens {
  /** @type {CachePicture|null} */
  picture = null;
  /** @type {'row'|'triangle'} */
  mode = 'row';
  /** Cell under the pointer or the cursor. @type {{head: number|null, position: number}|null} */
  pointed = null;
  cursorPosition = 0;
  tableAt = 0;

  /** @param {HTMLElement} root @param {Ctx} ctx */
  constructor(root, ctx) {
    this.root = root;
    this.ctx = ctx;
    this.history = new BlockHistory(ctx.log);
    this.controls = new AttentionControls(ctx, (mode) => this.#setMode(mode));
    this.sum = new Arithmetic();
    this.scores = new Scores(ctx);
    this.canvasBox = h('div', { class: 'lens-canvas', role: 'group', 'aria-label': texts.attention.label });
    this.stack = new CanvasStack(this.canvasBox, ['rows', 'motion']);
    this.cursor = h('div', { class: 'lens-cursor', role: 'slider', tabindex: 0, 'aria-label': texts.attention.cursor, 'aria-valuemin': 0, 'aria-valuemax': 0, 'aria-valuenow': 0 });
    this.empty = h('div', { class: 'column lens-empty', hidden: true });
    this.emptyKey = '';
    this.table = h('table', {});
    this.canvasBox.append(this.cursor, this.empty);
    root.append(this.controls.element, this.canvasBox, this.sum.element, h('div', { class: 'visually-hidden' }, this.table));
    this.frame = new AttentionFrame(this.stack, ctx, this.history);
    this.triangle = new TriangleView(ctx, new Bitmap());
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

  /** @param {'row'|'triangle'} mode */
  #setMode(mode) {
    this.mode = mode;
    this.pointed = null;
    this.ctx.ui.changes.emit('ui');
  }

  /** @param {Scene} scene */
  update(scene) {
    const { ctx } = this;
    if (!ctx.log.header) return;
    this.stack.resize(this.size.width, this.size.height);
    const space = attentionSpace(this.stack.width, this.stack.height, ctx.palette);
    this.picture = cachePicture(scene, ctx.log, ctx.ui, { x: space.left, width: space.columnsWidth, maxPitch: Math.max(44, ctx.palette.px('text-xs') * 3.8) });
    this.frame.reset(this.picture, space);
    this.controls.update(this.picture, this.mode);
    this.#emptyState();
    this.#say();
    const now = performance.now();
    if (!ctx.timeline.moving || now - this.tableAt > TABLE_MS) {
      this.tableAt = now;
      this.#tell();
    }
  }

  /** @param {number} progress */
  draw(progress) {
    const { picture, frame, stack } = this;
    if (!picture || stack.width === 0 || !this.empty.hidden) {
      stack.clear('rows');
      stack.clear('motion');
      frame.blank();
      return;
    }
    if (this.mode === 'triangle') {
      stack.clear('motion');
      frame.blank();
      this.triangle.draw(stack.clear('rows'), picture, stack.width, stack.height);
    } else frame.draw(progress, this.pointed);
  }

  /** Nothing to show: what would fill it, and the button that does. */
  #emptyState() {
    const { ctx, picture, empty } = this;
    const t = texts.attention;
    const request = picture?.request ?? null;
    const step = picture?.attentionAfter ?? 0;
    const state = !request ? 'none' : request.state === 'finished' && !picture?.chunk ? 'over' : step === 0 ? 'waiting'
      : this.mode === 'triangle' && ctx.log.kindAt(step) === 'decode' ? `decode/${step}` : '';
    if (state === this.emptyKey) return;
    this.emptyKey = state;
    empty.hidden = state === '';
    if (state === '') return;
    const button = (/** @type {string} */ text, /** @type {() => void} */ click) => h('button', { type: 'button', class: 'primary', on: { click } }, text);
    const span = request ? ctx.log.spanOf(request.id) : null;
    if (!request) {
      replace(empty, h('p', { class: 'lens-empty-title' }, t.empty), h('p', {}, t.emptyLong), button(t.emptyAction, () => ctx.ui.set({ drawerOpen: true })));
    } else if (state === 'over' && span) {
      replace(empty, h('p', {}, fill(t.over, { letter: request.letter })), button(t.toLast, () => ctx.timeline.seek(span.lastStep - 1, 0.999)));
    } else if (state === 'waiting') {
      replace(empty, h('p', {}, t.waiting), ctx.timeline.atHead ? null : button(t.play, () => ctx.timeline.stepForward()));
    } else if (span) {
      const prefill = span.firstTokenStep || span.firstStep;
      replace(empty, h('p', {}, fill(t.triangleNone, { step })), button(fill(t.triangleGo, { step: prefill }), () => ctx.timeline.seek(prefill)));
    }
  }

  /** The line below: arithmetic of the pointed cell, else a note. */
  #say() {
    const { picture, pointed, ctx } = this;
    const t = texts.attention;
    const geometry = ctx.log.header?.model.layers[ctx.ui.layer];
    if (this.mode === 'triangle') return this.sum.say(this.triangle.pointedText(picture) || t.scale);
    if (!picture?.request || !this.empty.hidden) return this.sum.say('');
    if (pointed) return this.scores.show(this.sum, picture, pointed, this.frame);
    const bias = this.frame.sinkShare(ctx.ui.head);
    if (bias !== null) return this.sum.say(fill(t.sinkBias, { percent: percent(bias) }));
    const mean = this.frame.rowOf(null);
    const sink = mean && mean.bin === 1 && !ctx.ui.hideSink ? mean.weights[0] : 0;
    if (sink > SINK_SHARE) return this.sum.say(t.sinkNote);
    if (geometry?.cache === 'none') return this.sum.say(t.noneNote);
    if (geometry && geometry.window !== null) return this.sum.say(fill(t.windowNote, { window: geometry.window }));
    return this.sum.say(t.hint);
  }

  /** The same picture as a table, and the value of the cursor. */
  #tell() {
    const { ctx, picture, frame } = this;
    const t = texts.attention.table;
    const rows = picture?.request ? frame.heads().map((head) => ({ head, row: frame.rowOf(head) })) : [];
    const { request } = picture ?? { request: null };
    replace(this.table, rows.length > 0 && [
      h('caption', {}, fill(t.caption, { layer: ctx.ui.layer })),
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, t.head), h('th', { scope: 'col' }, t.token), h('th', { scope: 'col' }, t.share))),
      h('tbody', {}, rows.map(({ head, row }) => {
        const top = row ? largest(row, 1)[0] : undefined;
        return h('tr', {}, h('th', { scope: 'row' }, head === null ? texts.attention.mean : fill(texts.attention.query, { head })),
          h('td', {}, top ? `${top.from} ${quoted(request?.pieces[top.from])}` : ''), h('td', {}, top ? percent(top.weight) : ''));
      })),
    ]);
    this.#cursorValue();
  }

  #cursorValue() {
    const { picture, cursor, ctx, frame } = this;
    const row = picture?.request ? frame.rowOf(ctx.ui.head) : null;
    const last = row ? Math.max(0, row.numTokens - 1) : 0;
    this.cursorPosition = Math.min(this.cursorPosition, last);
    cursor.setAttribute('aria-valuemax', String(last));
    cursor.setAttribute('aria-valuenow', String(this.cursorPosition));
    const head = ctx.ui.head === null ? texts.attention.mean : fill(texts.attention.query, { head: ctx.ui.head });
    const weight = row ? frame.weightAt(ctx.ui.head, this.cursorPosition) : null;
    cursor.setAttribute('aria-valuetext', fill(texts.attention.cursorValue, {
      position: this.cursorPosition, token: quoted(picture?.request?.pieces[this.cursorPosition]), head, percent: weight === null ? texts.attention.missing : percent(weight),
    }));
  }

  /** @param {Scene} scene @returns {string} */
  describe(scene) {
    const { picture, ctx, frame } = this;
    if (!picture || picture.scene.after !== scene.after) return '';
    this.#tell();
    this.#say();
    const t = texts.attention;
    const row = picture.request ? frame.rowOf(null) : null;
    if (!row || !picture.request) return fill(t.describeNone, { layer: ctx.ui.layer });
    const { request } = picture;
    const position = row.numTokens - 1;
    const list = largest(row, 5).map(({ from, weight }) => `${percent(weight)} ${quoted(request.pieces[from])}`).join(', ');
    return fill(t.describe, { layer: ctx.ui.layer, position, token: quoted(request.pieces[position]), n: frame.heads().length - 1, list });
  }

  /** @param {MouseEvent} event @returns {{x: number, y: number}} */
  #at(event) {
    const box = this.canvasBox.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  /** @param {PointerEvent} event */
  #point(event) {
    const { picture, ctx, frame } = this;
    const { x, y } = this.#at(event);
    if (!picture?.request || !this.empty.hidden) return undefined;
    if (this.mode === 'triangle') {
      if (this.triangle.point(x, y)) ctx.ui.changes.emit('ui');
      return undefined;
    }
    const row = headAt(frame.rows, y);
    const c = frame.edges?.columnAt(x) ?? -1;
    const position = c >= 0 && frame.edges ? frame.edges.from[c] : -1;
    const read = row && position >= 0 && position < frame.numRead;
    const before = this.pointed;
    this.pointed = read ? { head: row.head, position } : null;
    this.canvasBox.classList.toggle('pointing', row !== null);
    if (read) ctx.ui.hover({ kind: 'entry', request: picture.request.id, position, layer: ctx.ui.layer });
    else ctx.ui.hover(row && row.head !== null && x < frame.left ? { kind: 'head', layer: ctx.ui.layer, head: row.head } : null);
    if (before?.head === this.pointed?.head && before?.position === this.pointed?.position) return undefined;
    ctx.ui.changes.emit('ui');
    return undefined;
  }

  #leave() {
    this.pointed = null;
    this.triangle.point(-1, -1);
    this.ctx.ui.hover(null);
    this.#say();
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const { ctx, frame, picture } = this;
    const { x, y } = this.#at(event);
    if (!picture?.request || this.mode === 'triangle' || !this.empty.hidden) return;
    const row = headAt(frame.rows, y);
    if (!row) return;
    const c = frame.edges?.columnAt(x) ?? -1;
    if (x >= frame.left && c >= 0 && frame.edges && frame.edges.from[c] < frame.numRead) {
      ctx.ui.set({ head: row.head });
      ctx.ui.pin({ kind: 'entry', request: picture.request.id, position: frame.edges.from[c], layer: ctx.ui.layer });
    } else if (row.head === null || row.head === ctx.ui.head) {
      ctx.ui.set({ head: null });
      ctx.ui.clear();
    } else ctx.ui.pin({ kind: 'head', layer: ctx.ui.layer, head: row.head });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const { picture, ctx } = this;
    if (!picture?.request) return;
    /** @type {Record<string, [number, number]>} */
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-1e9, 0], End: [1e9, 0], PageUp: [-16, 0], PageDown: [16, 0] };
    if (event.key in moves) this.#moveCursor(...moves[event.key]);
    else if (event.key === 'Enter') ctx.ui.pin({ kind: 'entry', request: picture.request.id, position: this.cursorPosition, layer: ctx.ui.layer });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {number} columns @param {number} heads */
  #moveCursor(columns, heads) {
    const { ctx, frame, picture } = this;
    if (!picture?.request) return;
    this.cursorPosition = Math.max(0, Math.min(Math.max(0, frame.numRead - 1), this.cursorPosition + columns));
    const order = frame.heads();
    const at = Math.max(0, Math.min(order.length - 1, order.indexOf(ctx.ui.head) + heads));
    if (heads !== 0) ctx.ui.set({ head: order[at] });
    this.pointed = { head: ctx.ui.head, position: this.cursorPosition };
    ctx.ui.hover({ kind: 'entry', request: picture.request.id, position: this.cursorPosition, layer: ctx.ui.layer });
    this.#cursorValue();
    this.#say();
  }

  destroy() {
    this.size.disconnect();
    this.root.replaceChildren();
  }
}
