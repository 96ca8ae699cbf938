/** One lane of the form: a choice from the engine's menu with a slider per option, and optionally a second choice. */
import { h, icon, PATHS, replace, setText } from '../../ui/dom.js';
import { fill } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { specOf } from './presets.js';
/** @import { LaneChoice, LaneFamily } from '../../core/types.d.ts' */

const t = texts.compare.setup;
let numPickers = 0;

export class LanePicker {
  /** @param {readonly LaneChoice[]} choices @param {string} name of the first choice @param {number} place @param {(() => void)|null} onRemove */
  constructor(choices, name, place, onRemove) {
    this.id = `lane-${++numPickers}`;
    this.choices = choices;
    this.first = new Part(choices, name, `${this.id}-a`, false, () => this.#told());
    this.second = new Part(choices, '', `${this.id}-b`, true, () => this.#told());
    this.about = h('p', { class: 'fine-note compare-note' });
    this.title = h('legend', {});
    this.remove =
      onRemove &&
      h(
        'button',
        {
          type: 'button',
          class: 'plain-button lane-remove',
          'aria-label': fill(t.remove, { n: place }),
          title: fill(t.remove, { n: place }),
          on: { click: onRemove },
        },
        icon(PATHS.cross),
      );
    this.root = h(
      'fieldset',
      { class: 'lane-picker' },
      this.title,
      this.remove,
      this.first.root,
      this.about,
      place > 0 && h('details', { class: 'lane-combine' }, h('summary', {}, t.combine), this.second.root),
    );
    this.place(place);
    this.#told();
  }

  /** @param {number} place from 0 */
  place(place) {
    setText(this.title, place === 0 ? t.reference : fill(t.lane, { n: place }));
    this.remove?.setAttribute('aria-label', fill(t.remove, { n: place }));
  }

  #told() {
    const { choice } = this.first;
    setText(this.about, choice ? `${choice.about} (${choice.exact ? t.exact : t.lossy})` : '');
  }

  /** @returns {string} */
  get spec() {
    return [this.first.spec, this.second.spec].filter((spec) => spec !== '').join('+');
  }
}

class Part {
  /** @type {Map<string, HTMLInputElement>} */
  inputs = new Map();

  /** @param {readonly LaneChoice[]} choices @param {string} name @param {string} id @param {boolean} optional @param {() => void} onChange */
  constructor(choices, name, id, optional, onChange) {
    this.choices = choices;
    this.id = id;
    const families = /** @type {LaneFamily[]} */ ([...new Set(choices.map((choice) => choice.family))]);
    this.select = h(
      'select',
      {
        id,
        'aria-label': optional ? t.combine : t.lanes,
        on: {
          change: () => {
            this.#options();
            onChange();
          },
        },
      },
      optional && h('option', { value: '' }, t.nothing),
      families.map((family) =>
        h(
          'optgroup',
          { label: t.families[family] },
          choices
            .filter((choice) => choice.family === family)
            .map((choice) => h('option', { value: choice.name }, `${choice.title} · ${choice.name}`)),
        ),
      ),
    );
    this.select.value = name;
    this.options = h('div', { class: 'lane-options' });
    this.root = h('div', { class: 'lane-part' }, this.select, this.options);
    this.#options();
  }

  get choice() {
    return this.choices.find((choice) => choice.name === this.select.value) ?? null;
  }

  #options() {
    this.inputs.clear();
    replace(
      this.options,
      (this.choice?.options ?? []).map((option) => {
        const input = h('input', {
          type: 'range',
          id: `${this.id}-${option.name}`,
          min: option.low,
          max: option.high,
          step: 1,
        });
        input.value = String(option.default);
        const output = h('output', { for: input.id }, String(option.default));
        input.addEventListener('input', () => setText(output, input.value));
        this.inputs.set(option.name, input);
        return h('label', { class: 'note lane-option', for: input.id }, h('span', {}, option.title), input, output);
      }),
    );
  }

  /** @returns {string} */
  get spec() {
    const { choice } = this;
    return choice
      ? specOf(choice, Object.fromEntries([...this.inputs].map(([name, input]) => [name, Number(input.value)])))
      : '';
  }
}
