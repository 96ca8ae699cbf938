/** Texts of the calculator's page, in the shape of main.js: `{name}` is filled in. A translation is another file of it. */

export const calculatorTexts = {
  gone: 'The server does not answer, so the figures below are those of its last answer. Start it again; this page asks on by itself.',
  goneFirst: 'The server does not answer, so nothing can be calculated. Start it again; this page asks on by itself.',
  old: 'The figures below are those before it.',
  useDefault: '{name}: take {value}',
  spoken: '{name}: {bytes}, {exact}, for {tokens} tokens × {batch}.',
  spokenFits: '{n} sequences fit.',
  units: { byte: '{n} byte', bytes: '{n} bytes', billions: '{n} billion' },
  fault: {
    number: '{label}: {expected} is expected, but {text} came.', nothing: 'nothing', tokens: 'a whole number such as 8,192, or 128K for 131,072,', whole: 'a whole number', any: 'a number',
  },

  kinds: {
    mha: 'multi-head attention', gqa: 'grouped-query attention', mqa: 'multi-query attention', mla: 'latent attention', sliding: 'a window in every layer',
    hybrid_sliding: 'windows in some layers', chunked: 'chunks in some layers', shared_kv: 'layers that share K and V', per_layer: 'layers of unlike shape',
    hybrid_linear: 'attention beside layers with a fixed state', hybrid_ssm: 'attention beside state-space layers', hybrid_parallel: 'attention and a state in each layer',
    mla_hybrid_linear: 'latent attention beside layers with a fixed state', ssm: 'a fixed state and no KV cache', compressed_sparse: 'compressed sparse attention', encoder_decoder: 'encoder and decoder', encoder_only: 'encoder',
  },

  model: {
    label: 'Model', list: 'Models', search: 'Search: llama, latent, window …', compared: 'Models that are compared', ways: 'How the model is given',
    way: { list: 'From the list', config: 'config.json', numbers: 'Numbers' },
    none: 'No model of the list is called “{text}”; give its config.json.',
    perToken: '{bytes} a token', upTo: 'up to {n}', refused: 'refused: why?',
    add: '+ Compare with another', remove: 'Remove {name}', parameters: '{n} parameters.', source: 'Config read {date}: {source}.',
    offered: ['deepseek-v3', 'gpt-oss-20b', 'qwen3-8b', 'llama-3.1-70b', 'llama-3.1-8b'],
  },
  own: {
    config: 'The model’s config.json', paste: 'Paste it here, or drop the file anywhere on this page.', choose: 'Choose a file', name: 'Name',
    tooLarge: 'A config.json has at most {max} bytes here, but {name} has {n}; choose the config.json of a model.', unreadable: '{name} could not be read; choose it again, or paste its text.',
    parameters: 'Parameters', parametersExpected: 'a number such as 8030261248, 8.03B or 135M', parametersHint: 'For what fits: 8.03B, 135M.',
    latent: 'Latent attention',
    numbers: {
      layers: 'Layers that cache', kv_heads: 'KV heads', head_dim: 'Numbers of a head', v_head_dim: 'Of V, if other', query_heads: 'Query heads', latent_dim: 'Numbers of the latent',
      rotary_dim: 'Rotary numbers', window: 'Window, tokens', windowed_layers: 'Layers with it', max_context: 'Longest context',
    },
  },

  settings: {
    more: 'Overhead, shared prefix, blocks and more', slider: 'Context, from 128 to 1M tokens', tokens: '{n} tokens', noCard: 'no card', noCardHint: 'Choose a card to see what fits.',
    cardSource: '{memory}, {bandwidth} TB/s, read {date}: {source}.', priceSource: '{price} an hour: {source}, read {date}.', noPrice: 'No price of it is in the list; type yours.',
    context: { label: 'Context', unit: 'tokens', hint: undefined }, batch: { label: 'Batch', unit: 'sequences', hint: undefined }, dtype: { label: 'Cache in', unit: undefined, hint: undefined }, weights_dtype: { label: 'Weights in', unit: undefined, hint: undefined },
    gpu: { label: 'Card', unit: undefined, hint: undefined }, gpus: { label: 'Cards', unit: '×', hint: undefined }, price_per_hour: { label: 'Price', unit: '$ an hour', hint: undefined }, utilisation: { label: 'Memory used', unit: '%', hint: undefined },
    overhead_bytes: { label: 'Overhead', unit: 'GiB a card', hint: undefined }, prefix: { label: 'Shared prefix', unit: 'tokens', hint: undefined }, block_size: { label: 'Block', unit: 'tokens', hint: undefined },
    group_size: { label: 'Group of a scale', unit: 'numbers', hint: undefined }, host_bytes: { label: 'Host memory', unit: 'GiB', hint: undefined }, memory_bytes: { label: 'Memory of a card', unit: 'GiB', hint: undefined }, bandwidth: { label: 'Bandwidth', unit: 'TB/s', hint: undefined },
  },

  head: {
    layers: '{kind} · {layers} layers', someLayers: '{kind} · {cached} of {layers} layers cache',
    total: 'Cache in {dtype}: {tokens} tokens × {batch}', totalOne: 'Cache in {dtype}: {tokens} tokens', token: 'One more token', marginal: 'windows full: {bytes}',
    fit: 'Fit on {card}', fitMany: 'Fit on {gpus} × {card}', sequences: '{n} sequences', sequence: '{n} sequence', tokens: '{n} tokens together', longest: 'longest context of {batch}: {n}', longestOne: 'longest context: {n}', beyond: 'the model itself: {n} at most', unbounded: 'any context', gib: 'GiB: 2³⁰ bytes, GB: 10⁹',
    withoutPrefix: '{n} without sharing the prefix', speed: 'At most, by reading alone', perSecond: '{n} tokens/s', cost: 'from {cost} a million tokens', noPrice: 'no price known', bound: 'weights and cache, once a step',
  },
  notes: {
    blocks: 'In blocks of {size} tokens it takes {bytes} ({exact}).', windowIgnored: 'An engine that gives every layer pages for the whole context reserves {bytes} ({exact}).',
    uncompressed: 'An engine that expands the latent for every head keeps {exact} a token, {times} times as much.', indexer: 'Keys of the sparse indexer, not counted here but in what fits: {exact} a token.',
    state: 'Apart from the cache, {layers} layers keep a fixed state of {bytes} a sequence ({exact}), {total} for the batch.',
  },

  bar: {
    label: 'Memory of the card', title: '{card}: {bytes}', titleMany: '{gpus} × {card}: {bytes}', none: 'No card is chosen.', choose: 'Choose a card, or type its memory, to see what fits.', unknown: 'What fits is said where the parameters are known: a config.json or numbers can be given with them.',
    parts: { weights: 'weights in {dtype}', overhead: 'overhead', cache: 'cache of this batch', more: 'cache and all else of this batch', free: 'free', unused: 'held back', beyond: 'too much by' },
    noWeights: 'The weights and the overhead alone are too much by {bytes}.', noFit: 'The batch does not fit: {bytes} are missing.',
    heads: 'Each card keeps {kept} of {heads} KV heads.', copies: 'Each card keeps {kept} of {heads} KV heads, so that every head is there {copies} times.',
    latent: 'A latent cannot be split by heads, so each card keeps all of it.', prefix: 'The prefix of {n} tokens is stored once, in {once}; each sequence adds {further}.',
  },
  beside: { title: 'The models side by side', columns: ['Model', 'Cache', 'A token', 'Sequences', 'Longest context', 'Tokens/s', '$ a million'] },

  chart: {
    label: 'Bytes of the cache.', titleContext: '{what} over the context, batch {batch}', titleBatch: '{what} over the batch, {context} tokens each', cache: 'Cache', kept: 'Cache and all else that sequences keep', onCards: '{what} on {n} cards', withWeights: 'Weights, overhead and cache',
    over: 'Over', overs: { context: 'Context', batch: 'Batch' }, scale: 'Scale', scales: { log: 'Log', linear: 'Linear' }, counted: 'Counted', counts: { cache: 'Cache', all: 'With weights' },
    column: { context: 'Context, tokens', batch: 'Batch, sequences' }, unit: { context: 'tokens', batch: 'sequences' }, table: 'Bytes by model', point: '{name}: {bytes} at {n} {unit}.', limitWords: 'There is room for {bytes}.',
    limit: 'memory', usable: 'usable memory {bytes}', room: 'room for {name}: {bytes}', noRoom: 'no room beside the weights',
  },

  help: {
    title: 'What would help', nothing: 'No single change of these helps.', undo: 'Undo: {name}', apply: 'Apply', compare: 'Compare', applyLabel: 'Apply: {name}', compareLabel: 'Compare with: {name}', fits: 'Fits:', longest: 'longest context {n}', cost: '{cost} a million', offload: '{n} of them parked, each back in {time}',
    names: { gqa: '{n} KV heads: another model', fp8_cache: 'Cache in fp8', window: 'Window of {n} tokens: another model', offload: '{gib} GiB of host memory', fp8_weights: 'Weights in fp8', another_card: '{card}', more_cards: '{n} cards' },
    suffix: { gqa: ', {n} KV heads', window: ', window {n}' },
  },

  formula: {
    title: 'The formula, with this model’s numbers', hint: 'Point at a number, or tab to it, to see what it counts.', none: 'No layer keeps K and V of its tokens: there is nothing that grows.', group: '{layers} layers, {type}',
    perToken: 'bytes a token', inAll: 'bytes', sum: 'Together {token} for one more token, and {total} ({both}) in all.', counts: '{value}: {text}{parts}',
    terms: {
      tensors: 'K and V', layers: 'layers', kv_heads: 'KV heads', head_dim: 'numbers', element_bytes: 'bytes', entry: 'numbers', vector_bytes: 'bytes a vector', bytes_per_token: 'bytes a token', tokens: 'tokens', batch: 'sequences',
    },
    sequence: 'sequence',
  },
  picture: {
    label: 'One token in the cache: layers from left to right, KV heads from top to bottom, K above V.', heads: '{layers} layers of {heads} KV heads', latent: '{layers} layers of one latent above its rotary part', vector: '{label}: {n} numbers', latentPart: 'latent', rotaryPart: 'rotary',
  },
  groups: {
    title: 'By groups of layers', caption: 'By groups of layers: {context} tokens × {batch}', group: 'Layers', kept: 'Tokens kept', name: '{layers} × {type}{heads}', heads: ', {n} KV heads', head: ', 1 KV head', all: 'All', within: ', window {window}',
    sizes: { bytes_per_token: 'A token', marginal_bytes_per_token: 'One more, windows full', total_bytes: 'Total', total_bytes_blocks: 'In whole blocks' },
    types: { full: 'whole context', sliding: 'window {window}', chunked: 'chunks of {window}', mla_latent: 'latent' }, state: '{layers} × {type}, apart from the cache', states: { linear: 'linear attention', ssm: 'state space', conv: 'convolution' },
  },
  mistakes: {
    title: 'What is often counted wrong here', lead: 'Figures that other calculators and texts have published by these mistakes, worked out for what is asked above.', columns: ['Mistake', 'Then', 'Right', 'Off'],
    names: {
      heads: 'Query heads in place of KV heads', window: 'Windows ignored', layers: 'All {all} layers counted, though {cached} cache', block: '{dtype}: bytes of a block of 32 taken for those of a number', split: 'Heads split among {gpus} cards beyond one each: bytes of one card', unit: 'GiB written as GB',
    },
    tooMuch: '{n} × too much', tooLittle: '{n} × too little', unitWrong: '{n} “GB”', unitOff: '1.07 × too little',
  },
  copy: {
    label: 'Copy', names: { link: 'Link', text: 'Text', csv: 'CSV', json: 'JSON' }, hints: { link: 'Copy the link to this state', text: 'Copy the answer as text', csv: 'Copy all figures as CSV', json: 'Copy the whole answer as JSON' },
    done: '{what} copied.', failed: '{what} could not be copied; the browser refused.', tooLong: 'A link has at most {max} characters, and this state needs {n}, so the address stays as it was.',
    total: '{tokens} tokens × {batch} in {dtype}: {both} ({exact})', token: 'One more token: {both} ({exact})', fits: '{gpus} × {card}: {n} sequences fit; longest context of the batch: {longest}', speed: 'At most {n} tokens/s by reading alone', cost: ', from {cost} a million tokens',
  },
};
