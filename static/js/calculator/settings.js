/** The settings of the calculator as fields: context, batch, dtypes, the GPU and its price. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { h, setText } from '../ui/dom.js';
import { count, fill, grouped } from '../ui/format.js';
import { ChoiceField, NumberField } from './fields.js';
import { GIB, both, dollars, numberOf, wholeOf } from './units.js';
/** @import { State } from './state.js' */
/** @import { Settings } from './types.d.ts' */

/** The slider moves by eighths of an octave from 2⁷ to 2²⁰ tokens; the field accepts every number. */
const OCTAVE = 8;
const LOWEST = 7;
const HIGHEST = 20;
const TERA = 1e12;
const NO_CARD = '';
const DIGITS = 6;

/** @param {number} at position of the slider @returns {number} tokens */
function contextAt(at) {
  const octave = LOWEST + Math.floor(at / OCTAVE);
  return (2 ** octave * (OCTAVE + (at % OCTAVE))) / OCTAVE;
}

/** @param {number} context @returns {number} the nearest position of the slider */
function positionOf(context) {
  const octave = Math.min(HIGHEST, Math.max(LOWEST, Math.floor(Math.log2(context))));
  const position = (octave - LOWEST) * OCTAVE + Math.round((context / 2 ** octave - 1) * OCTAVE);
  return Math.min((HIGHEST - LOWEST) * OCTAVE, Math.max(0, position));
}

/** @param {number} value */
function short(value) {
  return String(Number(value.toFixed(DIGITS)));
}

export class SettingsPanel {
  /** @type {Map<string, NumberField|ChoiceField>} */
  fields = new Map();

