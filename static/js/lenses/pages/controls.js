/** The controls above the pages lens: the legend, the pool's layout, and what contiguous allocation reserves. */
import { h, setAttribute } from '../../ui/dom.js';
import { texts } from '../shared/texts.js';
/** @import { Ui } from '../../ui/store.js' */

const ARRANGEMENTS = /** @type {const} */ (['address', 'prefix']);

export class PagesControls {
  /** @param {Ui} ui */
  constructor(ui) {
    this.ui = ui;
    const t = texts.pages;
    this.arrangements = ARRANGEMENTS.map((pagesBy) =>
      h(
        'button',
        {
          type: 'button',
          class: 'lens-choice',
          'aria-pressed': 'false',
          title: pagesBy === 'prefix' ? t.arrange.prefixHint : null,
          on: { click: () => ui.set({ pagesBy }) },
        },
        t.arrange[pagesBy],
      ),
    );
    this.full = h(
      'button',
      {
        type: 'button',
        class: 'lens-choice lens-toggle',
        'aria-pressed': 'false',
        title: t.fullHint,
        on: { click: () => ui.set({ slabFull: !ui.slabFull }) },
      },
      t.full,
    );
    const key = (/** @type {'own'|'shared'|'cached'|'blank'} */ kind) =>
      h('span', { class: 'lens-key' }, h('span', { class: `swatch swatch-page-${kind}` }), t.legend[kind]);
    this.element = h(
      'div',
      { class: 'cluster fine-note lens-bar lens-bar-pages' },
      h(
        'div',
        { class: 'cluster lens-legend', role: 'group', 'aria-label': t.legend.label },
        key('own'),
        key('shared'),
        key('cached'),
        key('blank'),
      ),
      h(
        'div',
        { class: 'cluster lens-bar-end' },
        h('div', { class: 'lens-choices', role: 'group', 'aria-label': t.arrange.label }, ...this.arrangements),
        this.full,
      ),
    );
  }

  update() {
    ARRANGEMENTS.forEach((pagesBy, i) =>
      setAttribute(this.arrangements[i], 'aria-pressed', String(this.ui.pagesBy === pagesBy)),
    );
    setAttribute(this.full, 'aria-pressed', String(this.ui.slabFull));
  }
}
