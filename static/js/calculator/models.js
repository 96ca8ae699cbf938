/** The models to compute: up to four, each from the list, from its config.json or from its numbers. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { h, replaceButtons, setText } from '../ui/dom.js';
import { fill } from '../ui/format.js';
import { mark } from './mark.js';
import { ConfigPanel, NumbersPanel, numbersOf } from './own.js';
import { Picker } from './picker.js';
import { billions } from './units.js';
/** @import { State } from './state.js' */
/** @import { Asked, Fault, Reply } from './types.d.ts' */
/** @typedef {'list'|'config'|'numbers'} Way */

const WAYS = /** @type {Way[]} */ (['list', 'config', 'numbers']);

/** @param {Asked} asked @returns {Way} */
function wayOf(asked) {
  return 'model' in asked ? 'list' : 'config' in asked ? 'config' : 'numbers';
}

export class ModelsPanel {
  /** @type {Way} */
  #way = 'list';
  /** @type {Asked|null} */
  #shown = null;
  /** @type {Reply[]} */
  #replies = [];

  /** @param {State} state */
  constructor(state) {
    this.state = state;
    this.tabs = h('div', { class: 'calc-tabs', role: 'group', 'aria-label': t.model.compared, hidden: true });
    this.picker = new Picker(state.choices.models, (model) => state.replace({ model }));
    this.config = new ConfigPanel((asked) => state.replace(asked));
    this.numbers = new NumbersPanel((asked) => state.replace(asked));
    this.sentence = h('p', { class: 'calc-fault', id: 'calc-model-fault', hidden: true });
    this.picker.input.setAttribute('aria-describedby', 'calc-model-fault');
    this.source = h('summary');
    this.more = h('button', { type: 'button', class: 'small-button', on: { click: () => this.#add() } }, t.model.add);
    this.ways = WAYS.map((way) =>
      h('input', {
        type: 'radio',
        name: 'way',
        value: way,
        id: `calc-way-${way}`,
        on: { change: () => this.#go(way) },
      }),
    );
    this.element = h(
      'fieldset',
      { class: 'calc-models' },
      h('legend', { class: 'calc-legend' }, t.model.label),
      this.tabs,
      h(
        'div',
        { class: 'calc-ways', role: 'radiogroup', 'aria-label': t.model.ways },
        this.ways.map((input, index) =>
          h('label', { class: 'calc-way' }, input, h('span', {}, t.model.way[WAYS[index]])),
        ),
      ),
      this.picker.element,
      this.config.element,
      this.numbers.element,
      this.sentence,
      h('details', { class: 'fine-note calc-source' }, this.source),
      this.more,
    );
  }

  /** Specifies the chosen model in another way. @param {Way} way */
  #go(way) {
    this.#way = way;
    this.#arrange();
    if (way === 'numbers' && wayOf(this.state.model) !== 'numbers')
      this.state.replace(numbersOf(this.#replies[this.state.chosen]?.answer?.models[0] ?? null));
    else if (way === 'config') this.config.text.focus();
    else if (way === 'list') this.picker.input.focus();
  }

  /** A config that was dropped or pasted anywhere. @param {File|string} given */
  take(given) {
    this.#way = 'config';
    this.#arrange();
    if (typeof given === 'string') this.config.put(given);
    else void this.config.take(given);
  }

  #add() {
    const taken = new Set(this.state.models.map((asked) => ('model' in asked ? asked.model : '')));
    const next = t.model.offered.find((id) => !taken.has(id)) ?? t.model.offered[0];
    this.state.add({ model: next });
    this.picker.input.focus();
  }

  #arrange() {
    this.ways.forEach((input) => (input.checked = input.value === this.#way));
    this.picker.element.hidden = this.#way !== 'list';
    this.config.element.hidden = this.#way !== 'config';
    this.numbers.element.hidden = this.#way !== 'numbers';
  }

  show() {
    const { model } = this.state;
    if (model !== this.#shown) this.#way = wayOf(model);
    this.#shown = model;
    this.#arrange();
    this.picker.show('model' in model ? model.model : '');
    this.config.show(model);
    this.numbers.show(model);
    this.#showTabs();
  }

  /** @param {Reply[]} replies */
  update(replies) {
    this.#replies = replies;
    this.#showTabs();
    const answer = replies[this.state.chosen]?.answer?.models[0];
    const parameters = answer?.num_parameters ? fill(t.model.parameters, { n: billions(answer.num_parameters) }) : '';
    const source = answer?.source ? fill(t.model.source, { source: answer.source, date: answer.checked ?? '' }) : '';
    setText(this.source, [parameters, source].filter(Boolean).join(' '));
    /** @type {HTMLElement} */ (this.source.parentElement).hidden = this.source.textContent === '';
  }

  /** Shows an error of the chosen model next to the input it comes from. @param {Fault|null} fault */
  fault(fault) {
    const way = this.#way === wayOf(this.state.model) ? this.#way : null;
    const message = fault?.message ?? null;
    this.config.fault(way === 'config' ? message : null);
    this.numbers.fault(way === 'numbers' ? message : null, String(fault?.details.setting ?? ''));
    this.sentence.hidden = way !== 'list' || message === null;
    setText(this.sentence, this.sentence.hidden ? '' : (message ?? ''));
  }

  #showTabs() {
    const { models, chosen, choices } = this.state;
    this.tabs.hidden = models.length < 2;
    this.more.hidden = models.length >= choices.max_models;
    replaceButtons(
      this.tabs,
      models.map((asked, index) =>
        h(
          'div',
          { class: 'calc-tab' },
          h(
            'button',
            {
              type: 'button',
              class: 'calc-tab-name',
              'aria-pressed': String(index === chosen),
              on: { click: () => this.state.choose(index) },
            },
            mark(index),
            h('span', { class: 'clip' }, this.nameOf(index)),
          ),
          h(
            'button',
            {
              type: 'button',
              class: 'plain-button',
              'aria-label': fill(t.model.remove, { name: this.nameOf(index) }),
              on: { click: () => this.state.remove(index) },
            },
            '×',
          ),
        ),
      ),
    );
  }

  /** @param {number} index @returns {string} */
  nameOf(index) {
    const asked = this.state.models[index];
    const answered = this.#replies[index]?.answer?.models[0].name;
    if ('model' in asked)
      return this.state.choices.models.find((model) => model.model_id === asked.model)?.name ?? asked.model;
    return asked.name ?? answered ?? t.model.way[wayOf(asked)];
  }
}
