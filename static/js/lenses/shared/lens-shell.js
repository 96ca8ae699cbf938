/**
 * The common parts around a lens's canvas: a measured box with the keyboard cursor, a tooltip and the empty state, and
 * the same picture as a table.
 */
import { CanvasStack, SizeWatch } from '../../ui/canvas.js';
import { h, replace } from '../../ui/dom.js';
import { Tip } from '../../ui/tip.js';
/** @import { Ctx } from '../../core/types.d.ts' */
/** @import { Child } from '../../ui/dom.js' */

/** The table for screen readers updates at most this often while the picture moves. */
const TABLE_MS = 800;
const FAR = 1e9;
const PAGE = 16;
/** Columns and rows by key. @type {Record<string, [number, number]>} */
const MOVES = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
  Home: [-FAR, 0],
  End: [FAR, 0],
  PageUp: [-PAGE, 0],
  PageDown: [PAGE, 0],
};

/**
 * The keys of a cursor. `move` gets columns and rows, or as many as there are for Home and End. It and `enter` return
 * false if there is nothing to move to or choose.
 * @param {HTMLElement} element @param {{move: (columns: number, rows: number, key: string) => boolean|void, enter?: () => boolean|void, pages?: boolean}} on `pages`: Page Up and Page Down move too
 */
export function cursorKeys(element, { move, enter, pages = true }) {
  element.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const { key } = event;
    if (
      key === 'Enter'
        ? !enter || enter() === false
        : !(key in MOVES) || (!pages && key.startsWith('Page')) || move(...MOVES[key], key) === false
    )
      return;
    event.preventDefault();
    event.stopPropagation();
  });
}

/** A lens describes itself in `tell`, and handles the pointer in `point`, `click` and `leave`, the keys in `move` and `enter`. */
export class LensShell {
  #emptyKey = '';
  #toldAt = 0;
  /** Relative to the box. @type {SizeWatch[]} */
  sizes = [];

  /** @param {HTMLElement} root @param {Ctx} ctx @param {HTMLElement} box what is measured
   * @param {{cursor: string, option?: string, sheet?: HTMLElement, canvases?: string[], pages?: boolean}} parts `cursor`: its name for readers; a list box with the option of that id, else a slider.
   * `sheet`: where canvases, cursor and tip stand, else the box; `canvases`: lowest first */
  constructor(root, ctx, box, { cursor, option, sheet = box, canvases = [], pages }) {
    this.root = root;
    this.ctx = ctx;
    this.box = box;
    this.sheet = sheet;
    this.stack = new CanvasStack(sheet, canvases);
    this.option = h('div', { class: 'visually-hidden', role: 'option', id: option, 'aria-selected': 'false' });
    const role = option
      ? { role: 'listbox', 'aria-activedescendant': option }
      : { role: 'slider', 'aria-valuemin': 0, 'aria-valuemax': 0, 'aria-valuenow': 0 };
    this.cursor = h(
      'div',
      {
        class: 'lens-cursor',
        tabindex: 0,
        'aria-label': cursor,
        ...role,
        on: { focus: () => this.move(0, 0), blur: () => this.blur() },
      },
      option && this.option,
    );
    this.empty = h('div', { class: 'column lens-empty', hidden: true });
    this.table = h('table', {});
    sheet.append(this.cursor, this.empty);
    this.tip = new Tip(sheet);
    cursorKeys(this.cursor, { move: (...by) => this.move(...by), enter: () => this.enter(), pages });
  }

  /** @param {...HTMLElement} parts of the lens from top to bottom, the box among them */
  mount(...parts) {
    this.root.append(...parts, h('div', { class: 'visually-hidden' }, this.table));
    this.sizes.push(this.watch(this.box));
  }

  get size() {
    return this.sizes[0];
  }

  /** @param {...HTMLElement} boxes where the pointer is followed */
  listen(...boxes) {
    for (const box of boxes) {
      box.addEventListener('pointermove', (event) => this.point(event));
      box.addEventListener('pointerleave', () => this.leave());
      box.addEventListener('click', (event) => this.click(event));
    }
  }

  /** @param {HTMLElement} element @returns {SizeWatch} whose changes draw the lens again */
  watch(element) {
    return new SizeWatch(element, () => this.ctx.ui.changes.emit('ui'));
  }

  /** @param {MouseEvent} event @returns {{x: number, y: number}} its place in the element that listens */
  at(event) {
    const area = /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
    return { x: event.clientX - area.left, y: event.clientY - area.top };
  }

  /** The table, at a rate that leaves time for the picture. */
  tellInTime() {
    const now = performance.now();
    if (this.ctx.timeline.moving && now - this.#toldAt <= TABLE_MS) return;
    this.#toldAt = now;
    this.tell();
  }

  /** What would fill the lens, rebuilt when `key` changes.
   * @param {string} key '': there is a picture @param {() => Child[]} build @returns {boolean} whether it changed */
  showEmpty(key, build) {
    if (key === this.#emptyKey) return false;
    this.#emptyKey = key;
    this.empty.hidden = key === '';
    if (key !== '') replace(this.empty, build());
    return true;
  }

  /** @param {string} text @param {() => void} click @param {string} [name] of the button's class */
  button(text, click, name = 'primary') {
    return h('button', { type: 'button', class: name, on: { click } }, text);
  }

  /** @param {string} text @param {'prompt'|'scenarios'} [at] @param {string} [name] of the button's class */
  drawerButton(text, at, name) {
    return this.button(text, () => this.ctx.ui.set({ drawerOpen: true, ...(at && { drawerAt: at }) }), name);
  }

  /** Position of the slider. @param {number} last @param {number} now @param {string} text */
  slide(last, now, text) {
    for (const [name, value] of Object.entries({ max: last, now, text }))
      this.cursor.setAttribute(`aria-value${name}`, String(value));
  }

  tell() {}

  /** @param {PointerEvent} event */
  point(event) {}

  /** @param {MouseEvent} event */
  click(event) {}

  /** @param {number} columns @param {number} rows @param {string} [key] @returns {boolean|void} */
  move(columns, rows, key) {}

  /** @returns {boolean|void} */
  enter() {}

  blur() {
    this.leave();
  }

  leave() {
    this.ctx.ui.hover(null);
    this.tip.hide();
  }

  destroy() {
    for (const size of this.sizes) size.disconnect();
    this.tip.remove();
    this.root.replaceChildren();
  }
}
