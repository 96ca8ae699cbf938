/** The inputs of the calculator: numbers in everyday notation, choices, and the message next to each. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { h, setText } from '../ui/dom.js';
import { fill } from '../ui/format.js';
import { clip } from '../ui/text.js';

const MAX_SHOWN = 40;

/**
 * `read` parses a text to a number or null; `write` is its inverse. `optional`: an empty field is null. `step`:
 * increment of the arrow keys. `value` may come from a URL and is then shown as it is.
 * @typedef {{name: string, label: string, read: (text: string) => number|null, write: (value: number) => string, onValue: (value: number|null) => void,
 *   expected: string, unit?: string, hint?: string, optional?: boolean, step?: number}} NumberOptions
 */

/** The common part of a field and a choice: a label, a control and a message below. */
class Field {
  /** @param {string} name @param {string} label @param {HTMLInputElement|HTMLSelectElement} control @param {string} [unit] @param {string} [hint] */
  constructor(name, label, control, unit, hint) {
    this.name = name;
    control.id = `calc-${name}`;
    this.sentence = h('p', { class: 'calc-fault', id: `calc-${name}-fault`, hidden: true });
    this.control = control;
    const described = hint ? `calc-${name}-hint calc-${name}-fault` : `calc-${name}-fault`;
    control.setAttribute('aria-describedby', described);
    this.element = h(
      'div',
      { class: 'field calc-field', data: { field: name } },
      h('label', { for: control.id }, label, unit && h('span', { class: 'fine-note' }, ` ${unit}`)),
      control,
      hint && h('p', { class: 'fine-note calc-hint', id: `calc-${name}-hint` }, hint),
      this.sentence,
    );
  }

  /** Shows an error, or clears it with null. @param {string|null} message */
  fault(message) {
    setText(this.sentence, message ?? '');
    this.sentence.hidden = message === null;
    if (message === null) this.control.removeAttribute('aria-invalid');
    else this.control.setAttribute('aria-invalid', 'true');
  }
}

export class NumberField extends Field {
  /** @param {NumberOptions} options */
  constructor(options) {
    const input = h('input', { type: 'text', inputmode: 'decimal', autocomplete: 'off', spellcheck: 'false' });
    super(options.name, options.label, input, options.unit, options.hint);
    this.options = options;
    this.input = input;
    input.addEventListener('input', () => this.#typed());
    input.addEventListener('blur', () => this.#tidy());
    input.addEventListener('keydown', (event) => this.#key(event));
  }

  /** The typed value, or undefined if it isn't a number. @returns {number|null|undefined} */
  get value() {
    const text = this.input.value;
    if (text.trim() === '') return this.options.optional ? null : undefined;
    return this.options.read(text) ?? undefined;
  }

  #typed() {
    const { value } = this;
    if (value === undefined)
      return this.fault(
        fill(t.fault.number, {
          label: this.options.label,
          expected: this.options.expected,
          text: said(this.input.value),
        }),
      );
    this.fault(null);
    this.options.onValue(value);
  }

  #tidy() {
    const { value } = this;
    if (typeof value === 'number') this.input.value = this.options.write(value);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const way = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!way || !this.options.step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const next = (this.value ?? 0) + way * this.options.step;
    if (next < 0) return;
    this.input.value = this.options.write(next);
    this.#typed();
  }

  /** Shows a value, unless the user is typing. @param {number|string|null} value */
  show(value) {
    if (document.activeElement === this.input) return;
    const text = value === null ? '' : typeof value === 'number' ? this.options.write(value) : value;
    if (this.input.value !== text) this.input.value = text;
  }
}

export class ChoiceField extends Field {
  /** @param {{name: string, label: string, choices: [string, string][], onValue: (value: string) => void, hint?: string}} options values with their texts */
  constructor({ name, label, choices, onValue, hint }) {
    const select = h(
      'select',
      {},
      choices.map(([value, text]) => h('option', { value }, text)),
    );
    super(name, label, select, undefined, hint);
    this.select = select;
    select.addEventListener('change', () => onValue(select.value));
  }

  /** A value that isn't among the choices, as from a URL, selects nothing. @param {string} value */
  show(value) {
    if (this.select.value !== value) this.select.value = value;
  }
}

/** @param {string} text @returns {string} */
function said(text) {
  return text.trim() === '' ? t.fault.nothing : `“${clip(text.trim(), MAX_SHOWN)}”`;
}
