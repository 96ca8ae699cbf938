/**
 * The attention lens: what each query head of one layer reads from the cache, grouped by shared KV head; for a prefill
 * step, also the triangle of all its queries.
 */
import { Bitmap } from '../../ui/canvas.js';
import { h, replace } from '../../ui/dom.js';
import { fill, percent } from '../../ui/format.js';
import { rowOf, tableParts } from '../../ui/table.js';
import { quoted } from '../../ui/text.js';
import { cachePicture } from '../cache/picture.js';
import { BlockHistory } from '../shared/block-history.js';
import { largest } from '../shared/frame-rows.js';
import { LensShell } from '../shared/lens-shell.js';
import { texts } from '../shared/texts.js';
import { Arithmetic } from './arithmetic.js';
import { AttentionControls } from './controls.js';
import { AttentionFrame } from './frame.js';
import { attentionSpace, headAt } from './layout.js';
import { Scores } from './scores.js';
import { TriangleView } from './triangle-view.js';
/** @import { Ctx, Scene } from '../../core/types.d.ts' */
/** @import { CachePicture } from '../cache/picture.js' */

/** From this mean share on, the first token is explained as a sink. */
const SINK_SHARE = 0.15;

/** @type {import('../../core/types.d.ts').CreateLens} */
export function create(root, ctx) {
  return new AttentionLens(root, ctx);
}

class AttentionLens extends LensShell {
  /** @type {CachePicture|null} */
  picture = null;
  /** @type {'row'|'triangle'} */
  mode = 'row';
  /** Cell under the pointer or the cursor. @type {{head: number|null, position: number}|null} */
  pointed = null;
  cursorPosition = 0;

  /** @param {HTMLElement} root @param {Ctx} ctx */
  constructor(root, ctx) {
    super(root, ctx, h('div', { class: 'lens-canvas', role: 'group', 'aria-label': texts.attention.label }), {
      cursor: texts.attention.cursor,
      canvases: ['rows', 'motion'],
    });
    this.history = new BlockHistory(ctx.log);
    this.controls = new AttentionControls(ctx, (mode) => this.#setMode(mode));
    this.sum = new Arithmetic();
    this.scores = new Scores(ctx);
    this.mount(this.controls.element, this.box, this.sum.element);
    this.frame = new AttentionFrame(this.stack, ctx, this.history);
    this.triangle = new TriangleView(ctx, new Bitmap());
    this.listen(this.box);
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
    this.picture = cachePicture(scene, ctx.log, ctx.ui, {
      x: space.left,
      width: space.columnsWidth,
      maxPitch: Math.max(44, ctx.palette.px('text-xs') * 3.8),
    });
    this.frame.reset(this.picture, space);
    this.controls.update(this.picture, this.mode);
    this.#emptyState();
    this.#say();
    this.tellInTime();
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

  /** The empty state: what will fill the lens, and a button for it. */
  #emptyState() {
    const { ctx, picture } = this;
    const t = texts.attention;
    const request = picture?.request ?? null;
    const step = picture?.attentionAfter ?? 0;
    const state = !request
      ? 'none'
      : request.state === 'finished' && !picture?.chunk
        ? 'over'
        : step === 0
          ? 'waiting'
          : this.mode === 'triangle' && ctx.log.kindAt(step) === 'decode'
            ? `decode/${step}`
            : '';
    this.showEmpty(state, () => {
      const span = request ? ctx.log.spanOf(request.id) : null;
      if (!request)
        return [
          h('p', { class: 'lens-empty-title' }, t.empty),
          h('p', {}, t.emptyLong),
          this.drawerButton(t.emptyAction),
        ];
      if (state === 'waiting')
        return [
          h('p', {}, t.waiting),
          ctx.timeline.atHead ? null : this.button(t.play, () => ctx.timeline.stepForward()),
        ];
      if (!span) return [];
      if (state === 'over')
        return [
          h('p', {}, fill(t.over, { letter: request.letter })),
          this.button(t.toLast, () => ctx.timeline.seek(span.lastStep - 1, 0.999)),
        ];
      const prefill = span.firstTokenStep || span.firstStep;
      return [
        h('p', {}, fill(t.triangleNone, { step })),
        this.button(fill(t.triangleGo, { step: prefill }), () => ctx.timeline.seek(prefill)),
      ];
    });
  }

  /** The line below the rows: the arithmetic of the hovered cell, else a note. */
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

  /** The same picture as a table, and the value of the cursor. @override @override */
  tell() {
    const { ctx, picture, frame } = this;
    const t = texts.attention.table;
    const rows = picture?.request ? frame.heads().map((head) => ({ head, row: frame.rowOf(head) })) : [];
    const { request } = picture ?? { request: null };
    replace(
      this.table,
      rows.length > 0 &&
        tableParts(
          fill(t.caption, { layer: ctx.ui.layer }),
          [t.head, t.token, t.share],
          rows.map(({ head, row }) => {
            const top = row ? largest(row, 1)[0] : undefined;
            return rowOf(
              head === null ? texts.attention.mean : fill(texts.attention.query, { head }),
              top ? `${top.from} ${quoted(request?.pieces[top.from])}` : '',
              top ? percent(top.weight) : '',
            );
          }),
        ),
    );
    this.#cursorValue();
  }

  #cursorValue() {
    const { picture, ctx, frame } = this;
    const row = picture?.request ? frame.rowOf(ctx.ui.head) : null;
    const last = row ? Math.max(0, row.numTokens - 1) : 0;
    this.cursorPosition = Math.min(this.cursorPosition, last);
    const head = ctx.ui.head === null ? texts.attention.mean : fill(texts.attention.query, { head: ctx.ui.head });
    const weight = row ? frame.weightAt(ctx.ui.head, this.cursorPosition) : null;
    this.slide(
      last,
      this.cursorPosition,
      fill(texts.attention.cursorValue, {
        position: this.cursorPosition,
        token: quoted(picture?.request?.pieces[this.cursorPosition]),
        head,
        percent: weight === null ? texts.attention.missing : percent(weight),
      }),
    );
  }

