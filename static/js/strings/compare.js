/** Texts of the Compare lens and its captions. `main.js` includes them. */

export const compareTab = 'Compare';
export const compareHint = 'Compare the model’s cache with others, side by side';

export const compareCaptions = {
  differs: {
    short: '{lane} would generate {token} here: KL {kl}.',
    long: 'After the same text, {lane} would generate {token} here instead of {taken}: [KL] {kl}.',
    more: { short: 'Others differ too: {lanes}.', long: 'Other lanes also differ: {lanes}.' },
  },
  agree: { short: 'All lanes predict {taken}; the largest KL is {kl} ({lane}).', long: 'After the same text, every lane predicts {taken} too. {lane} is farthest from the reference: [KL] {kl}.' },
  exact: { short: 'All lanes predict {taken}; logits differ by at most {diff}.', long: 'Every lane predicts {taken} too, and no [logit] differs from the reference by more than {diff}.' },
  found: { short: '{lane} found the word: {answer}.', long: '{lane} was asked for the word hidden in the prompt and found it: {answer}.' },
  lost: { short: '{lane} lost the word: {answer}.', long: '{lane} was asked for the word hidden in the prompt, “{word}”, and answered {answer}.' },
  allFound: { short: 'All {n} lanes found the word “{word}”.', long: 'All {n} lanes found the word hidden in the prompt, “{word}”.' },
  someLost: { short: '{found} of {n} lanes found the word “{word}”; lost: {lanes}.', long: '{found} of {n} lanes found the word hidden in the prompt, “{word}”. Lost in {lanes}.' },
  probe: { short: 'A guess was answered after {time}.', long: 'The attacker sent a guess and saw one number: the time to its first token, {time}.' },
  forgotten: {
    tokens: { short: '{policy} drops {n} of {request}.', long: 'The policy {policy} [drops|forgetting] {n} of {request} in every layer. No later query reads them.' },
    entries: { short: '{policy} drops {n} of {request}, not the same in every layer and head.', long: 'The policy {policy} [drops|forgetting] {n} of {request}, chosen per layer and head. No later query reads them.' },
    freed: { short: 'Now empty and released: {blocks}.', long: 'Nothing is left in {blocks}, so they’re released.' },
    nTokens: { one: '1 token', many: '{n} tokens' }, nEntries: { one: '1 entry', many: '{n} entries' },
  },
  noCache: { short: 'Without a cache, all {blocks} blocks are released.', long: 'This lane has no cache: it discards the K and V of this step, and the next step recomputes all of them. {blocks} blocks are blank.' },
  forced: { short: 'The text continues with {token}, as in the reference.', long: 'The reference’s text continues with {token}. This lane reads it, whatever it would generate itself.' },
};

export const compareLane = {
  chip: 'lane {index}: {spec}', back: 'back to the comparison', chipHint: 'You’re viewing the log of one lane: {title}. {about}',
};

