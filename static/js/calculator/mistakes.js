/** Common mistakes, computed for the current model: the wrong figure, the right one, and the ratio. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { h, replace } from '../ui/dom.js';
import { count, decimal, fill, three } from '../ui/format.js';
import { headOf } from '../ui/table.js';
import { both, exact } from './units.js';
/** @import { Answer } from './types.d.ts' */
/** @typedef {{name: keyof typeof t.mistakes.names, wrong: number, right: number, values?: Record<string, string>}} Mistake bytes */

const LLAMA_GROUP = 32;

/** The mistakes that apply here, in bytes of the batch (of one GPU for `split`). Pure. @param {Answer} answer @returns {Mistake[]} */
function mistakesOf({ settings, machine, models: [model] }) {
  const right = model.total_bytes;
  const { layer_groups: groups, capacity: found } = model;
  /** @type {Mistake[]} */
  const out = [];
  const latent = groups.some((group) => group.type === 'mla_latent');
  const queryHeads = groups.reduce((sum, group) => sum + (group.total_bytes * group.query_heads) / group.kv_heads, 0);
  if (!latent && queryHeads > right) out.push({ name: 'heads', wrong: queryHeads, right });
  if (model.total_bytes_window_ignored > right)
    out.push({ name: 'window', wrong: model.total_bytes_window_ignored, right });
  if (groups.length === 1 && model.num_layers > model.cached_layers) {
    out.push({
      name: 'layers',
      wrong: (right * model.num_layers) / model.cached_layers,
      right,
      values: { all: count(model.num_layers), cached: count(model.cached_layers) },
    });
  }
  if (['q8_0', 'q4_0'].includes(settings.dtype))
    out.push({ name: 'block', wrong: right * LLAMA_GROUP, right, values: { dtype: settings.dtype } });
  if (
    machine &&
    found &&
    settings.gpus > 1 &&
    found.batch_bytes > model.total_bytes_blocks + (model.fixed_state?.total_bytes ?? 0)
  ) {
    out.push({
      name: 'split',
      wrong: right / settings.gpus,
      right: found.batch_bytes / settings.gpus,
      values: { gpus: count(settings.gpus) },
    });
  }
  return out;
}

export class MistakesNote {
  constructor() {
    this.body = h('tbody');
    this.element = h(
      'details',
      { class: 'calc-mistakes' },
      h('summary', {}, t.mistakes.title),
      h('p', { class: 'fine-note calc-hint' }, t.mistakes.lead),
      h(
        'div',
        { class: 'calc-scroll', tabindex: '0', role: 'region', 'aria-label': t.mistakes.title },
        h('table', { class: 'figures-table calc-table' }, headOf(t.mistakes.columns), this.body),
      ),
    );
  }

  /** @param {Answer} answer */
  update(answer) {
    const total = answer.models[0].total_bytes;
    const rows = mistakesOf(answer).map(({ name, wrong, right, values }) =>
      row(
        fill(t.mistakes.names[name], values),
        both(wrong),
        both(right),
        fill(wrong > right ? t.mistakes.tooMuch : t.mistakes.tooLittle, {
          n: three(Math.max(wrong / right, right / wrong)),
        }),
        [exact(wrong), exact(right)],
      ),
    );
    const gib = fill(t.mistakes.unitWrong, { n: (total / 2 ** 30).toFixed(2) });
    replace(
      this.body,
      rows,
      total > 0 && row(t.mistakes.names.unit, gib, decimal(total), t.mistakes.unitOff, [gib, exact(total)]),
    );
  }
}

/** @param {string} name @param {string} wrong @param {string} right @param {string} off @param {[string, string]} full */
function row(name, wrong, right, off, full) {
  return h(
    'tr',
    {},
    h('th', { scope: 'row' }, name),
    h('td', { title: full[0] }, wrong),
    h('td', { title: full[1] }, right),
    h('td', {}, off),
  );
}
