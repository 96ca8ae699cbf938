/** One small panel next to the thing it explains. Esc, a click elsewhere, or its close button closes it. */
import { h, icon, PATHS, replace } from './dom.js';
/** @import { Child } from './dom.js' */

const MARGIN_PX = 8;

export class Popover {
  /** @param {HTMLElement} root @param {string} closeLabel */
  constructor(root, closeLabel) {
    this.root = root;
    this.closeLabel = closeLabel;
    /** @type {HTMLElement|null} */
    this.anchor = null;
    document.addEventListener('pointerdown', (event) => {
      const target = /** @type {Node} */ (event.target);
      if (!root.hidden && !root.contains(target) && !this.anchor?.contains(target)) this.close();
    });
  }

  get isOpen() {
    return !this.root.hidden;
  }

  /** @param {HTMLElement} anchor @param {string} title @param {...(Child|Child[])} children */
  show(anchor, title, ...children) {
    const { root } = this;
    this.anchor = anchor;
    root.setAttribute('role', 'dialog');
    root.setAttribute('aria-label', title);
    replace(
      root,
      h(
        'div',
        { class: 'popover-head' },
        h('h2', {}, title),
        h(
          'button',
          { type: 'button', class: 'plain-button', 'aria-label': this.closeLabel, on: { click: () => this.close() } },
          icon(PATHS.cross),
        ),
      ),
      ...children,
    );
    root.hidden = false;
    this.#place(anchor);
  }

  /** @param {HTMLElement} anchor */
  #place(anchor) {
    const box = anchor.getBoundingClientRect();
    this.root.style.left = '0';
    this.root.style.top = '0';
    const { offsetWidth, offsetHeight } = this.root;
    const left = Math.min(
      Math.max(MARGIN_PX, box.left + box.width / 2 - offsetWidth / 2),
      innerWidth - offsetWidth - MARGIN_PX,
    );
    const below = box.bottom + MARGIN_PX;
    const top = below + offsetHeight < innerHeight ? below : Math.max(MARGIN_PX, box.top - offsetHeight - MARGIN_PX);
    this.root.style.left = `${left}px`;
    this.root.style.top = `${top}px`;
  }

  /** @returns {boolean} whether it was open */
  close() {
    if (this.root.hidden) return false;
    const inside = this.root.contains(document.activeElement);
    this.root.hidden = true;
    if (inside) this.anchor?.focus?.();
    this.anchor = null;
    return true;
  }
}
