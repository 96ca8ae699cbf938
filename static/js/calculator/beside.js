/** Up to four models side by side, one per row. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { h, replace } from '../ui/dom.js';
import { binary, count } from '../ui/format.js';
import { headOf } from '../ui/table.js';
import { mark } from './mark.js';
import { both, dollars, exact, rate } from './units.js';
/** @import { State } from './state.js' */
/** @import { Reply } from './types.d.ts' */

export class Beside {
  /** @param {State} state @param {(index: number) => string} nameOf */
  constructor(state, nameOf) {
    this.state = state;
    this.nameOf = nameOf;
    this.body = h('tbody');
    this.element = h(
      'div',
      { class: 'calc-beside calc-scroll', tabindex: '0', role: 'region', 'aria-label': t.beside.title, hidden: true },
      h('table', { class: 'figures-table calc-table' }, headOf(t.beside.columns), this.body),
    );
  }

  /** @param {Reply[]} replies */
  update(replies) {
    this.element.hidden = this.state.models.length < 2;
    replace(
      this.body,
      replies.map((reply, index) => this.#row(reply, index)),
    );
  }

  /** @param {Reply} reply @param {number} index */
  #row({ answer, fault }, index) {
    const head = h('th', { scope: 'row' }, mark(index), ' ', this.nameOf(index));
    const model = answer?.models[0];
    if (!model || fault)
      return h(
        'tr',
        {},
        head,
        h('td', { colspan: t.beside.columns.length - 1, class: 'calc-fault' }, fault?.message ?? ''),
      );
    const found = model.capacity;
    const cells = [
      [both(model.total_bytes), exact(model.total_bytes)],
      [binary(model.bytes_per_token), exact(model.bytes_per_token)],
      [found ? count(found.max_sequences) : '–'],
      [!found ? '–' : found.longest_context === null ? t.head.unbounded : count(found.longest_context)],
      [found?.tokens_per_s ? rate(found.tokens_per_s) : '–'],
      [found?.cost_per_million_tokens ? dollars(found.cost_per_million_tokens) : '–'],
    ];
    return h(
      'tr',
      { 'aria-current': index === this.state.chosen ? 'true' : null },
      head,
      cells.map(([text, full]) => h('td', { title: full }, text)),
    );
  }
}