export const compareLens = {
  label: 'Compare: the same text with a different cache in each lane',
  tabs: { label: 'Comparisons', lanes: 'Lanes', bandwidth: 'Bandwidth', timing: 'Timing attack' },
  missing: 'This experiment isn’t part of this version of the page.',
  change: 'Change lanes', keep: 'Back to the lanes',
  setup: {
    title: 'Run the same prompt with a different cache in each lane',
    lead: 'Each lane runs the model with its own cache. The first lane, the reference, writes the text, and all lanes read it. At every token, the comparison measures what each lane would generate itself.',
    presets: 'One click', own: 'Or choose lanes', prompt: 'Prompt', promptDefault: 'Write a short story about a lighthouse keeper who finds a map.',
    tokens: 'New tokens', lanes: 'Lanes', lane: 'Lane {n}', reference: 'Reference', add: 'Add a lane', remove: 'Remove lane {n}', combine: 'Combine with', nothing: 'nothing else',
    run: 'Compare', running: 'Starting', needle: 'Needle test',
    families: { heads: 'Heads', latent: 'Latent', bits: 'Bits', forgetting: 'Forgetting', allocation: 'Allocation' },
    exact: 'same results', lossy: 'changes the output',
    noEngine: 'This recording isn’t a comparison.',
    noEngineLong: 'A comparison runs one prompt in two to four lanes: with and without a cache, with fewer heads or bits, or with dropped entries. Run one on the live model, or open a recording of one.',
    isLane: 'This is lane {index} of a comparison: {spec}.', isLaneLong: 'You’re viewing its own log, so the other lenses show this lane. The comparison shows all lanes side by side.', toComparison: 'Back to the comparison',
    noChoices: 'This engine has no lanes to choose from.',
    open: 'Open a recording',
    preset: {
      cache: ['With and without a cache', 'How much is recomputed without a cache'],
      heads: ['Heads: MHA, GQA, MQA', 'More heads, the model’s own, or one for all'],
      bits: ['Fewer bits', '16, 8 and 4 bits instead of 32'],
      forgetting: ['Forgetting', 'A window, sinks, heavy hitters'],
      latent: ['Latent', 'One short vector instead of K and V'],
      allocation: ['Allocation', 'The same entries, allocated differently'],
      needle: ['Needle test', 'Which lanes still find a word in the middle of the prompt?'],
    },
  },
  waiting: 'The lanes are ready. No token is generated yet.',
  tape: {
    label: 'What each lane generates, token below token', cursor: 'Token under the cursor, lane by lane', reference: 'reference', first: 'first difference', ended: 'finished', newest: 'Newest token',
    same: '{lane}, token {index}: {token}, same as the reference', own: '{lane}, token {index}: the reference took {taken}; after the same text, this lane predicts {own} (KL {kl})', free: 'in its own text, it has {free} here',
    ref: '{lane}, token {index}: {token}', over: 'its own text has ended',
    note: ['From its first difference on, a lane shows its own text.', 'below a token: after the reference’s text, the lane would continue differently.'], unequal: 'The sign for unequal',
    earlier: '‹ first difference: token {n}', later: 'first difference: token {n} ›',
    exactNote: 'Exact: the most probable token is always the reference’s, and no logit differs by more than {limit} (rounding).',
  },
  nTokens: { one: '1 token', many: '{n} tokens' },
  summary: {
    label: 'Each lane’s cost, and its effect on the text', kl: '· KL {kl}', first: 'first difference: token {n}', firstHint: 'Show the first token where {lane} differs',
    found: '✓ hidden word found', lost: '✗ hidden word lost',
  },
  lead: {
    none: '–', times: '{x}×', later: 'measured from the second token on',
    bytes_per_token: { of: 'per token', times: 'the cache per token', beside: '{own} per token, not {other}', same: '{own} per token too' },
    held_bytes: { of: 'of cache', times: 'the cache held', beside: '{own} held, not {other}', same: '{own} held too' },
    read_bytes: { of: 'read per token', times: 'the bytes read', beside: '{own} per token, not {other}', same: '{own} per token too' },
    copied_bytes: { of: 'copied', times: 'the bytes copied', beside: 'because its cache grew', same: '' },
    first_token_ms: { of: 'to the first token', times: 'the time to first token', beside: '{own} to the first token, not {other}', same: '{own} to the first token too' },
    ms_per_token: { of: 'per token', times: 'the time per token', beside: '{own} per token, not {other}', same: '{own} per token too' },
  },
  badge: {
    proved: '✓ exact: same tokens, logits ±{diff}', wrong: '✗ not exact: {why}', lossy: '{n} of {all} match the reference', none: 'not measured yet',
    tokens: '{n} of {all} tokens differ', logits: 'max |Δ logit| {diff} exceeds {limit}', reference: 'reference',
  },
  figures: {
    caption: 'Measured for request {letter}, {n} of {all} new tokens', figure: 'figure',
    bytes_per_token: ['Cache per token', 'Bytes of K and V for one more token, including scales'], held_bytes: ['Cache held', 'Blocks the lane holds, including scales and the full-precision part'],
    kv_projections: ['K/V projections so far', 'Tokens whose K and V were computed'], read_bytes: ['Read by this step', 'Cache bytes the last query read, as stored'],
    copied_bytes: ['Copied by growing', 'Bytes copied so far because the cache grew'], kept_share: ['Entries kept', 'Entries not dropped, over all layers and heads'],
    first_token_ms: ['First token', 'Time of the forward passes over the prompt'], ms_per_token: ['Per token, median', 'Median time of all tokens after the first'],
    mean_kl: ['Mean KL', 'Mean KL divergence from the reference, in nats; 0 is the same'], top1_agreement: ['Same token', 'Share of tokens where its top candidate is the reference’s'],
    perplexity: ['Perplexity of the text', 'exp of the mean −ln q of the shown text'], first_divergence: ['First difference', 'Index of the first new token that differs, from 0'],
    max_abs_logit_diff: ['Largest |Δ logit|', 'Largest difference of a logit from the reference'], needle: ['Hidden word', 'The lane’s own answer to the question in the prompt'],
    hit: '{time}, {n} hit', never: 'none', at: 'token {n}', found: 'found', lost: 'lost', open: ['Open this lane', 'View the lane’s own log in every lens'], openCache: 'Cache', openPages: 'Pages', openLabel: 'Open lane {lane} in {lens}', here: 'this log',
    times: '{x}×', ratio: '{text} ({x}×)', not: '–',
  },
  charts: {
    kl: 'KL divergence from the reference per token', klNote: 'nats, logarithmic; the lowest line means {floor} or less', klNone: 'No lane here is lossy. The badges show how exact they are.',
    ms: 'Milliseconds per token', msNote: 'after the first token; the lanes share this machine',
    work: 'K/V projections so far', workCached: 'with a cache', workNone: 'without', workNote: 'Without a cache, every step recomputes the whole text. {p} prompt tokens and {n} new ones take {cached} projections with a cache and {none} without.',
    token: 'new token', all: '{lane}: last {last}, largest {most}',
  },
  errors: {
    title: 'Error of K and V', note: '‖lane − reference‖ / ‖reference‖ after {n} tokens. Rows are layers (0 at the bottom), columns are KV heads. Each lane has its own scale; the bars compare the largest errors.', noteOne: '‖lane − reference‖ / ‖reference‖ after {n} tokens. Rows are layers (0 at the bottom), columns are KV heads.',
    pending: 'Not measured yet in this run.', largest: 'largest {max}', zero: 'none yet', zeroBits: 'New entries stay in full precision at first. The error appears once they’re quantized and read back.', zeroOther: 'So far, every entry equals the reference’s.',
    k: 'K', v: 'V', layer: 'layer', one: '{lane}: K mean {k}, largest {kMax} in layer {kLayer}; V mean {v}, largest {vMax} in layer {vLayer}', exactOnly: 'No lane is lossy, so there is no error to measure.', cell: '{lane}, layer {layer}, KV head {head}: K {k}, V {v}',
  },
  kept: { title: 'Dropped entries', one: '{lane} keeps {percent} of its entries', link: 'show them in its Cache lens' },
  needle: { title: 'The hidden word', word: 'hidden in the prompt: “{word}”', found: 'found', lost: 'lost', answer: 'its answer', pending: 'not answered yet' },
  claims: {
    title: 'Claimed and measured', claim: 'often claimed', measured: 'measured here', from: 'from',
    cache: ['10–100× faster with a cache', 'time per token without ÷ with, at {n} tokens'], utilisation: ['2–4× better memory utilisation with paging', 'bytes held, contiguous ÷ paged, at {n} tokens'],
    heads: ['4–8× smaller with GQA', 'bytes per token, MHA ÷ GQA'], bits: ['2–4× smaller with int8 or int4', 'bytes per token, full precision ÷ {lane}'],
    none: '–', add: 'not measured: add {lanes}', and: ' and ', or: ' or ',
  },
  describe: '{n} lanes of request {letter}, {count} of {all} new tokens. {lanes}', describeLane: '{lane}: {cost}; {badge}.', describeSetup: 'A form to choose the lanes of a comparison.', describeNone: 'This run has no lanes.',
};
