/** The list of models as a search field, for mouse and keyboard. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { h, replace, setAttribute } from '../ui/dom.js';
import { binary, count, fill } from '../ui/format.js';
import { clip } from '../ui/text.js';
/** @import { Listed } from './types.d.ts' */

const MAX_SHOWN = 60;

/** Only letters and digits. @param {string} text @returns {string} */
function plain(text) {
  return text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, '');
}

/** Models that contain all typed words, or, for a longer name as on a hub, models that the name starts with.
 * @param {Listed[]} models @param {string} typed @returns {Listed[]} */
export function found(models, typed) {
  const words = typed.split(/\s+/).map(plain).filter(Boolean);
  const texts = models.map((model) =>
    plain(
      `${model.name} ${model.model_id} ${t.kinds[/** @type {keyof typeof t.kinds} */ (model.kind)] ?? ''} ${model.kind}`,
    ),
  );
  const hits = models.filter((_, index) => words.every((word) => texts[index].includes(word)));
  if (hits.length || !words.length) return hits;
  const last = plain(typed.split('/').at(-1) ?? '');
  return models.filter((model) => [model.name, model.model_id].some((name) => last.startsWith(plain(name))));
}

export class Picker {
  /** @type {Listed[]} */
  #shown = [];
  #active = -1;
  #current = '';

  /** @param {Listed[]} models @param {(modelId: string) => void} onPick */
  constructor(models, onPick) {
    this.models = models;
    this.onPick = onPick;
    this.input = h('input', {
      id: 'calc-model',
      type: 'text',
      role: 'combobox',
      autocomplete: 'off',
      spellcheck: 'false',
      'aria-expanded': 'false',
      'aria-controls': 'calc-models',
      'aria-autocomplete': 'list',
      placeholder: t.model.search,
    });
    this.list = h('ul', {
      class: 'panel',
      id: 'calc-models',
      role: 'listbox',
      'aria-label': t.model.list,
      hidden: true,
    });
    this.none = h('p', { class: 'calc-none', role: 'status', hidden: true });
    this.element = h(
      'div',
      { class: 'calc-picker' },
      h('label', { for: 'calc-model', class: 'visually-hidden' }, t.model.label),
      this.input,
      this.list,
      this.none,
    );
    this.input.addEventListener('focus', () => this.input.select());
    this.input.addEventListener('click', () => this.#open(''));
    this.input.addEventListener('input', () => this.#open(this.input.value));
    this.input.addEventListener('keydown', (event) => this.#key(event));
    this.input.addEventListener('blur', () => this.#close());
    this.list.addEventListener('mousedown', (event) => event.preventDefault()); // the field keeps the focus
    this.list.addEventListener('click', (event) => {
      const option = /** @type {Element} */ (event.target).closest('[role="option"]');
      if (option) this.#pick(this.#shown[[...this.list.children].indexOf(option)]);
    });
  }

  /** @param {string} modelId of the one that is taken, or a name that the list does not have */
  show(modelId) {
    this.#current = modelId;
    if (document.activeElement !== this.input || this.list.hidden) this.input.value = this.#name;
  }

  get #name() {
    return this.models.find((model) => model.model_id === this.#current)?.name ?? this.#current;
  }

  /** @param {string} typed */
  #open(typed) {
    this.#shown = found(this.models, typed);
    replace(
      this.list,
      this.#shown.map((model, index) => this.#option(model, index)),
    );
    this.list.hidden = this.#shown.length === 0;
    this.none.hidden = this.#shown.length > 0;
    this.none.textContent = this.none.hidden ? '' : fill(t.model.none, { text: clip(typed.trim(), MAX_SHOWN) });
    setAttribute(this.input, 'aria-expanded', String(!this.list.hidden));
    const at = this.#shown.findIndex((model) => model.model_id === this.#current);
    this.#activate(typed.trim() === '' || at >= 0 ? at : Math.min(0, this.#shown.length - 1));
  }

  /** @param {Listed} model @param {number} index */
  #option(model, index) {
    const kind = t.kinds[/** @type {keyof typeof t.kinds} */ (model.kind)] ?? model.kind;
    const size =
      model.bytes_per_token === null
        ? t.model.refused
        : fill(t.model.perToken, { bytes: binary(model.bytes_per_token) });
    const limit = model.max_context === null ? '' : fill(t.model.upTo, { n: count(model.max_context) });
    return h(
      'li',
      { role: 'option', id: `calc-model-${index}`, 'aria-selected': String(model.model_id === this.#current) },
      h('span', { class: 'calc-option-name' }, model.name),
      h('span', { class: 'small-note calc-option-kind' }, kind),
      h('span', { class: 'small-note calc-option-size' }, [size, limit].filter(Boolean).join(' · ')),
    );
  }

  /** @param {number} index −1: none */
  #activate(index) {
    this.#active = index;
    [...this.list.children].forEach((option, at) => option.classList.toggle('is-active', at === index));
    if (index < 0) return this.input.removeAttribute('aria-activedescendant');
    setAttribute(this.input, 'aria-activedescendant', `calc-model-${index}`);
    this.list.children[index].scrollIntoView({ block: 'nearest' });
  }

  #close() {
    this.list.hidden = true;
    this.none.hidden = true;
    setAttribute(this.input, 'aria-expanded', 'false');
    this.input.removeAttribute('aria-activedescendant');
    this.input.value = this.#name;
  }

  /** @param {Listed|undefined} model */
  #pick(model) {
    if (!model) return;
    this.#current = model.model_id;
    this.#close();
    this.onPick(model.model_id);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const way = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (way) {
      event.preventDefault();
      if (this.list.hidden) return this.#open('');
      const { length } = this.#shown;
      this.#activate((this.#active + way + length) % length);
    } else if (event.key === 'Enter') {
      event.preventDefault();
      if (!this.list.hidden) this.#pick(this.#shown[this.#active]);
    } else if (event.key === 'Escape' && !(this.list.hidden && this.none.hidden)) {
      event.preventDefault();
      this.#close();
    }
  }
}
