/**
 * The text of each lane, token below token: one column per position, one row per lane. The visible part is drawn on a
 * canvas; the positions of columns are kept and only grow.
 */
import { EXACT_LIMIT } from '../../core/lane-figures.js';
import { CanvasStack, SizeWatch, textWidth, useFont } from '../../ui/canvas.js';
import { h, icon, replace, setText } from '../../ui/dom.js';
import { fill } from '../../ui/format.js';
import { Tip } from '../../ui/tip.js';
import { cursorKeys } from '../shared/lens-shell.js';
import { texts } from '../shared/texts.js';
import { laneMark } from './lane-mark.js';
import { drawCell, drawFlag, drawPointer, drawRing, hasLead, LEAD_EM, tapeText } from './tape-cells.js';
import { cellText } from './text.js';
/** @import { Ctx, Piece } from '../../core/types.d.ts' */
/** @import { Lane, Lanes } from './model.js' */

const t = texts.compare.tape;
const MAX_EM = 9;
const FOLLOW_MS = 120;
const UNEQUAL = 'M2 4.5h12v2H2zM2 9.5h12v2H2zM9.6 1l1.8.7L6.4 15l-1.8-.7z';
/** Extra width of a column: padding, and the gap to the next one. */
const COLUMN_PAD = 1.25;
/** Space below a token for the flag, and above it, in a narrow box, for the lane. */
const FLAG_LINE = 1.4;
const PLAIN_LINE = 0.5;
const LABEL_LINE = 1.6;
/** Part of the box to the left of a shown first difference. */
const SHOWN_AT = 0.25;
/** Space for the text at a first difference. */
const FLAG_EM = 7.4;

export class CompareTape {
  /** Left edge of each column, and the right edge of the last. */
  edges = [0];
  /** What the columns were built from. */
  columnsOf = '';
  /** @type {Lanes|null} */
  lanes = null;
  cursor = { lane: 0, index: 0 };
  focused = false;
  atEnd = true;
  stale = true;
  /** Top of each lane's row, and the bottom of the last. */
  tops = [0];
  labelKey = '';
  /** Width of the columns to the left of the box. */
  left = 0;
  timer = 0;

  /** @param {Ctx} ctx */
  constructor(ctx) {
    this.ctx = ctx;
    this.labels = h('div', { class: 'compare-labels' });
    this.sticky = h('div', { class: 'compare-sticky' });
    this.spacer = h('div', { class: 'compare-spacer' });
    this.scroll = h('div', { class: 'compare-tape-scroll' }, this.sticky, this.spacer);
    this.option = h('div', { class: 'visually-hidden', role: 'option', id: 'compare-cell', 'aria-selected': 'true' });
    this.box = h(
      'div',
      {
        class: 'lens-cursor compare-cursor',
        role: 'listbox',
        tabindex: 0,
        'aria-label': t.cursor,
        'aria-activedescendant': 'compare-cell',
      },
      this.option,
    );
    this.newest = h(
      'button',
      {
        type: 'button',
        class: 'small-button compare-newest',
        hidden: true,
        on: {
          click: () => {
            this.#toEnd();
            this.#dirty();
          },
        },
      },
      t.newest,
    );
    this.note = h(
      'p',
      { class: 'fine-note compare-note' },
      t.note[0],
      ' ',
      icon(UNEQUAL, 'icon unequal'),
      h('span', { class: 'visually-hidden' }, t.unequal),
      ' ',
      t.note[1],
    );
    this.frame = h(
      'div',
      { class: 'compare-tape-frame', role: 'group', 'aria-label': t.label },
      this.labels,
      this.scroll,
      this.box,
      this.newest,
    );
    this.exact = h('p', { class: 'fine-note compare-note', hidden: true }, fill(t.exactNote, { limit: EXACT_LIMIT }));
    this.root = h('div', { class: 'compare-tape' }, this.frame, this.note, this.exact);
    this.stack = new CanvasStack(this.sticky, ['tape']);
    this.tip = new Tip(this.frame);
    this.size = new SizeWatch(this.scroll, () => {
      if (this.atEnd && this.lanes) this.#toEnd();
      this.#dirty();
    });
    this.#listen();
  }

  #listen() {
    const { scroll, box } = this;
    scroll.addEventListener('scroll', () => {
      if (this.timer !== 0 || Math.abs(scroll.scrollLeft - this.left) < 1) return;
      this.left = scroll.scrollLeft;
      this.atEnd = this.left >= this.#mostLeft - 4;
      this.#dirty();
    });
    scroll.addEventListener('pointermove', (event) => {
      const hit = this.#hit(event);
      this.tip.show(event, hit && this.lanes ? cellText(this.lanes.lanes[hit.lane], hit.index, this.lanes) : '');
      const { request } = this.lanes ?? {};
      this.ctx.ui.hover(
        hit && request ? { kind: 'token', request: request.id, position: request.promptLength + hit.index } : null,
      );
    });
    scroll.addEventListener('pointerleave', () => {
      this.tip.hide();
      this.ctx.ui.hover(null);
    });
    scroll.addEventListener('click', (event) => {
      const hit = this.#hit(event);
      const { request } = this.lanes ?? {};
      if (hit && request)
        this.ctx.ui.pin({ kind: 'token', request: request.id, position: request.promptLength + hit.index });
    });
    cursorKeys(box, { move: (columns, rows) => this.#move(rows, columns) });
    for (const type of ['focus', 'blur'])
      box.addEventListener(type, () => {
        this.focused = type === 'focus';
        this.#move(0, 0);
      });
  }

  #dirty() {
    this.stale = true;
    this.ctx.ui.changes.emit('ui');
  }

