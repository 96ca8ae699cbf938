/** The inputs of a study and their form in the URL. Pure, except for reading and writing query parameters. */

/**
 * `trace`: a generated trace's name or a file's id. Capacity: `blocks` (null: the server's choice) or, with
 * `byMemory`, the blocks of `model` in `dtype` that fit in `memory`. `prefill` in tokens per second.
 * @typedef {{trace: string, policies: string[], byMemory: boolean, blocks: number|null, memory: string, model: string, dtype: string, prefill: number, seed: number}} Asked
 */

export const POLICIES = ['lru', 'fifo', 'lfu', 'random', 'optimum'];
export const MAX_PREFILL = 1e12;

/** @returns {Asked} */
export function defaults() {
  return {
    trace: 'chats',
    policies: [...POLICIES],
    byMemory: false,
    blocks: null,
    memory: '40GiB',
    model: 'llama-3.1-8b',
    dtype: 'bf16',
    prefill: 10000,
    seed: 0,
  };
}

/** Reads a link; missing or invalid parameters have their defaults. @param {URLSearchParams} query @returns {Asked} */
export function askedOf(query) {
  const asked = defaults();
  const text = (/** @type {string} */ name) => query.get(name)?.slice(0, 80) || null;
  asked.trace = text('trace') ?? asked.trace;
  asked.byMemory = text('memory') !== null;
  asked.memory = text('memory') ?? asked.memory;
  asked.model = text('model') ?? asked.model;
  asked.dtype = text('dtype') ?? asked.dtype;
  asked.blocks = natural(text('blocks'));
  asked.seed = natural(text('seed')) ?? asked.seed;
  const prefill = Number(text('prefill') ?? asked.prefill);
  if (prefill > 0 && prefill <= MAX_PREFILL) asked.prefill = prefill;
  const policies = query.get('policies');
  if (policies !== null) asked.policies = POLICIES.filter((name) => policies.split(',').includes(name));
  return asked;
}

/** Writes the inputs to a URL, without default values. @param {Asked} asked @param {URLSearchParams} query */
export function saveAsked(asked, query) {
  const usual = defaults();
  const put = (
    /** @type {string} */ name,
    /** @type {string|number|null} */ value,
    /** @type {string|number|null} */ normal,
  ) => {
    if (value === null || value === normal) query.delete(name);
    else query.set(name, String(value));
  };
  put('trace', asked.trace, usual.trace);
  put('policies', asked.policies.join(','), usual.policies.join(','));
  put('blocks', asked.byMemory ? null : asked.blocks, null);
  put('memory', asked.byMemory ? asked.memory : null, null);
  put('model', asked.byMemory ? asked.model : null, null);
  put('dtype', asked.byMemory ? asked.dtype : null, usual.dtype);
  put('prefill', asked.prefill, usual.prefill);
  put('seed', asked.seed, usual.seed);
}

/** The request to the server. @param {Asked} asked @param {string} client @returns {URLSearchParams} */
export function jobQuery(asked, client) {
  const query = new URLSearchParams({
    client,
    trace: asked.trace,
    policies: asked.policies.join(','),
    seed: String(asked.seed),
  });
  if (asked.byMemory)
    for (const name of /** @type {const} */ (['memory', 'model', 'dtype'])) query.set(name, asked[name]);
  else if (asked.blocks !== null) query.set('blocks', String(asked.blocks));
  return query;
}

/** @param {string|null} text @returns {number|null} */
export function natural(text) {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}
