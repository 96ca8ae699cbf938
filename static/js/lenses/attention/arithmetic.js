/** The line below the attention lens: the arithmetic of one weight with this model's numbers, or a note on the picture. */
import { h, replace } from '../../ui/dom.js';

/** One figure with its name. @typedef {{name: string, value: string, strong?: boolean}} Term */

export class Arithmetic {
  constructor() {
    this.element = h('div', { class: 'cluster note lens-sum', role: 'status', 'aria-live': 'off' });
    this.key = '';
  }

  /** @param {string} text */
  say(text) {
    if (this.key === text) return;
    this.key = text;
    replace(this.element, h('p', { class: 'lens-sum-note' }, text));
  }

  /** @param {string} lead @param {readonly Term[]} terms @param {string} note */
  show(lead, terms, note) {
    const key = JSON.stringify([lead, terms, note]);
    if (this.key === key) return;
    this.key = key;
    replace(
      this.element,
      h('p', { class: 'lens-sum-lead' }, lead),
      h(
        'div',
        { class: 'cluster lens-sum-terms' },
        terms
          .map((term, index) => [
            index > 0 && h('span', { class: 'lens-sum-arrow', 'aria-hidden': 'true' }, '→'),
            h(
              'span',
              { class: term.strong ? 'lens-sum-term lens-sum-strong' : 'lens-sum-term' },
              h('span', { class: 'lens-sum-name' }, term.name),
              h('span', { class: 'lens-sum-value' }, term.value),
            ),
          ])
          .flat(),
      ),
      note !== '' && h('p', { class: 'lens-sum-note' }, note),
    );
  }
}
