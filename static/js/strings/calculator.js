/** Texts of the calculator page. `{name}` is a placeholder. */

export const calculatorTexts = {
  gone: 'The server can’t be reached. These are its last figures. Start it again, and this page reconnects.',
  goneFirst: 'The server can’t be reached. Start it again, and this page reconnects.',
  old: 'The figures below don’t include this change.',
  useDefault: '{name}: use {value}',
  spoken: '{name}: {bytes}, {exact}, for {tokens} tokens × {batch}.',
  spokenFits: '{n} sequences fit.',
  units: { byte: '{n} byte', bytes: '{n} bytes', billions: '{n} billion' },
  fault: {
    number: '{label} must be {expected} (got {text}).', nothing: 'nothing', tokens: 'a whole number such as 8,192, or 128K for 131,072', whole: 'a whole number', any: 'a number',
  },

  kinds: {
    mha: 'multi-head attention', gqa: 'grouped-query attention', mqa: 'multi-query attention', mla: 'latent attention', sliding: 'sliding window in every layer',
    hybrid_sliding: 'sliding window in some layers', chunked: 'chunked attention in some layers', shared_kv: 'layers share K and V', per_layer: 'layers differ in shape',
    hybrid_linear: 'attention and linear-attention layers', hybrid_ssm: 'attention and state-space layers', hybrid_parallel: 'attention and a state in each layer',
    mla_hybrid_linear: 'latent attention and linear-attention layers', ssm: 'a fixed state and no KV cache', compressed_sparse: 'compressed sparse attention', encoder_decoder: 'encoder-decoder', encoder_only: 'encoder',
  },

  model: {
    label: 'Model', list: 'Models', search: 'Search: llama, latent, window …', compared: 'Compared models', ways: 'How to specify the model',
    way: { list: 'From the list', config: 'config.json', numbers: 'Numbers' },
    none: 'No model in the list matches “{text}”. Paste its config.json instead.',
    perToken: '{bytes} per token', upTo: 'up to {n}', refused: 'unsupported: why?',
    add: '+ Compare another model', remove: 'Remove {name}', parameters: '{n} parameters.', source: 'Config read {date}: {source}.',
    offered: ['deepseek-v3', 'gpt-oss-20b', 'qwen3-8b', 'llama-3.1-70b', 'llama-3.1-8b'],
  },
  own: {
    config: 'The model’s config.json', paste: 'Paste it here, or drop the file anywhere on this page.', choose: 'Choose a file', name: 'Name',
    tooLarge: '{name} is too large: {n} bytes, and the limit is {max}. Choose a model’s config.json.', unreadable: '{name} could not be read. Choose it again, or paste its text.',
    parameters: 'Parameters', parametersExpected: 'a number such as 8030261248, 8.03B or 135M', parametersHint: 'To see what fits: 8.03B, 135M.',
    latent: 'Latent attention',
    numbers: {
      layers: 'Layers with a cache', kv_heads: 'KV heads', head_dim: 'Head dimension', v_head_dim: 'V dimension, if different', query_heads: 'Query heads', latent_dim: 'Latent dimension',
      rotary_dim: 'Rotary dimension', window: 'Window, tokens', windowed_layers: 'Layers with a window', max_context: 'Maximum context',
    },
  },

  settings: {
    more: 'Overhead, shared prefix, blocks and more', slider: 'Context, from 128 to 1M tokens', tokens: '{n} tokens', noCard: 'no GPU', noCardHint: 'Choose a GPU to see what fits.',
    cardSource: '{memory}, {bandwidth} TB/s, read {date}: {source}.', priceSource: '{price} per hour: {source}, read {date}.', noPrice: 'The list has no price for it. Enter yours.',
    context: { label: 'Context', unit: 'tokens', hint: undefined }, batch: { label: 'Batch', unit: 'sequences', hint: undefined }, dtype: { label: 'Cache in', unit: undefined, hint: undefined }, weights_dtype: { label: 'Weights in', unit: undefined, hint: undefined },
    gpu: { label: 'GPU', unit: undefined, hint: undefined }, gpus: { label: 'GPUs', unit: '×', hint: undefined }, price_per_hour: { label: 'Price', unit: '$ per hour', hint: undefined }, utilisation: { label: 'Memory used', unit: '%', hint: undefined },
    overhead_bytes: { label: 'Overhead', unit: 'GiB per GPU', hint: undefined }, prefix: { label: 'Shared prefix', unit: 'tokens', hint: undefined }, block_size: { label: 'Block size', unit: 'tokens', hint: undefined },
    group_size: { label: 'Group size of scales', unit: 'values', hint: undefined }, host_bytes: { label: 'Host memory', unit: 'GiB', hint: undefined }, memory_bytes: { label: 'GPU memory', unit: 'GiB', hint: undefined }, bandwidth: { label: 'Bandwidth', unit: 'TB/s', hint: undefined },
  },

  head: {
    layers: '{kind} · {layers} layers', someLayers: '{kind} · {cached} of {layers} layers have a cache',
    total: 'Cache in {dtype}: {tokens} tokens × {batch}', totalOne: 'Cache in {dtype}: {tokens} tokens', token: 'One more token', marginal: 'windows full: {bytes}',
    fit: 'Fits on {card}', fitMany: 'Fits on {gpus} × {card}', sequences: '{n} sequences', sequence: '{n} sequence', tokens: '{n} tokens in total', longest: 'longest context of {batch}: {n}', longestOne: 'longest context: {n}', beyond: 'model limit: {n}', unbounded: 'any context', gib: 'GiB: 2³⁰ bytes, GB: 10⁹',
    withoutPrefix: '{n} without sharing the prefix', speed: 'At most, bound by memory reads', perSecond: '{n} tokens/s', cost: 'from {cost} per million tokens', noPrice: 'no price known', bound: 'weights and cache, read once per step',
  },
  notes: {
    blocks: 'In blocks of {size} tokens, it takes {bytes} ({exact}).', windowIgnored: 'An engine that allocates the full context for every layer reserves {bytes} ({exact}).',
    uncompressed: 'An engine that expands the latent for every head stores {exact} per token, {times} times as much.', indexer: 'Sparse indexer keys take {exact} per token. They count only towards what fits.',
    state: 'In addition to the cache, {layers} layers keep a fixed state of {bytes} per sequence ({exact}), {total} for the batch.',
  },

  bar: {
    label: 'GPU memory', title: '{card}: {bytes}', titleMany: '{gpus} × {card}: {bytes}', none: 'No GPU is chosen.', choose: 'Choose a GPU, or enter its memory, to see what fits.', unknown: 'The parameter count is unknown. Enter it with the config.json or numbers to see what fits.',
    parts: { weights: 'weights in {dtype}', overhead: 'overhead', cache: 'cache of this batch', more: 'cache and other state of this batch', free: 'free', unused: 'reserved', beyond: 'over by' },
    noWeights: 'The weights and the overhead alone exceed the memory by {bytes}.', noFit: 'The batch doesn’t fit: it needs {bytes} more.',
    heads: 'Each GPU stores {kept} of {heads} KV heads.', copies: 'Each GPU stores {kept} of {heads} KV heads, so every head is stored {copies} times.',
    latent: 'A latent can’t be split by heads, so each GPU stores all of it.', prefix: 'The prefix of {n} tokens is stored once, in {once}. Each sequence adds {further}.',
  },
  beside: { title: 'Models side by side', columns: ['Model', 'Cache', 'Per token', 'Sequences', 'Longest context', 'Tokens/s', '$ per million'] },

  chart: {
    label: 'Bytes of the cache.', titleContext: '{what} by context, batch {batch}', titleBatch: '{what} by batch, {context} tokens each', cache: 'Cache', kept: 'Cache and other state', onCards: '{what} on {n} GPUs', withWeights: 'Weights, overhead and cache',
    over: 'By', overs: { context: 'Context', batch: 'Batch' }, scale: 'Scale', scales: { log: 'Log', linear: 'Linear' }, counted: 'Show', counts: { cache: 'Cache', all: 'With weights' },
    column: { context: 'Context, tokens', batch: 'Batch, sequences' }, unit: { context: 'tokens', batch: 'sequences' }, table: 'Bytes by model', point: '{name}: {bytes} at {n} {unit}.', limitWords: '{bytes} are available.',
    limit: 'memory', usable: 'usable memory {bytes}', room: 'available for {name}: {bytes}', noRoom: 'the weights leave no memory',
  },

  help: {
    title: 'What would help', nothing: 'None of these changes helps by itself.', undo: 'Undo: {name}', apply: 'Apply', compare: 'Compare', applyLabel: 'Apply: {name}', compareLabel: 'Compare with: {name}', fits: 'Fits:', longest: 'longest context {n}', cost: '{cost} per million', offload: '{n} of them offloaded, each restored in {time}',
    names: { gqa: '{n} KV heads: another model', fp8_cache: 'Cache in fp8', window: 'Window of {n} tokens: another model', offload: '{gib} GiB of host memory', fp8_weights: 'Weights in fp8', another_card: '{card}', more_cards: '{n} GPUs' },
    suffix: { gqa: ', {n} KV heads', window: ', window {n}' },
  },

  formula: {
    title: 'The formula, with this model’s numbers', hint: 'Hover over a number, or tab to it, to see what it counts.', none: 'No layer caches K and V per token, so nothing grows with the context.', group: '{layers} layers, {type}',
    perToken: 'bytes per token', inAll: 'bytes', sum: '{token} for one more token, and {total} ({both}) in total.', counts: '{value}: {text}{parts}',
    terms: {
      tensors: 'K and V', layers: 'layers', kv_heads: 'KV heads', head_dim: 'head dimension', element_bytes: 'bytes', entry: 'values', vector_bytes: 'bytes per vector', bytes_per_token: 'bytes per token', tokens: 'tokens', batch: 'sequences',
    },
    sequence: 'sequence',
  },
  picture: {
    label: 'One token in the cache: layers from left to right, KV heads from top to bottom, K above V.', heads: '{layers} layers of {heads} KV heads', latent: '{layers} layers, each a latent above its rotary part', vector: '{label}: {n} values', latentPart: 'latent', rotaryPart: 'rotary',
  },
  groups: {
    title: 'By layer group', caption: 'By layer group: {context} tokens × {batch}', group: 'Layers', kept: 'Tokens cached', name: '{layers} × {type}{heads}', heads: ', {n} KV heads', head: ', 1 KV head', all: 'All', within: ', window {window}',
    sizes: { bytes_per_token: 'Per token', marginal_bytes_per_token: 'One more, windows full', total_bytes: 'Total', total_bytes_blocks: 'In whole blocks' },
    types: { full: 'full context', sliding: 'window {window}', chunked: 'chunks of {window}', mla_latent: 'latent' }, state: '{layers} × {type}, not part of the cache', states: { linear: 'linear attention', ssm: 'state space', conv: 'convolution' },
  },
  mistakes: {
    title: 'Common mistakes', lead: 'Other calculators and articles have published figures with these mistakes. Here they are for your inputs.', columns: ['Mistake', 'Result', 'Correct', 'Error'],
    names: {
      heads: 'Query heads instead of KV heads', window: 'Windows ignored', layers: 'All {all} layers counted, but only {cached} have a cache', block: '{dtype}: bytes of a 32-value block used as bytes per value', split: 'KV heads split across {gpus} GPUs without copies: bytes of one GPU', unit: 'GiB written as GB',
    },
    tooMuch: '{n} × too much', tooLittle: '{n} × too little', unitWrong: '{n} “GB”', unitOff: '1.07 × too little',
  },
  copy: {
    label: 'Copy', names: { link: 'Link', text: 'Text', csv: 'CSV', json: 'JSON' }, hints: { link: 'Copy a link to this page', text: 'Copy the answer as text', csv: 'Copy all figures as CSV', json: 'Copy the whole answer as JSON' },
    done: '{what} copied.', failed: '{what} could not be copied: the browser blocked it.', tooLong: 'This state is too long for a link: {n} characters, and the limit is {max}. The URL is unchanged.',
    total: '{tokens} tokens × {batch} in {dtype}: {both} ({exact})', token: 'One more token: {both} ({exact})', fits: '{gpus} × {card}: {n} sequences fit; longest context of the batch: {longest}', speed: 'At most {n} tokens/s, bound by memory reads', cost: ', from {cost} per million tokens',
  },
};