  /** @param {Scene} scene @returns {string} */
  describe(scene) {
    const { picture, ctx, frame } = this;
    if (!picture || picture.scene.after !== scene.after) return '';
    this.tell();
    this.#say();
    const t = texts.attention;
    const row = picture.request ? frame.rowOf(null) : null;
    if (!row || !picture.request) return fill(t.describeNone, { layer: ctx.ui.layer });
    const { request } = picture;
    const position = row.numTokens - 1;
    const list = largest(row, 5)
      .map(({ from, weight }) => `${percent(weight)} ${quoted(request.pieces[from])}`)
      .join(', ');
    return fill(t.describe, {
      layer: ctx.ui.layer,
      position,
      token: quoted(request.pieces[position]),
      n: frame.heads().length - 1,
      list,
    });
  }

  /** @override @param {PointerEvent} event */
  point(event) {
    const { picture, ctx, frame } = this;
    const { x, y } = this.at(event);
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
    this.box.classList.toggle('pointing', row !== null);
    if (read) ctx.ui.hover({ kind: 'entry', request: picture.request.id, position, layer: ctx.ui.layer });
    else
      ctx.ui.hover(
        row && row.head !== null && x < frame.left ? { kind: 'head', layer: ctx.ui.layer, head: row.head } : null,
      );
    if (before?.head === this.pointed?.head && before?.position === this.pointed?.position) return undefined;
    ctx.ui.changes.emit('ui');
    return undefined;
  }

  /** @override */
  leave() {
    this.pointed = null;
    this.triangle.point(-1, -1);
    super.leave();
    this.#say();
  }

  /** @override @param {MouseEvent} event */
  click(event) {
    const { ctx, frame, picture } = this;
    const { x, y } = this.at(event);
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

  /** @override */
  enter() {
    const { picture, ctx } = this;
    if (!picture?.request) return false;
    ctx.ui.pin({ kind: 'entry', request: picture.request.id, position: this.cursorPosition, layer: ctx.ui.layer });
  }

  /** @override @param {number} columns @param {number} rows heads */
  move(columns, rows) {
    const { ctx, frame, picture } = this;
    if (!picture?.request) return false;
    this.cursorPosition = Math.max(0, Math.min(Math.max(0, frame.numRead - 1), this.cursorPosition + columns));
    const order = frame.heads();
    const at = Math.max(0, Math.min(order.length - 1, order.indexOf(ctx.ui.head) + rows));
    if (rows !== 0) ctx.ui.set({ head: order[at] });
    this.pointed = { head: ctx.ui.head, position: this.cursorPosition };
    ctx.ui.hover({ kind: 'entry', request: picture.request.id, position: this.cursorPosition, layer: ctx.ui.layer });
    this.#cursorValue();
    this.#say();
  }
}
