/** Texts of the Memory lens. `main.js` includes them. */

export const memoryTab = 'Memory';
export const memoryHint = 'See cache memory by request and step, and per token';

export const memoryTexts = {
  label: 'Memory: bytes of the cache over engine steps',
  slots: '{n} slots',
  figures: {
    held: 'held of {capacity}', blocks: '{held} of {all} blocks', heldSlots: 'slots held of {capacity}',
    rate: 'per token', rateSlots: 'slot per token', grew: '{delta} in step {step}', same: 'no new block in step {step}', token: '1 slot', most: 'peak {most}, in step {step}',
  },
  parts: { request: 'Request {letter}', rest: '{n} other requests', shared: 'Shared, counted once', wasted: 'Wasted', cached: 'Cached, free', host: 'Host tier' },
  partNotes: { wasted: 'held, but empty', cached: 'kept for a later hit' },
  partHints: {
    shared: 'Blocks that several requests hold, each counted once',
    wasted: 'Slots of held blocks without an entry, or with a dropped one',
    cached: 'Free blocks that keep a prefix for a later hit',
    host: 'Blocks in host memory, outside the pool',
    rest: 'Requests that held less than the coloured ones',
  },
  chart: {
    label: '{what} over steps, by request. {now}', bytes: 'Bytes of the cache', slots: 'Slots of the pool',
    capacity: 'capacity {capacity}', capacityFar: 'capacity {capacity}, above ↑', weights: 'weights {weights}', crossing: 'step {step}: more cache than weights',
    notYet: 'not yet', here: 'step {step}', step: 'Step', host: 'host tier, {capacity}',
  },
  table: { caption: 'Cache by step, in bytes', captionSlots: 'Cache by step, in slots', step: 'Step', held: 'Held' },
  formula: {
    title: 'What one token costs', label: 'The formula, factor by factor',
    names: {
      pair: 'K and V', layers: 'layers', heads: 'KV heads', dim: 'head dimension', element: 'bytes', latent: 'latent', rotary: 'shared rotary',
      keyHeads: 'K heads', keyDim: 'K dimension', valueHeads: 'V heads', valueDim: 'V dimension', stored: 'bytes as stored', unit: 'B',
    },
    token: 'per token', tokens: 'tokens', wasted: 'wasted slots', perToken: '{bytes} per token',
    stored: '{bytes} used', held: '{bytes} held: {blocks} of {size} slots', times: '×', plus: '+', equals: '=',
    nBlocks: { one: '1 block', many: '{n} blocks' },
    none: '{n} of {all} layers have no cache of their own: they read another layer’s entries.',
    windowsAll: 'Every layer reads the last {reach} tokens at most. Blocks that leave every window are released.',
    windowsSome: '{n} layers read the last {reach} tokens at most. A block holds all layers, so it stays for the others. With one pool per layer type, a full context would take {needed}.',
    codec: 'Stored as {title}, including scales.', codecBeside: 'The pool has another {bytes} for recent blocks that are also stored in full precision. They aren’t counted here.',
    noModel: 'This block workload has no model, so there are slots but no bytes.',
  },
  picture: {
    title: 'One token', label: 'One token in the cache: {layers} layers from left to right, heads from top to bottom, K above V. {caption}',
    all: '{n} layers, K above V: {bytes}',
    allLatent: '{n} layers, latent above rotary: {bytes}',
    pair: 'Each head stores two vectors: {bytes}', layers: 'Each of {n} layers stores its own: {bytes} per layer', heads: '{n} KV heads per layer, for {q} query heads',
    dim: '{n} values per vector', element: '{n} bytes per value', latent: 'One latent of {n} values for all heads', rotary: '{n} rotary values, shared by all heads', stored: '{bytes} per layer, as stored',
    tokens: 'The total, for {n}', wasted: '{n} are empty in held blocks',
    nTokens: { one: '1 token', many: '{n} tokens' }, nSlots: { one: '1 slot', many: '{n} slots' },
  },
  beside: {
    title: 'Side by side', now: 'Held now', pool: 'The pool', full: 'One request of {tokens} tokens', weights: 'Weights',
    crossed: 'Since step {step}, the cache takes more memory than the weights.',
    crossing: 'The cache outweighs the weights from {tokens} tokens on.', crossingPool: 'The cache outweighs the weights from {tokens} tokens on. This pool holds {pool}.',
  },
  whatIf: { text: 'At 128K tokens, this model’s cache would take {bytes}.', ask: 'What about a 70B model on four H100 GPUs?', link: 'Open the calculator', href: 'calculator?model=llama-3.1-70b&gpu=h100&gpus=4&context=131072', day: 'How much of a day’s requests would hit?', traces: 'Replay a trace' },
  empty: { title: 'Nothing is cached yet.', long: 'The first step writes the K and V of every token it computes, {bytes} each. They go into blocks of {size} tokens. The pool of {capacity} holds {tokens}.', longSlots: 'The first step allocates blocks of {size} slots. The pool has {capacity} slots.' },
  describe: '{held} of {capacity} are held at step {step}, in {blocks}: {parts}. A token takes {rate}.',
  describeEmpty: 'Nothing is cached yet at step {step}. A token takes {rate}; the pool has {capacity}.',
};
