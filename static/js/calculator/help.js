/** What would help: single changes with their figures, each applied with one click. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { h, replace } from '../ui/dom.js';
import { count, fill, grouped } from '../ui/format.js';
import { numbersOf } from './own.js';
import { GIB, dollars, rate } from './units.js';
/** @import { State } from './state.js' */
/** @import { Answer, Model, Remedy } from './types.d.ts' */

export class HelpList {
  /** @param {State} state */
  constructor(state) {
    this.state = state;
    /** The change of one click, and the state before it. @type {{name: string, undo: () => void}|null} */
    this.last = null;
    this.list = h('ul', { class: 'calc-remedies' });
    this.undo = h('button', {
      type: 'button',
      class: 'small-button',
      data: { remedy: 'undo' },
      hidden: true,
      on: { click: () => this.#undo() },
    });
    this.none = h('p', { class: 'fine-note calc-hint', hidden: true }, t.help.nothing);
    this.element = h(
      'section',
      { class: 'calc-help', 'aria-label': t.help.title },
      h('div', { class: 'cluster calc-chart-head' }, h('h2', { class: 'strong calc-sub' }, t.help.title), this.undo),
      this.none,
      this.list,
    );
  }

  /** @param {Answer|null} answer */
  update(answer) {
    const model = answer?.models[0];
    const remedies = (model?.remedies ?? []).filter((remedy) => helps(remedy, model?.capacity ?? null));
    this.element.hidden = !model?.remedies.length;
    this.none.hidden = remedies.length > 0;
    if (!answer) return;
    const kept = this.list.contains(document.activeElement)
      ? /** @type {HTMLElement} */ (document.activeElement).dataset.remedy
      : null;
    replace(
      this.list,
      remedies.map((remedy) => this.#row(remedy, answer.models[0])),
    );
    if (kept)
      /** @type {HTMLElement|null} */ (
        this.list.querySelector(`[data-remedy="${kept}"]`) ?? this.list.querySelector('button')
      )?.focus({ preventScroll: true });
  }

  /** @param {Remedy} remedy @param {Model} model */
  #row(remedy, model) {
    const name = this.#name(remedy);
    const change = this.#change(remedy, model);
    const run = () => this.#apply(name, change ?? (() => undefined));
    return h(
      'li',
      { class: 'calc-remedy' },
      h('span', { class: 'calc-remedy-name' }, name),
      change &&
        h(
          'button',
          {
            type: 'button',
            class: 'small-button',
            data: { remedy: remedy.name },
            'aria-label': fill(remedy.needs_training ? t.help.compareLabel : t.help.applyLabel, { name }),
            on: { click: run },
          },
          remedy.needs_training ? t.help.compare : t.help.apply,
        ),
      h('span', { class: 'small-note calc-remedy-figures' }, figures(remedy, model)),
    );
  }

  /** @param {string} name @param {() => void} change */
  #apply(name, change) {
    const { state } = this;
    const settings = { ...state.settings };
    const models = state.models.length;
    this.last = { name, undo: () => (state.models.length > models ? state.remove(models) : state.set(settings)) };
    this.undo.textContent = fill(t.help.undo, { name });
    this.undo.hidden = false;
    change();
  }

  #undo() {
    this.last?.undo();
    this.last = null;
    this.undo.hidden = true;
  }

  /** @param {Remedy} remedy */
  #name({ name, value }) {
    const card = this.state.choices.cards.find((each) => each.card_id === value)?.name ?? String(value);
    return fill(t.help.names[name], {
      n: typeof value === 'number' ? count(value) : value,
      card,
      gib: typeof value === 'number' ? grouped(value / GIB, 0) : '',
    });
  }

  /** The effect of a click; null if the other model can't be given as numbers.
   * @param {Remedy} remedy @param {Model} model @returns {(() => void)|null} */
  #change({ name, value }, model) {
    const { state } = this;
    switch (name) {
      case 'fp8_cache':
        return () => state.set({ dtype: String(value) });
      case 'fp8_weights':
        return () => state.set({ weights_dtype: String(value) });
      case 'more_cards':
        return () => state.set({ gpus: Number(value) });
      case 'another_card':
        return () => state.set({ gpu: String(value), price_per_hour: null, memory_bytes: null, bandwidth: null });
      case 'offload':
        return state.settings.host_bytes === value ? null : () => state.set({ host_bytes: Number(value) });
      default:
        return this.#another(name, Number(value), model);
    }
  }

  /** Adds another model for comparison. @param {'gqa'|'window'} name @param {number} value @param {Model} model */
  #another(name, value, model) {
    const full = this.state.models.length >= this.state.choices.max_models;
    if (
      full ||
      model.layer_groups.length !== 1 ||
      model.is_mixture ||
      model.fixed_state ||
      model.indexer_bytes_per_token
    )
      return null;
    const asked = numbersOf(model, name === 'gqa' ? { kv_heads: value } : { window: value });
    const suffix = fill(t.help.suffix[name], { n: count(value) });
    return () => this.state.add({ ...asked, name: `${model.name.slice(0, 80 - suffix.length)}${suffix}` });
  }
}

/** Whether more fits or steps are faster. @param {Remedy} remedy @param {import('./types.d.ts').Capacity|null} now */
function helps(remedy, now) {
  if (!now) return false;
  const longer =
    now.longest_context !== null && (remedy.longest_context === null || remedy.longest_context > now.longest_context);
  return longer || remedy.max_sequences > now.max_sequences || (remedy.tokens_per_s ?? 0) > (now.tokens_per_s ?? 0);
}

/** @param {Remedy} remedy @param {Model} model */
function figures(remedy, model) {
  const now = model.capacity;
  const out = [
    fill(remedy.max_sequences === 1 ? t.head.sequence : t.head.sequences, { n: count(remedy.max_sequences) }),
  ];
  if (remedy.name === 'offload') {
    if (remedy.return_s !== null)
      out.push(
        fill(t.help.offload, {
          n: count(remedy.parked),
          time: remedy.return_s < 1 ? `${grouped(remedy.return_s * 1000, 0)} ms` : `${grouped(remedy.return_s, 1)} s`,
        }),
      );
  } else {
    out.push(
      remedy.longest_context === null ? t.head.unbounded : fill(t.help.longest, { n: count(remedy.longest_context) }),
    );
    if (remedy.tokens_per_s !== null) out.push(fill(t.head.perSecond, { n: rate(remedy.tokens_per_s) }));
    if (remedy.cost_per_million_tokens !== null)
      out.push(fill(t.help.cost, { cost: dollars(remedy.cost_per_million_tokens) }));
  }
  const text = out.join(' · ');
  return now && remedy.fits && !now.fits ? [h('b', {}, t.help.fits), ` ${text}`] : [text];
}