  /** @param {State} state */
  constructor(state) {
    this.state = state;
    const { choices } = state;
    const dtypes = choices.dtypes.map(({ name }) => /** @type {[string, string]} */ ([name, name]));
    this.slider = h('input', {
      type: 'range',
      id: 'calc-context-slider',
      min: 0,
      max: (HIGHEST - LOWEST) * OCTAVE,
      step: 1,
      'aria-label': t.settings.slider,
      on: { input: () => state.set({ context: contextAt(Number(this.slider.value)) }) },
    });
    this.cardSource = h('summary');
    const context = this.#number('context', wholeOf, count, { expected: t.fault.tokens });
    context.sentence.before(this.slider);
    this.element = h(
      'div',
      { class: 'calc-settings' },
      h(
        'div',
        { class: 'calc-grid' },
        context.element,
        this.#number('batch', wholeOf, count, { step: 1 }).element,
        this.#choice('dtype', dtypes).element,
        this.#choice('gpu', [
          [NO_CARD, t.settings.noCard],
          ...choices.cards.map(({ card_id, name }) => /** @type {[string, string]} */ ([card_id, name])),
        ]).element,
        this.#number('gpus', wholeOf, count, { step: 1 }).element,
        this.#choice('weights_dtype', dtypes).element,
        this.#number('price_per_hour', numberOf, (value) => grouped(value, 2), { optional: true }).element,
        h('details', { class: 'fine-note calc-source' }, this.cardSource),
      ),
      h(
        'details',
        { class: 'calc-more' },
        h('summary', {}, t.settings.more),
        h(
          'div',
          { class: 'calc-grid' },
          this.#number(
            'utilisation',
            (text) => scaled(numberOf(text), 0.01),
            (value) => short(value * 100),
          ).element,
          this.#number('overhead_bytes', gib, inGib).element,
          this.#number('prefix', wholeOf, count).element,
          this.#number('block_size', wholeOf, count).element,
          this.#number('group_size', wholeOf, count).element,
          this.#number('host_bytes', gib, inGib).element,
          this.#number('memory_bytes', gib, inGib, { optional: true }).element,
          this.#number(
            'bandwidth',
            (text) => scaled(numberOf(text), TERA),
            (value) => short(value / TERA),
            { optional: true },
          ).element,
        ),
      ),
    );
  }

  /** @param {keyof Settings} name @param {(text: string) => number|null} read @param {(value: number) => string} write
   * @param {{optional?: boolean, step?: number, expected?: string}} [options] */
  #number(name, read, write, options = {}) {
    const texts = t.settings[/** @type {'context'} */ (name)];
    const expected = options.expected ?? (read === wholeOf ? t.fault.whole : t.fault.any);
    const field = new NumberField({
      name,
      label: texts.label,
      unit: texts.unit,
      hint: texts.hint,
      read,
      write,
      ...options,
      expected,
      onValue: (value) => this.state.set({ [name]: value }),
    });
    this.fields.set(name, field);
    return field;
  }

  /** @param {'dtype'|'weights_dtype'|'gpu'} name @param {[string, string][]} choices */
  #choice(name, choices) {
    const { label, hint } = t.settings[name];
    const field = new ChoiceField({ name, label, hint, choices, onValue: (value) => this.#chosen(name, value) });
    this.fields.set(name, field);
    return field;
  }

  /** Values typed for one GPU don't apply to another. @param {string} name @param {string} value */
  #chosen(name, value) {
    if (name !== 'gpu') return this.state.set({ [name]: value });
    this.state.set({
      gpu: value === NO_CARD ? null : value,
      price_per_hour: null,
      memory_bytes: null,
      bandwidth: null,
    });
  }

  /** Shows the settings without changing the field that the user is typing in. */
  show() {
    const { settings } = this.state;
    for (const [name, field] of this.fields) {
      const value = settings[/** @type {keyof Settings} */ (name)];
      if (field instanceof ChoiceField) field.show(value === null ? NO_CARD : String(value));
      else field.show(name === 'price_per_hour' ? (value ?? this.#listed?.price_per_hour ?? null) : value);
    }
    const at = Number(settings.context) >= 1 ? positionOf(Number(settings.context)) : 0;
    if (document.activeElement !== this.slider) this.slider.value = String(at);
    this.slider.setAttribute('aria-valuetext', fill(t.settings.tokens, { n: count(Number(settings.context) || 0) }));
    this.#showCard();
  }

  /** The GPU's entry in the list. */
  get #listed() {
    return this.state.choices.cards.find((card) => card.card_id === this.state.settings.gpu);
  }

  #showCard() {
    const { settings } = this.state;
    const card = this.#listed;
    const price = card?.price_per_hour;
    const priceSource =
      price == null
        ? t.settings.noPrice
        : fill(t.settings.priceSource, {
            price: dollars(price),
            source: card?.price_source ?? '',
            date: card?.checked ?? '',
          });
    const values = card && {
      memory: both(card.memory_bytes),
      bandwidth: short(card.bandwidth / TERA),
      source: card.source,
      date: card.checked,
    };
    setText(this.cardSource, values ? `${fill(t.settings.cardSource, values)} ${priceSource}` : t.settings.noCardHint);
    const own = /** @type {NumberField} */ (this.fields.get('memory_bytes')).input;
    own.placeholder = card ? inGib(card.memory_bytes) : '';
    const bandwidth = /** @type {NumberField} */ (this.fields.get('bandwidth')).input;
    bandwidth.placeholder = card ? short(card.bandwidth / TERA) : '';
    /** @type {NumberField} */ (this.fields.get('group_size')).element.hidden = !['int8', 'int4'].includes(
      settings.dtype,
    );
  }

  /** Shows the error next to its field; all other fields are valid.
   * @param {string|null} message @param {string} [setting] @returns {boolean} whether there is such a field */
  fault(message, setting = '') {
    const name = setting === 'card' ? 'gpu' : setting;
    const found = this.fields.get(name);
    for (const field of this.fields.values()) {
      if (field !== found && !(field instanceof NumberField && field.value === undefined)) field.fault(null);
    }
    found?.fault(message);
    const more = found?.element.closest('details');
    if (more && message !== null) more.open = true;
    return Boolean(found);
  }
}

/** @param {number|null} value @param {number} factor */
function scaled(value, factor) {
  return value === null ? null : Number((value * factor).toPrecision(12));
}

/** @param {string} text @returns {number|null} bytes of that many GiB */
function gib(text) {
  const value = numberOf(text);
  return value === null ? null : Math.round(value * GIB);
}

/** @param {number} bytes @returns {string} */
function inGib(bytes) {
  return short(bytes / GIB);
}
