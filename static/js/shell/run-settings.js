/** The settings of a run: cache sizes, and how requests share the cache. A change needs a new log. */
import { strings } from '../strings/main.js';
import { h } from '../ui/dom.js';
/** @import { Header } from '../core/types.d.ts' */
/** @import { Fields } from './fields.js' */

const text = strings.drawer;

/** The engine's defaults. @type {Record<string, number|boolean|string|null>} */
const DEFAULTS = {
  max_running: 8,
  token_budget: null,
  chunked_prefill: true,
  order: 'fcfs',
  preemption: 'recompute',
  eviction: 'lru',
  num_host_blocks: 0,
  offload: false,
};
const MAX_SEED = 2 ** 53 - 1;

/** @param {Fields} fields */
export function cacheFields(fields) {
  return h(
    'div',
    { class: 'grid' },
    fields.whole('block_size', text.blockSize, 16, 1, 256),
    fields.whole('num_blocks', text.numBlocks, 128, 1, 65536),
    fields.whole('prefill_chunk', text.chunk, 64, 1, 8192),
    fields.whole('run_seed', text.runSeed, 0, 0, MAX_SEED),
  );
}

/** @param {Fields} fields */
export function manyFields(fields) {
  return [
    h(
      'div',
      { class: 'grid' },
      fields.whole('max_running', text.maxRunning, 8, 1, 1024),
      fields.whole('token_budget', text.tokenBudget, NaN, 1, 65536, text.tokenBudgetHint),
      fields.select('order', text.order, text.orders),
      fields.select('preemption', text.preemption, text.preemptions),
      fields.whole('num_host_blocks', text.hostBlocks, 0, 0, 65536),
      fields.select('eviction', text.eviction, text.evictions),
    ),
    fields.check('chunked_prefill', text.chunked, true, text.chunkedHint),
    fields.check('offload', text.offload, false, text.offloadHint),
  ];
}

/** The settings in a header; undefined if the header doesn't have them. @param {Header} header @returns {Record<string, any>} */
function toldBy({ scheduler, policies, pool }) {
  const automatic = scheduler.prefill_chunk + scheduler.max_running - 1;
  return {
    max_running: scheduler.max_running,
    token_budget:
      scheduler.token_budget === undefined
        ? undefined
        : scheduler.token_budget === automatic
          ? null
          : scheduler.token_budget,
    chunked_prefill: scheduler.chunked_prefill,
    order: scheduler.order,
    preemption: scheduler.preemption,
    eviction: policies.eviction,
    offload: policies.offload,
    num_host_blocks: pool.num_host_blocks,
  };
}

/** @param {Fields} fields @param {string} name @returns {any} */
function valueOf(fields, name) {
  const value = DEFAULTS[name];
  if (typeof value === 'boolean') return fields.input(name).checked;
  return typeof value === 'string' ? fields.input(name).value : fields.value(name);
}

/** `start.config` without default values. @param {Fields} fields @returns {Record<string, number|boolean|string|null>} */
export function configOf(fields) {
  /** @type {Record<string, number|boolean|string|null>} */
  const config = {
    block_size: fields.value('block_size'),
    num_blocks: fields.value('num_blocks'),
    prefill_chunk: fields.value('prefill_chunk'),
    prefix_cache: fields.input('prefix_cache').checked,
    seed: fields.value('run_seed'),
    capture: fields.input('capture').checked,
  };
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    const value = valueOf(fields, name);
    if (value !== usual) config[name] = value;
  }
  return config;
}

/** Whether the settings differ from those of the running engine. @param {Fields} fields @param {Header} header @returns {boolean} */
export function asksForAnother(fields, header) {
  const config = configOf(fields);
  const told = toldBy(header);
  return (
    config.block_size !== header.pool.block_size ||
    config.num_blocks !== header.pool.num_blocks ||
    config.prefill_chunk !== header.scheduler.prefill_chunk ||
    config.prefix_cache !== header.policies.prefix_cache ||
    config.seed !== header.seed ||
    config.capture !== header.capabilities.includes('frames') ||
    Object.keys(DEFAULTS).some(
      (name) => valueOf(fields, name) !== (told[name] === undefined ? DEFAULTS[name] : told[name]),
    )
  );
}

/** Fills the inputs from the current run. @param {Fields} fields @param {Header} header */
export function showRun(fields, header) {
  fields.set('block_size', header.pool.block_size);
  fields.set('num_blocks', header.pool.num_blocks);
  fields.set('prefill_chunk', header.scheduler.prefill_chunk);
  fields.set('prefix_cache', header.policies.prefix_cache);
  fields.set('run_seed', header.seed);
  if (header.source === 'live') fields.set('capture', header.capabilities.includes('frames'));
  for (const [name, value] of Object.entries(toldBy(header)))
    fields.set(name, value === undefined ? DEFAULTS[name] : value);
}
