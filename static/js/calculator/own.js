/** A model that isn't in the list: its config.json or its numbers. Both produce a model of the API. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { h, setText } from '../ui/dom.js';
import { count, fill } from '../ui/format.js';
import { clip } from '../ui/text.js';
import { NumberField } from './fields.js';
import { parametersOf, wholeOf } from './units.js';
/** @import { Asked, Model, OwnModel } from './types.d.ts' */

/** A longer file isn't a config; the server has the same limit. */
export const MAX_FILE_BYTES = 8_000_000;
const MAX_NAME = 80;
const SAME_NAME = 'config';

/** The parameter count, an input in both ways. @param {string} kind @param {() => void} onValue */
function parametersField(kind, onValue) {
  return new NumberField({
    name: `${kind}-parameters`,
    label: t.own.parameters,
    read: parametersOf,
    write: count,
    onValue,
    expected: t.own.parametersExpected,
    hint: t.own.parametersHint,
    optional: true,
  });
}

export class ConfigPanel {
  /** @param {(asked: OwnModel) => void} onModel */
  constructor(onModel) {
    this.onModel = onModel;
    this.text = h('textarea', {
      id: 'calc-config',
      rows: 4,
      spellcheck: 'false',
      placeholder: t.own.paste,
      'aria-describedby': 'calc-config-fault',
      on: { input: () => this.#given() },
    });
    this.name = h('input', {
      id: 'calc-config-name',
      type: 'text',
      maxlength: MAX_NAME,
      autocomplete: 'off',
      on: { input: () => this.#given() },
    });
    this.parameters = parametersField('config', () => this.#given());
    this.file = h('input', {
      type: 'file',
      accept: '.json,application/json',
      class: 'visually-hidden',
      id: 'calc-file',
      tabindex: '-1',
      'aria-label': t.own.choose,
      on: { change: () => void this.#chosen() },
    });
    this.sentence = h('p', { class: 'calc-fault', id: 'calc-config-fault', hidden: true });
    this.element = h(
      'div',
      { class: 'calc-own', hidden: true },
      h('label', { for: 'calc-config' }, t.own.config),
      this.text,
      this.sentence,
      this.file,
      h(
        'button',
        { type: 'button', class: 'secondary calc-choose', on: { click: () => this.file.click() } },
        t.own.choose,
      ),
      h(
        'div',
        { class: 'calc-pair' },
        h('div', { class: 'field calc-field' }, h('label', { for: 'calc-config-name' }, t.own.name), this.name),
        this.parameters.element,
      ),
    );
  }

  /** @param {string|null} message */
  fault(message) {
    setText(this.sentence, message ?? '');
    this.sentence.hidden = message === null;
  }

  #given() {
    const config = this.text.value;
    if (config.trim() === '') return;
    const { value } = this.parameters;
    this.fault(null);
    const name = this.name.value.trim();
    this.onModel({ config, ...(name && { name }), ...(value && { num_parameters: value }) });
  }

  async #chosen() {
    const file = this.file.files?.[0];
    if (file) await this.take(file);
    this.file.value = '';
  }

  /** @param {File} file that was chosen or dropped */
  async take(file) {
    if (file.size > MAX_FILE_BYTES) {
      return this.fault(
        fill(t.own.tooLarge, { max: count(MAX_FILE_BYTES), name: clip(file.name, MAX_NAME), n: count(file.size) }),
      );
    }
    try {
      const stem = file.name.replace(/\.json$/i, '');
      this.put(await file.text(), stem === SAME_NAME ? '' : clip(stem, MAX_NAME));
    } catch {
      this.fault(fill(t.own.unreadable, { name: clip(file.name, MAX_NAME) }));
    }
  }

  /** Sets a config's text, as if typed. @param {string} text @param {string} [name] */
  put(text, name = '') {
    this.text.value = text;
    this.name.value = name;
    this.#given();
  }

  /** @param {Asked} asked */
  show(asked) {
    if (!('config' in asked) || this.element.contains(document.activeElement)) return;
    if (this.text.value !== asked.config) this.text.value = asked.config;
    this.name.value = asked.name ?? '';
    this.parameters.show(asked.num_parameters ?? null);
  }
}

const HEADS = ['kv_heads', 'head_dim', 'v_head_dim', 'query_heads'];
const LATENT = ['latent_dim', 'rotary_dim'];
const NUMBERS = /** @type {const} */ (['layers', ...HEADS, ...LATENT, 'window', 'windowed_layers', 'max_context']);
const NEEDED = new Set(['layers', 'kv_heads', 'head_dim', 'latent_dim', 'rotary_dim']);

export class NumbersPanel {
  /** @param {(asked: OwnModel) => void} onModel */
  constructor(onModel) {
    this.onModel = onModel;
    this.latent = h('input', { type: 'checkbox', id: 'calc-latent', on: { change: () => this.#given() } });
    this.parameters = parametersField('numbers', () => this.#given());
    this.fields = new Map(
      NUMBERS.map((name) => [
        /** @type {string} */ (name),
        new NumberField({
          name,
          label: t.own.numbers[/** @type {keyof typeof t.own.numbers} */ (name)],
          read: wholeOf,
          write: count,
          step: 1,
          optional: !NEEDED.has(name),
          expected: t.fault.whole,
          onValue: () => this.#given(),
        }),
      ]),
    );
    this.sentence = h('p', { class: 'calc-fault', hidden: true });
    this.element = h(
      'div',
      { class: 'calc-own', hidden: true },
      h('label', { class: 'calc-check' }, this.latent, h('span', {}, t.own.latent)),
      h(
        'div',
        { class: 'calc-numbers' },
        [...this.fields.values()].map((field) => field.element),
        this.parameters.element,
      ),
      this.sentence,
    );
    this.#arrange();
  }

  #arrange() {
    for (const name of HEADS) this.field(name).element.hidden = this.latent.checked && name !== 'query_heads';
    for (const name of LATENT) this.field(name).element.hidden = !this.latent.checked;
  }

  /** @param {string} name */
  field(name) {
    return /** @type {NumberField} */ (this.fields.get(name));
  }

  /** Shows the error next to the number it is about, if it is about one. @param {string|null} message @param {string} [setting] */
  fault(message, setting = '') {
    const field = this.fields.get(setting);
    for (const each of this.fields.values()) if (each !== field && each.value !== undefined) each.fault(null);
    if (field) field.fault(message);
    setText(this.sentence, field ? '' : (message ?? ''));
    this.sentence.hidden = Boolean(field) || message === null;
  }

  #given() {
    this.#arrange();
    /** @type {Record<string, number>} */
    const geometry = {};
    for (const [name, field] of this.fields) {
      if (field.element.hidden) continue;
      const { value } = field;
      if (value === undefined && field.input.value.trim() !== '') return; // the field has its own error message
      if (typeof value === 'number') geometry[name] = value;
    }
    const parameters = this.parameters.value;
    this.onModel({ geometry, ...(parameters && { num_parameters: parameters }) });
  }

  /** @param {Asked} asked */
  show(asked) {
    if (!('geometry' in asked) || this.element.contains(document.activeElement)) return;
    this.latent.checked = 'latent_dim' in asked.geometry;
    for (const [name, field] of this.fields) field.show(asked.geometry[name] ?? null);
    this.parameters.show(asked.num_parameters ?? null);
    this.#arrange();
  }
}

/** A model's numbers, as a user would type them: of its group without a window, or of its largest.
 * @param {Model|null} model @param {Partial<{kv_heads: number, window: number}>} [changes] @returns {OwnModel} */
export function numbersOf(model, changes = {}) {
  const groups = model?.layer_groups ?? [];
  const group = groups.find((each) => each.window === null) ?? groups[0];
  if (!model || !group) return { geometry: { layers: 32, kv_heads: 8, head_dim: 128 } };
  const windowed = groups.find((each) => each.window !== null);
  /** @type {Record<string, number>} */
  const heads =
    group.type === 'mla_latent'
      ? { latent_dim: group.k_dim, rotary_dim: group.v_dim, query_heads: group.query_heads }
      : {
          kv_heads: group.kv_heads,
          head_dim: group.k_dim,
          ...(group.v_dim !== group.k_dim && { v_head_dim: group.v_dim }),
          query_heads: group.query_heads,
        };
  const layers = groups.reduce((sum, each) => sum + each.layers, 0);
  return {
    ...(model.num_parameters && { num_parameters: model.num_parameters }),
    geometry: {
      layers,
      ...heads,
      ...(windowed?.window && {
        window: windowed.window,
        windowed_layers: groups.reduce((sum, each) => sum + (each.window === null ? 0 : each.layers), 0),
      }),
      ...(model.max_context && { max_context: model.max_context }),
      ...changes,
    },
  };
}
