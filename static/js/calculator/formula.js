/** The formula of each group of layers with this model's numbers. A term highlights what it counts in the picture. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { h, replaceButtons, setText } from '../ui/dom.js';
import { count, fill, grouped } from '../ui/format.js';
import { factorButton, joined } from '../ui/formula.js';
import { Picture } from './picture.js';
import { both, exact } from './units.js';
/** @import { Formula, Group, Model, Term } from './types.d.ts' */

/** @param {number} value @returns {string} */
function valueText(value) {
  return Number.isInteger(value) ? grouped(value) : String(value);
}

/** @param {Group} group @returns {string} full, window 4,096 … */
export function typeText(group) {
  return (
    fill(t.groups.types[group.type], { window: count(group.window ?? 0) }) +
    (group.type === 'mla_latent' && group.window !== null ? fill(t.groups.within, { window: count(group.window) }) : '')
  );
}

export class FormulaPanel {
  constructor() {
    this.picture = new Picture();
    this.lines = h('div', { class: 'calc-lines' });
    this.caption = h('p', { class: 'note calc-caption' });
    this.element = h(
      'section',
      { class: 'calc-formula', 'aria-label': t.formula.title },
      h('h2', { class: 'strong calc-sub' }, t.formula.title),
      h('div', { class: 'calc-formula-row' }, this.lines, h('div', {}, this.picture.element, this.caption)),
    );
  }

  /** @param {Model} model */
  update(model) {
    const { layer_groups: groups } = model;
    this.picture.update(groups);
    this.#light(null, null);
    replaceButtons(
      this.lines,
      groups.map((group, index) => this.#lines(group, index, groups.length)),
      groups.length === 0 && h('p', {}, t.formula.none),
      groups.length > 1 && sumText(model),
    );
  }

  /** @param {Group} group @param {number} index @param {number} of */
  #lines(group, index, of) {
    const title =
      of > 1
        ? h('p', { class: 'note' }, fill(t.formula.group, { layers: count(group.layers), type: typeText(group) }))
        : null;
    return h(
      'div',
      { class: 'calc-group' },
      title,
      this.#line(group.formula, index, t.formula.perToken),
      this.#line(group.total_formula, index, t.formula.inAll),
    );
  }

  /** @param {Formula} formula @param {number} group @param {string} unit */
  #line(formula, group, unit) {
    const factors = joined(
      formula.terms.map((term) => this.#term(term, group)),
      () => h('span', { class: 'calc-times', 'aria-hidden': 'true' }, '×'),
    );
    return h(
      'p',
      { class: 'cluster calc-line-of', 'aria-label': formula.text },
      factors,
      h(
        'span',
        { class: 'calc-product' },
        h('span', { class: 'calc-times' }, '= '),
        h('b', {}, count(formula.value)),
        ' ',
        h('span', { class: 'small-note' }, unit),
      ),
    );
  }

  /** @param {Term} term @param {number} group */
  #term(term, group) {
    const light = () => this.#light(term, group);
    const value = term.parts.length
      ? `(${term.parts.map((part) => valueText(part.value)).join(' + ')})`
      : valueText(term.value);
    const name =
      term.name === 'batch' && term.value === 1
        ? t.formula.sequence
        : (t.formula.terms[/** @type {keyof typeof t.formula.terms} */ (term.name)] ?? term.unit);
    return factorButton(
      'calc-term',
      { value, label: name, data: { term: term.name } },
      light,
      () => this.#light(null, null),
      light,
    );
  }

  /** @param {Term|null} term @param {number|null} group */
  #light(term, group) {
    this.picture.light(term?.name ?? null, group);
    setText(
      this.caption,
      term
        ? fill(t.formula.counts, {
            value: valueText(term.value),
            text: term.text,
            parts: term.parts.length
              ? ` (${term.parts.map((part) => `${valueText(part.value)}: ${part.text}`).join('; ')})`
              : '',
          })
        : t.formula.hint,
    );
  }
}

/** @param {Model} model */
function sumText(model) {
  return h(
    'p',
    { class: 'note calc-sum' },
    fill(t.formula.sum, {
      token: exact(model.bytes_per_token),
      total: exact(model.total_bytes),
      both: both(model.total_bytes),
    }),
  );
}