  /** @param {number} lane @param {number} index */
  show(lane, index) {
    this.cursor = { lane, index };
    const most = this.#mostLeft;
    this.#scrollTo(Math.max(0, Math.min(most, this.edges[index] - this.size.width * SHOWN_AT)));
    this.atEnd = false;
    this.#follow();
    this.#tell();
    this.#dirty();
    this.box.focus({ preventScroll: true });
  }

  #toEnd() {
    this.#scrollTo(this.#mostLeft);
  }

  get #mostLeft() {
    return Math.max(0, this.edges[this.lanes?.count ?? 0] + 2 - this.size.width);
  }

  /**
   * Drawn at once. The box itself follows at the next layout of the page, because measuring it sooner would cause a
   * second one.
   * @param {number} left
   */
  #scrollTo(left) {
    this.left = left;
    this.atEnd = left >= this.#mostLeft - 4;
    if (this.timer === 0) this.timer = setTimeout(() => this.#follow(), FOLLOW_MS);
  }

  #follow() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.scroll.scrollLeft = this.left;
  }

  /** @param {Lanes} lanes @param {number} width */
  update(lanes, width) {
    if (this.timer !== 0) this.#follow();
    this.lanes = lanes;
    this.stale = true;
    const { palette } = this.ctx;
    const em = palette.px('text-m');
    const small = palette.px('text-xs');
    this.wide = width >= 52 * small;
    const line = Math.round(em * 1.9);
    this.space = {
      em,
      small,
      line,
      axis: Math.round(small * 1.6),
      labelHeight: this.wide ? 0 : Math.round(small * LABEL_LINE),
    };
    this.tops = [this.space.axis];
    for (const lane of lanes.lanes) {
      const below = canDiffer(lane) ? FLAG_LINE : this.wide ? PLAIN_LINE : 0;
      this.tops.push(Math.round(this.tops[lane.index] + this.space.labelHeight + line + small * below));
    }
    for (const [name, value] of Object.entries({
      '--tape-height': this.tops[lanes.lanes.length],
      '--tape-line': this.wide ? line : this.space.labelHeight,
      '--tape-axis': this.space.axis,
    }))
      this.frame.style.setProperty(name, `${value}px`);
    this.frame.classList.toggle('compare-tape-wide', this.wide);
    this.#labelLanes();
    this.#measure();
    this.#tell();
  }

  #labelLanes() {
    const { lanes } = /** @type {Lanes} */ (this.lanes);
    const key = JSON.stringify([this.tops, lanes.map((lane) => lane.header.spec)]);
    if (key === this.labelKey) return;
    this.labelKey = key;
    this.exact.hidden = !lanes.some((lane) => lane.index > 0 && lane.header.exact);
    replace(
      this.labels,
      lanes.map((lane) =>
        h(
          'div',
          { class: 'compare-label', style: { '--tape-row': `${this.tops[lane.index + 1] - this.tops[lane.index]}px` } },
          h(
            'div',
            { class: 'clip compare-label-name', title: `${lane.title}: ${lane.header.about}` },
            laneMark(lane.index),
            h('code', {}, lane.header.spec),
          ),
        ),
      ),
    );
  }

  /** Columns as wide as their widest token; known ones don't change. */
  #measure() {
    const { lanes, key, count } = /** @type {Lanes} */ (this.lanes);
    const context = this.stack.context('tape');
    useFont(context, this.ctx.palette.font('text-m', 'mono'));
    const columnsOf = `${this.ctx.log.logId}/${key}/${this.ctx.palette.version}`;
    if (columnsOf !== this.columnsOf) {
      this.columnsOf = columnsOf;
      this.edges = [0];
    }
    const { em, small } = this.#space;
    for (let i = this.edges.length - 1; i < count; i++) {
      let widest = em * 1.6;
      for (const lane of lanes) {
        const piece = this.#piece(lane, i);
        if (piece)
          widest = Math.max(
            widest,
            Math.min(MAX_EM * em, textWidth(context, tapeText(piece))) + (hasLead(piece) ? LEAD_EM * em : 0),
          );
        if (i === lane.figures?.first_divergence) widest = Math.max(widest, FLAG_EM * small);
      }
      this.edges.push(this.edges[i] + Math.ceil(widest + em * COLUMN_PAD));
    }
    this.spacer.style.width = `${this.edges[count] + 2}px`;
    if (this.atEnd || this.left >= this.#mostLeft) this.#toEnd();
  }

  get #space() {
    return this.space ?? { em: 14, small: 12, line: 27, axis: 19, labelHeight: 0 };
  }

  /** The content of a cell: the reference's token or, after the first difference, the lane's own text.
   * @param {Lane} lane @param {number} i @returns {Piece|null} */
  #piece(lane, i) {
    const first = lane.figures?.first_divergence ?? null;
    if (lane.index > 0 && first !== null && i >= first) return lane.measured[i]?.free_piece ?? null;
    const { request } = /** @type {Lanes} */ (this.lanes);
    return request?.pieces[request.promptLength + i] ?? null;
  }

  draw() {
    const { lanes, left, stack, size } = this;
    if (!lanes || !this.stale || size.width === 0) return;
    this.stale = false;
    const { palette, ui } = this.ctx;
    const { em, small, line, axis, labelHeight } = this.#space;
    const height = this.tops[lanes.lanes.length];
    stack.resize(size.width, height);
    this.newest.hidden = this.atEnd;
    const context = stack.clear('tape');
    const shown = ui.shown;
    const selected =
      shown?.kind === 'token' && lanes.request && shown.request === lanes.request.id
        ? shown.position - lanes.request.promptLength
        : -1;
    const first = this.#columnAt(left);
    context.textBaseline = 'middle';
    context.textAlign = 'left';
    /** Changing fonts is slow, so texts in the same font are drawn together.
     * @param {(index: number, x: number, width: number) => void} paint */
    const each = (paint) => {
      for (let index = first; index < lanes.count && this.edges[index] < left + size.width; index++) {
        paint(index, this.edges[index] - left, this.edges[index + 1] - this.edges[index] - em * 0.25);
      }
    };
    const top = (/** @type {number} */ row) => this.tops[row] + labelHeight;
    useFont(context, palette.font('text-xs'));
    context.fillStyle = palette.css('ink-3');
    each((index, x) => {
      if (!ui.projector || index % 10 === 0) context.fillText(String(index), x + em * 0.35, axis / 2);
    });
    each((index, x, width) =>
      lanes.lanes.forEach((lane, row) =>
        drawCell(context, palette, lane, this.#piece(lane, index), index, x, top(row), width, line),
      ),
    );
    each((index, x) =>
      lanes.lanes.forEach((lane, row) =>
        drawFlag(context, palette, lane, index, x + line * 0.18, top(row) + line + small * 0.65, small),
      ),
    );
    lanes.lanes.forEach((lane, row) => {
      const at = lane.index > 0 ? (lane.figures?.first_divergence ?? null) : null;
      if (at !== null)
        drawPointer(context, palette, at, this.edges[at] - left, size.width, top(row) + line + small * 0.65);
    });
    each((index, x, width) => {
      if (index === selected) drawRing(context, palette, x, 1, width, height - 2);
      if (this.focused && index === this.cursor.index)
        drawRing(context, palette, x, top(this.cursor.lane), width, line);
    });
  }

  /** @param {number} x from the first token on @returns {number} */
  #columnAt(x) {
    let low = 0;
    let high = this.edges.length - 2;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.edges[middle] <= x) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** @param {MouseEvent} event @returns {{lane: number, index: number}|null} */
  #hit(event) {
    const { lanes, scroll } = this;
    if (!lanes) return null;
    const area = scroll.getBoundingClientRect();
    const x = event.clientX - area.left + this.left;
    const y = event.clientY - area.top;
    const lane = this.tops.findLastIndex((top) => top <= y);
    return lane < 0 || lane >= lanes.lanes.length || x >= this.edges[lanes.count]
      ? null
      : { lane, index: this.#columnAt(x) };
  }

  /** @param {number} rows @param {number} columns */
  #move(rows, columns) {
    const { lanes, cursor } = this;
    if (!lanes) return;
    const limit = (/** @type {number} */ value, /** @type {number} */ most) => Math.max(0, Math.min(most, value));
    this.cursor = {
      lane: limit(cursor.lane + rows, lanes.lanes.length - 1),
      index: limit(cursor.index + columns, lanes.count - 1),
    };
    const { index } = this.cursor;
    if (columns !== 0 && this.edges[index] < this.left) this.#scrollTo(this.edges[index]);
    else if (columns !== 0 && this.edges[index + 1] > this.left + this.size.width)
      this.#scrollTo(this.edges[index + 1] - this.size.width);
    this.#tell();
    this.#dirty();
  }

  #tell() {
    const { lanes, cursor } = this;
    if (lanes) setText(this.option, cellText(lanes.lanes[cursor.lane], Math.min(cursor.index, lanes.count - 1), lanes));
  }

  destroy() {
    clearTimeout(this.timer);
    this.size.disconnect();
    this.tip.remove();
    this.stack.remove();
  }
}

/** Whether there are, or may be, flags below it. @param {Lane} lane @returns {boolean} */
function canDiffer({ index, header, figures }) {
  return index > 0 && (!header.exact || (figures?.num_differing ?? 0) > 0);
}
