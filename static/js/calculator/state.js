/** The state of the page, one to four models and the settings, and its form in the URL. */
import { emitter } from '../core/emitter.js';
/** @import { Asked, Choices, Settings } from './types.d.ts' */
/** @typedef {{over: 'context'|'batch', scale: 'log'|'linear', weights: boolean}} View how the chart is drawn */

/** Maximum length of a URL that is written; proxies and chat programs truncate longer ones. */
export const MAX_LINK = 8000;
const DEFAULT_MODEL = 'llama-3.1-8b';
const DEFAULT_CARD = 'h100';
const TEXTS = new Set(['dtype', 'weights_dtype', 'gpu']);
const NO_CARD = 'none';

export class State {
  /** @param {Choices} choices */
  constructor(choices) {
    this.choices = choices;
    /** @type {Settings} */
    this.defaults = { ...choices.defaults, gpu: DEFAULT_CARD };
    /** @type {Settings} */
    this.settings = { ...this.defaults };
    /** @type {Asked[]} */
    this.models = [{ model: DEFAULT_MODEL }];
    /** Index of the model shown in full. */
    this.chosen = 0;
    /** @type {View} */
    this.view = { over: 'context', scale: 'log', weights: false };
    this.changes = emitter();
  }

  /** The model shown in full. */
  get model() {
    return this.models[this.chosen];
  }

  /** @param {Partial<Settings>} values */
  set(values) {
    Object.assign(this.settings, values);
    this.changes.emit('settings');
  }

  /** Replaces the chosen model. @param {Asked} asked */
  replace(asked) {
    this.models[this.chosen] = asked;
    this.changes.emit('models');
  }

  /** Adds a model and chooses it. @param {Asked} asked */
  add(asked) {
    if (this.models.length >= this.choices.max_models) return;
    this.models.push(asked);
    this.chosen = this.models.length - 1;
    this.changes.emit('models');
  }

  /** @param {number} index */
  remove(index) {
    if (this.models.length === 1) return;
    this.models.splice(index, 1);
    if (this.chosen > index || this.chosen >= this.models.length) this.chosen--;
    this.changes.emit('models');
  }

  /** @param {number} index */
  choose(index) {
    if (index === this.chosen) return;
    this.chosen = index;
    this.changes.emit('chosen');
  }

  /** @param {Partial<View>} view */
  show(view) {
    Object.assign(this.view, view);
    this.changes.emit('view');
  }

  /**
   * Reads a URL. Parameters it doesn't name stay as they are. A value that isn't a number is kept for the server to
   * reject.
   * @param {URLSearchParams} query
   */
  load(query) {
    const models = query.getAll('model').slice(0, this.choices.max_models).map(askedOf);
    if (models.length) this.models = models;
    for (const name of /** @type {(keyof Settings)[]} */ (Object.keys(this.defaults))) {
      const text = query.get(name);
      if (text === null) continue;
      const value =
        name === 'gpu' && text === NO_CARD
          ? null
          : TEXTS.has(name)
            ? text
            : text.trim() === '' || Number.isNaN(Number(text))
              ? text
              : Number(text);
      Object.assign(this.settings, { [name]: value });
    }
    const chosen = Number(query.get('shown') ?? 1) - 1;
    if (Number.isInteger(chosen) && chosen >= 0 && chosen < this.models.length) this.chosen = chosen;
    if (query.get('over') === 'batch') this.view.over = 'batch';
    if (query.get('scale') === 'linear') this.view.scale = 'linear';
    if (query.get('weights') === 'with') this.view.weights = true;
  }

  /** The URL of this state, without default values. @param {URLSearchParams} [others] parameters of others, which stay @returns {string} */
  query(others = new URLSearchParams()) {
    const query = new URLSearchParams(others);
    for (const name of ['model', 'shown', 'over', 'scale', 'weights', ...Object.keys(this.defaults)])
      query.delete(name);
    for (const asked of this.models) query.append('model', textOf(asked));
    for (const [name, value] of Object.entries(this.settings)) {
      if (value !== this.defaults[/** @type {keyof Settings} */ (name)])
        query.set(name, value === null ? NO_CARD : String(value));
    }
    if (this.chosen > 0) query.set('shown', String(this.chosen + 1));
    if (this.view.over === 'batch') query.set('over', 'batch');
    if (this.view.scale === 'linear') query.set('scale', 'linear');
    if (this.view.weights) query.set('weights', 'with');
    return `?${query}`;
  }
}

/** An id as it is; another model as the JSON of the API. @param {Asked} asked @returns {string} */
function textOf(asked) {
  if ('model' in asked) return asked.model;
  if (!('config' in asked)) return JSON.stringify(asked);
  try {
    return JSON.stringify({ ...asked, config: JSON.parse(asked.config) });
  } catch {
    return JSON.stringify(asked);
  }
}

/** @param {string} text @returns {Asked} */
function askedOf(text) {
  if (!text.startsWith('{')) return { model: text };
  try {
    const { name, num_parameters, config, geometry } = JSON.parse(text);
    const shared = {
      ...(typeof name === 'string' && { name }),
      ...(typeof num_parameters === 'number' && { num_parameters }),
    };
    if (geometry !== null && typeof geometry === 'object') return { ...shared, geometry };
    return { ...shared, config: typeof config === 'string' ? config : JSON.stringify(config ?? {}) };
  } catch {
    return { config: text };
  }
}
