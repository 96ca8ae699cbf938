/** A line of text next to the pointer. Esc dismisses it; the inspector has the same text. */
import { h, setText } from './dom.js';

export class Tip {
  /** @param {HTMLElement} box positioned element that it stays inside */
  constructor(box) {
    this.box = box;
    this.element = h('div', { class: 'panel lens-tip', 'aria-hidden': 'true', hidden: true });
    box.append(this.element);
    this.onKey = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === 'Escape') this.hide();
    };
    document.addEventListener('keydown', this.onKey, true);
  }

  /** @param {PointerEvent} event @param {string} text */
  show(event, text) {
    const { element, box } = this;
    setText(element, text);
    element.hidden = text === '';
    if (text === '') return;
    const area = box.getBoundingClientRect();
    const [x, y] = [event.clientX - area.left, event.clientY - area.top];
    const { offsetWidth, offsetHeight } = element;
    const left = Math.min(Math.max(4, x + 14), Math.max(4, area.width - offsetWidth - 4));
    const above = y - offsetHeight - 16;
    element.style.transform = `translate(${Math.round(left)}px, ${Math.round(above > 0 ? above : y + 18)}px)`;
  }

  hide() {
    this.element.hidden = true;
  }

  remove() {
    document.removeEventListener('keydown', this.onKey, true);
    this.element.remove();
  }
}
