/** The memory of the GPUs as one bar: weights, overhead, the batch's cache, free, reserved and missing memory. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { h, replace, setText } from '../ui/dom.js';
import { count, fill, percent } from '../ui/format.js';
import { both, exact } from './units.js';
/** @import { Answer } from './types.d.ts' */
/** @typedef {{name: 'weights'|'overhead'|'cache'|'free'|'unused'|'beyond', bytes: number}} Part */

/** The parts of the bar, from left to right. `beyond` is the part that exceeds the memory. Pure.
 * @param {Answer} answer @returns {Part[]} */
export function partsOf({ settings, machine, models: [model] }) {
  const found = model.capacity;
  if (!machine || !found) return [];
  const all = machine.memory_bytes * settings.gpus;
  const free = found.kv_budget_bytes - found.batch_bytes;
  const parts = /** @type {Part[]} */ ([
    { name: 'weights', bytes: found.weight_bytes },
    { name: 'overhead', bytes: found.overhead_bytes },
    { name: 'cache', bytes: found.batch_bytes },
    { name: 'free', bytes: Math.max(0, free) },
    { name: 'unused', bytes: all - found.usable_bytes },
  ]);
  if (free < 0) parts.push({ name: 'beyond', bytes: -free });
  return parts.filter((part) => part.bytes > 0);
}

export class Bar {
  constructor() {
    this.title = h('h2', { class: 'strong calc-sub' });
    this.strip = h('div', { class: 'calc-strip', 'aria-hidden': 'true' });
    this.keys = h('ul', { class: 'cluster calc-keys' });
    this.sentence = h('p', { class: 'note calc-split' });
    this.element = h(
      'section',
      { class: 'calc-bar', 'aria-label': t.bar.label },
      this.title,
      this.strip,
      this.keys,
      this.sentence,
    );
  }

  /** @param {Answer} answer */
  update(answer) {
    const {
      settings,
      machine,
      models: [model],
    } = answer;
    const parts = partsOf(answer);
    this.strip.hidden = this.keys.hidden = parts.length === 0;
    setText(
      this.title,
      machine
        ? fill(settings.gpus === 1 ? t.bar.title : t.bar.titleMany, {
            gpus: count(settings.gpus),
            card: machine.name,
            bytes: both(machine.memory_bytes * settings.gpus),
          })
        : t.bar.none,
    );
    setText(this.sentence, splitText(answer));
    if (!machine || !model.capacity) return;
    const all = machine.memory_bytes * settings.gpus;
    const beyond = parts.find((part) => part.name === 'beyond')?.bytes ?? 0;
    const scale = Math.max(
      all,
      model.capacity.weight_bytes + model.capacity.overhead_bytes + model.capacity.batch_bytes,
    );
    const drawn = beyond ? overfull(parts, model.capacity.usable_bytes) : parts;
    replace(
      this.strip,
      drawn.map(({ name, bytes }) =>
        h('span', { class: `calc-part calc-part-${name}`, style: { '--share': bytes / scale } }),
      ),
      beyond > 0 && h('span', { class: 'calc-line', style: { '--at': model.capacity.usable_bytes / scale } }),
    );
    replace(
      this.keys,
      parts.map(({ name, bytes }) =>
        h(
          'li',
          { data: { part: name } },
          h('span', { class: `calc-key calc-part-${name}` }),
          h(
            'span',
            {},
            fill(
              t.bar.parts[name === 'cache' && (model.fixed_state || model.indexer_bytes_per_token) ? 'more' : name],
              { dtype: settings.weights_dtype },
            ),
          ),
          ' ',
          h('b', { title: exact(bytes) }, both(bytes)),
          h('span', { class: 'calc-share' }, ` ${percent(bytes / all)}`),
        ),
      ),
    );
  }
}

/**
 * If the batch doesn't fit, everything it needs is drawn: up to the usable memory normally, and the excess as too
 * much.
 * @param {Part[]} parts @param {number} usable @returns {Part[]}
 */
function overfull(parts, usable) {
  /** @type {Part[]} */
  const out = [];
  let at = 0;
  for (const part of parts) {
    if (!['weights', 'overhead', 'cache'].includes(part.name)) continue;
    const inside = Math.max(0, Math.min(part.bytes, usable - at));
    at += part.bytes;
    if (inside) out.push({ name: part.name, bytes: inside });
  }
  return [...out, { name: 'beyond', bytes: Math.max(0, at - usable) }];
}

/** How several GPUs share heads, and what the batch takes, or lacks. @param {Answer} answer @returns {string} */
function splitText({ settings, machine, models: [model] }) {
  const found = model.capacity;
  if (!machine || !found) return machine ? t.bar.unknown : t.bar.choose;
  const out = [];
  if (!found.weights_fit) out.push(fill(t.bar.noWeights, { bytes: both(-found.kv_budget_bytes) }));
  else if (!found.fits) out.push(fill(t.bar.noFit, { bytes: both(found.batch_bytes - found.kv_budget_bytes) }));
  if (settings.gpus > 1 && model.layer_groups.length) {
    const latent = model.layer_groups.some((group) => group.type === 'mla_latent');
    const heads = Math.min(...model.layer_groups.map((group) => group.kv_heads));
    out.push(
      fill(latent ? t.bar.latent : found.copies > 1 ? t.bar.copies : t.bar.heads, {
        kept: count(found.kv_heads_per_gpu),
        heads: count(heads),
        copies: count(found.copies),
      }),
    );
  }
  if (settings.prefix)
    out.push(
      fill(t.bar.prefix, {
        n: count(settings.prefix),
        once: both(found.shared_prefix_bytes),
        further: both(found.bytes_per_further_sequence),
      }),
    );
  return out.join(' ');
}
