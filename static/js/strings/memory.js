/** The part of the catalogue that the memory lens speaks with. `main.js` includes it. */

export const memoryTab = 'Memory';
export const memoryHint = 'How much memory the cache takes, by request and step, and what a token costs';

export const memoryTexts = {
  label: 'Memory: bytes of the cache over the steps of the engine',
  slots: '{n} slots',
  figures: {
    held: 'held of {capacity}', blocks: '{held} of {all} blocks', heldSlots: 'slots held of {capacity}',
    rate: 'per token', rateSlots: 'slot per token', grew: '{delta} in step {step}', same: 'no new block in step {step}', token: '1 slot', most: 'most so far {most}, in step {step}',
  },
  parts: { request: 'Request {letter}', rest: '{n} other requests', shared: 'Shared, counted once', wasted: 'Wasted', cached: 'Cached, free', host: 'Host tier' },
  partNotes: { wasted: 'held, but empty', cached: 'kept for a later hit' },
  partHints: {
    shared: 'Blocks that several requests hold, each counted once',
    wasted: 'Slots of held blocks with no entry in them, or with one that a policy has dropped',
    cached: 'Free blocks that keep a prefix for later: the first to go when a block is needed',
    host: 'Blocks in the host’s memory, beside the pool',
    rest: 'Requests that held less than the ones with a colour of their own',
  },
  chart: {
    label: '{what} over steps, by request. {now}', bytes: 'Bytes of the cache', slots: 'Slots of the pool',
    capacity: 'capacity {capacity}', capacityFar: 'capacity {capacity}, above ↑', weights: 'weights {weights}', crossing: 'step {step}: more cache than weights',
    notYet: 'not yet', here: 'step {step}', step: 'Step', host: 'host tier, {capacity}',
  },
  table: { caption: 'Cache by step, in bytes', captionSlots: 'Cache by step, in slots', step: 'Step', held: 'Held' },
  formula: {
    title: 'What a token costs', label: 'The formula, factor by factor',
    names: {
      pair: 'K and V', layers: 'layers', heads: 'KV heads', dim: 'numbers a head', element: 'bytes', latent: 'latent', rotary: 'shared rotary',
      keyHeads: 'heads of K', keyDim: 'numbers in K', valueHeads: 'heads of V', valueDim: 'numbers in V', stored: 'bytes as stored', unit: 'B',
    },
    token: 'a token', tokens: 'tokens', wasted: 'slots wasted', perToken: '{bytes} a token',
    stored: '{bytes} stored', held: '{bytes} held: {blocks} of {size} slots', times: '×', plus: '+', equals: '=',
    nBlocks: { one: '1 block', many: '{n} blocks' },
    none: '{n} of {all} layers store nothing: they read the entries of another one.',
    windowsAll: 'Every layer looks back {reach} tokens at most. What all have left behind is given back.',
    windowsSome: '{n} layers look back {reach} tokens at most. A block holds all layers, so it stays for the others; with a pool for each kind, a full context would take {needed}.',
    codec: 'Stored as {title}, scales counted.', codecBeside: 'The pool has {bytes} more, for recent blocks that also lie in full precision; they are not counted here.',
    noModel: 'These are the blocks of a workload without a model, so there are slots to count and no bytes.',
  },
  picture: {
    title: 'One token', label: 'One token in the cache: {layers} layers from left to right, heads from top to bottom, K above V. {caption}',
    all: '{n} layers, K above V: {bytes}',
    allLatent: '{n} layers, latent above rotary: {bytes}',
    pair: 'A head keeps two vectors: {bytes}', layers: 'Each of {n} layers keeps its own: {bytes} a layer', heads: '{n} KV heads in a layer, for {q} query heads',
    dim: '{n} numbers in one vector', element: '{n} bytes for every number', latent: 'One latent of {n} numbers for all heads', rotary: '{n} rotary numbers, shared by all heads', stored: '{bytes} in each layer, as stored',
    tokens: 'The whole of it, for {n}', wasted: '{n} lie empty in blocks that are held',
    nTokens: { one: '1 token', many: '{n} tokens' }, nSlots: { one: '1 slot', many: '{n} slots' },
  },
  beside: {
    title: 'Side by side', now: 'Held now', pool: 'The pool', full: 'One request of {tokens} tokens', weights: 'Weights',
    crossed: 'Since step {step} the cache takes more than the weights.',
    crossing: 'The cache outweighs the weights from {tokens} tokens on.', crossingPool: 'The cache outweighs the weights from {tokens} tokens on; this pool ends at {pool}.',
  },
  whatIf: { text: 'At 128K tokens this model would hold {bytes}.', ask: 'And a 70B model on four H100 cards?', link: 'Ask the calculator', href: 'calculator?model=llama-3.1-70b&gpu=h100&gpus=4&context=131072', day: 'What would a day of requests find cached?', traces: 'Replay a trace' },
  empty: { title: 'Nothing is cached yet.', long: 'The first step writes K and V of every token that it computes: {bytes} each. They go into blocks of {size} tokens; the pool of {capacity} has room for {tokens}.', longSlots: 'The first step takes blocks of {size} slots, until all {capacity} slots are held.' },
  describe: '{held} of {capacity} are held at step {step}, in {blocks}: {parts}. A token takes {rate}.',
  describeEmpty: 'Nothing is cached yet at step {step}. A token takes {rate}; the pool has {capacity}.',
};
