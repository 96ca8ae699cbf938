/** The controls above the cache lens: cell contents, hide the sink, and the legend of the view. */
import { h, replace, setAttribute } from '../../ui/dom.js';
import { VIEWS } from '../../ui/store.js';
import { texts } from '../shared/texts.js';
/** @import { Ui } from '../../ui/store.js' */
/** @import { CacheView } from '../../core/types.d.ts' */

/** A scale of the legend. @typedef {{title: string, low: string, high: string}} Scale */

export class CacheControls {
  /** @param {Ui} ui */
  constructor(ui) {
    this.ui = ui;
    /** @type {Map<CacheView, HTMLButtonElement>} */
    this.views = new Map(
      VIEWS.map((view) => [
        view,
        h(
          'button',
          {
            type: 'button',
            class: 'lens-choice',
            'aria-pressed': 'false',
            on: { click: () => ui.set({ view }) },
          },
          texts.cache.views[view],
        ),
      ]),
    );
    this.sink = sinkToggle(ui);
    this.legend = h('div', { class: 'cluster lens-legend' });
    this.legendKey = '';
    this.element = h(
      'div',
      { class: 'cluster fine-note lens-bar' },
      this.legend,
      h(
        'div',
        { class: 'cluster lens-bar-end' },
        h(
          'div',
          { class: 'lens-choices', role: 'group', 'aria-label': texts.cache.views.label },
          ...this.views.values(),
        ),
        this.sink,
      ),
    );
  }

  update() {
    for (const [view, button] of this.views) setAttribute(button, 'aria-pressed', String(this.ui.view === view));
    setAttribute(this.sink, 'aria-pressed', String(this.ui.hideSink));
  }

  /** Swatches of the state view. @param {boolean} latent @param {boolean} windows @param {boolean} kept @param {boolean} gone */
  showStates(latent, windows, kept, gone) {
    const key = `state/${latent}/${windows}/${kept}/${gone}`;
    if (key === this.legendKey) return;
    this.legendKey = key;
    const t = texts.cache.legend.state;
    const swatch = (/** @type {string} */ kind, /** @type {string} */ text) =>
      h('span', { class: 'lens-key' }, h('span', { class: `swatch swatch-${kind}` }), text);
    replace(
      this.legend,
      swatch(latent ? 'stored-latent' : 'stored', latent ? t.storedLatent : t.stored),
      swatch(latent ? 'fresh-latent' : 'fresh', t.fresh),
      swatch('blank', t.blank),
      windows && swatch('dead', t.dead),
      kept && swatch('kept', t.kept),
      gone && swatch('gone', t.gone),
    );
  }

  /** Scales with real numbers. @param {readonly Scale[]} scales @param {string} note */
  showScales(scales, note) {
    const key = JSON.stringify([scales, note]);
    if (key === this.legendKey) return;
    this.legendKey = key;
    replace(
      this.legend,
      ...scales.map((scale) =>
        h(
          'span',
          { class: 'lens-key' },
          `${scale.title} `,
          h('span', { class: 'lens-number' }, scale.low),
          h('span', { class: 'ramp' }),
          h('span', { class: 'lens-number' }, scale.high),
        ),
      ),
      note !== '' && h('span', { class: 'lens-note' }, note),
    );
  }
}

/** @param {Ui} ui @returns {HTMLButtonElement} */
export function sinkToggle(ui) {
  return h(
    'button',
    {
      type: 'button',
      class: 'lens-choice lens-toggle',
      'aria-pressed': 'false',
      title: texts.cache.sinkHint,
      on: { click: () => ui.set({ hideSink: !ui.hideSink }) },
    },
    texts.cache.sink,
  );
}
