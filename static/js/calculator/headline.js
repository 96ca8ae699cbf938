/** The main figures: the cache as the largest, then bytes per token, what fits, and the maximum speed. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { h, replace, setText } from '../ui/dom.js';
import { binary, count, decimal, fill, three } from '../ui/format.js';
import { mark } from './mark.js';
import { both, dollars, exact, rate } from './units.js';
/** @import { Answer, Capacity, Machine, Model, Settings } from './types.d.ts' */

export class Headline {
  constructor() {
    this.title = h('h2', { class: 'calc-title' });
    this.kind = h('p', { class: 'calc-kind' });
    this.figures = h('dl', { class: 'calc-figures' });
    this.notes = h('ul', { class: 'note calc-notes' });
    this.element = h(
      'div',
      { class: 'calc-headline' },
      h('div', { class: 'cluster calc-heading' }, this.title, this.kind),
      this.figures,
      this.notes,
    );
  }

  /** @param {Answer} answer @param {number|null} index among several, or null when it is the only one */
  update({ settings, machine, models: [model] }, index) {
    replace(this.title, index !== null && [mark(index), ' '], model.name);
    const kind = t.kinds[/** @type {keyof typeof t.kinds} */ (model.kind)] ?? model.kind;
    setText(
      this.kind,
      fill(model.cached_layers === model.num_layers ? t.head.layers : t.head.someLayers, {
        kind,
        cached: model.cached_layers,
        layers: model.num_layers,
      }),
    );
    const figures = [totalFigure(model, settings), tokenFigure(model)];
    if (machine && model.capacity) figures.push(...fitFigures(model.capacity, machine, settings, model.max_context));
    replace(this.figures, figures);
    replace(
      this.notes,
      [...notes(model, settings), ...model.warnings].map((text) => h('li', {}, text)),
    );
  }
}

/** @param {string} name @param {string} label @param {string} value @param {(string|Node)[]} below @param {string} [className] */
function figure(name, label, value, below, className = '') {
  return h(
    'div',
    { class: `calc-figure ${className}`, data: { figure: name } },
    h('dt', { class: 'note' }, label),
    h('dd', { class: 'calc-value' }, value),
    below.map((line) => h('dd', { class: 'note calc-below' }, line)),
  );
}

/** The same size in other units. For a small size, the bytes are enough. @param {number} size @returns {string[]} */
function sizes(size) {
  return size < 1000 ? [] : [`= ${decimal(size)}`, `= ${exact(size)}`];
}

/** @param {Model} model @param {Settings} settings */
function totalFigure(model, settings) {
  const label = fill(settings.batch === 1 ? t.head.totalOne : t.head.total, {
    tokens: count(settings.context),
    batch: count(settings.batch),
    dtype: settings.dtype,
  });
  return figure(
    'total_bytes',
    label,
    binary(model.total_bytes),
    [...sizes(model.total_bytes), t.head.gib],
    'calc-main',
  );
}

/** @param {Model} model */
function tokenFigure(model) {
  const below = sizes(model.bytes_per_token);
  if (model.marginal_bytes_per_token !== model.bytes_per_token)
    below.push(fill(t.head.marginal, { bytes: exact(model.marginal_bytes_per_token) }));
  return figure('bytes_per_token', t.head.token, binary(model.bytes_per_token), below);
}

/** @param {Capacity} found @param {Machine} machine @param {Settings} settings @param {number|null} most that the model reads */
function fitFigures(found, machine, settings, most) {
  const where = fill(settings.gpus === 1 ? t.head.fit : t.head.fitMany, {
    gpus: count(settings.gpus),
    card: machine.name,
  });
  const longest =
    found.longest_context === null
      ? t.head.unbounded
      : fill(settings.batch === 1 ? t.head.longestOne : t.head.longest, {
          n: count(found.longest_context),
          batch: count(settings.batch),
        });
  const below = [fill(t.head.tokens, { n: count(found.tokens) }), longest];
  if (settings.prefix) below.push(fill(t.head.withoutPrefix, { n: count(found.max_sequences_without_prefix) }));
  if (most !== null && (found.longest_context === null || found.longest_context > most))
    below.push(fill(t.head.beyond, { n: count(most) }));
  const fits = figure(
    'max_sequences',
    where,
    fill(found.max_sequences === 1 ? t.head.sequence : t.head.sequences, { n: count(found.max_sequences) }),
    below,
    found.fits ? '' : 'calc-bad',
  );
  if (found.tokens_per_s === null) return [fits];
  const cost = found.cost_per_million_tokens;
  return [
    fits,
    figure('tokens_per_s', t.head.speed, fill(t.head.perSecond, { n: rate(found.tokens_per_s) }), [
      cost === null ? t.head.noPrice : fill(t.head.cost, { cost: dollars(cost) }),
      t.head.bound,
    ]),
  ];
}

/** Notes below the figures, one sentence each. @param {Model} model @param {Settings} settings @returns {string[]} */
function notes(model, settings) {
  const out = [];
  if (model.total_bytes_blocks !== model.total_bytes)
    out.push(
      fill(t.notes.blocks, {
        size: count(settings.block_size),
        bytes: both(model.total_bytes_blocks),
        exact: exact(model.total_bytes_blocks),
      }),
    );
  if (model.total_bytes_window_ignored !== model.total_bytes)
    out.push(
      fill(t.notes.windowIgnored, {
        bytes: both(model.total_bytes_window_ignored),
        exact: exact(model.total_bytes_window_ignored),
      }),
    );
  if (model.uncompressed_bytes_per_token !== null) {
    out.push(
      fill(t.notes.uncompressed, {
        exact: exact(model.uncompressed_bytes_per_token),
        times: three(model.uncompressed_bytes_per_token / model.bytes_per_token),
      }),
    );
  }
  if (model.indexer_bytes_per_token) out.push(fill(t.notes.indexer, { exact: exact(model.indexer_bytes_per_token) }));
  const state = model.fixed_state;
  if (state)
    out.push(
      fill(t.notes.state, {
        layers: count(state.layers),
        bytes: both(state.bytes_per_sequence),
        exact: exact(state.bytes_per_sequence),
        total: both(state.total_bytes),
      }),
    );
  return out;
}
