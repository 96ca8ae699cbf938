/** The inputs of the drawer by name: build, read and check them. */
import { strings } from '../strings/main.js';
import { h } from '../ui/dom.js';
import { fill } from '../ui/format.js';

/** @typedef {{name: string, label: string, value: number, low: number, high: number, step: number|'any', whole: boolean, optional: boolean, hint?: string}} NumberSpec */

export class Fields {
  /** @type {Map<string, HTMLInputElement|HTMLSelectElement>} */
  inputs = new Map();

  /** @param {NumberSpec} spec */
  number(spec) {
    const input = h('input', {
      type: 'number',
      id: `set-${spec.name}`,
      name: spec.name,
      min: spec.low,
      max: spec.high,
      step: spec.step,
      inputmode: spec.low < 0 ? null : spec.whole ? 'numeric' : 'decimal',
      required: !spec.optional,
      placeholder: spec.optional ? spec.hint : null,
      title: spec.hint,
    });
    input.value = Number.isNaN(spec.value) ? '' : String(spec.value);
    this.inputs.set(spec.name, input);
    return h('div', { class: 'field' }, h('label', { for: input.id }, spec.label), input);
  }

  /** A whole number from `low` to `high`. NaN leaves the field empty and allows that.
   * @param {string} name @param {string} label @param {number} value @param {number} low @param {number} high @param {string} [hint] */
  whole(name, label, value, low, high, hint) {
    return this.number({ name, label, value, low, high, step: 1, whole: true, optional: Number.isNaN(value), hint });
  }

  /** @param {string} name @param {string} label @param {string} hint */
  text(name, label, hint) {
    const input = h('input', { type: 'text', id: `set-${name}`, name, placeholder: hint, autocomplete: 'off' });
    this.inputs.set(name, input);
    return h('div', { class: 'field' }, h('label', { for: input.id }, label), input);
  }

  /** @param {string} name @param {string} label @param {boolean} checked @param {string} [hint] */
  check(name, label, checked, hint) {
    const input = h('input', { type: 'checkbox', id: `set-${name}`, name });
    input.checked = checked;
    this.inputs.set(name, input);
    return h(
      'label',
      { class: 'check', for: input.id },
      input,
      h('span', {}, label, hint && h('span', { class: 'hint' }, ` ${hint}`)),
    );
  }

  /** @param {string} name @param {string} label @param {Record<string, string>} choices texts by value, the default first */
  select(name, label, choices) {
    const input = h(
      'select',
      { id: `set-${name}`, name },
      Object.entries(choices).map(([value, text]) => h('option', { value }, text)),
    );
    this.inputs.set(name, input);
    return h('div', { class: 'field' }, h('label', { for: input.id }, label), input);
  }

  /** @param {string} name @returns {HTMLInputElement} */
  input(name) {
    return /** @type {HTMLInputElement} */ (this.inputs.get(name));
  }

  /** @param {string} name @returns {number|null} null when it is empty */
  value(name) {
    const { value } = this.input(name);
    return value === '' ? null : Number(value);
  }

  /** @param {string} name @param {number|boolean|string|null} value */
  set(name, value) {
    const input = this.input(name);
    if (typeof value === 'boolean') input.checked = value;
    else input.value = value === null ? '' : String(value);
  }

  /** The error of the first invalid input. It gets the focus, and the section that hides it opens.
   * @param {HTMLElement} root @returns {string|null} */
  fault(root) {
    for (const input of this.inputs.values()) {
      if (input.checkValidity()) continue;
      const label = root.querySelector(`label[for="${input.id}"]`)?.textContent ?? input.name;
      const hidden = input.closest('details');
      if (hidden) hidden.open = true;
      input.focus();
      return fill(strings.drawer.badNumber, {
        name: label,
        low: input.getAttribute('min') ?? '',
        high: input.getAttribute('max') ?? '',
      });
    }
    return null;
  }
}
