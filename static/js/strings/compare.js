/** The part of the catalogue that comparisons speak with: the lens, its captions, its glossary. `main.js` includes it. */

export const compareTab = 'Compare';
export const compareHint = 'The same model with another cache, side by side: what it costs and what it changes';

export const compareCaptions = {
  differs: {
    short: '{lane} would have said {token} here: KL {kl}.',
    long: 'Having read the same text, {lane} would have said {token} here, not {taken}: [KL] {kl}.',
    more: { short: 'Another one too: {lanes}.', long: 'Another token also comes from {lanes}.' },
  },
  agree: { short: 'All lanes say {taken}; the largest KL is {kl} ({lane}).', long: 'Every lane, having read the same text, says {taken} too. Farthest from the reference is {lane}: [KL] {kl}.' },
  exact: { short: 'All lanes say {taken}; logits differ by at most {diff}.', long: 'Every lane says {taken} too, and no [logit] differs from the reference’s by more than {diff}.' },
  found: { short: '{lane} found the word: {answer}.', long: '{lane} was asked for the word that the prompt hides and found it: {answer}.' },
  lost: { short: '{lane} lost the word: {answer}.', long: '{lane} was asked for the word that the prompt hides, “{word}”, and answered {answer}.' },
  allFound: { short: 'All {n} lanes found the word “{word}”.', long: 'Asked for the word that the prompt hides, “{word}”, all {n} lanes answered with it.' },
  someLost: { short: '{found} of {n} lanes found the word “{word}”; lost: {lanes}.', long: 'Asked for the word that the prompt hides, “{word}”, {found} of {n} lanes answered with it. Lost in {lanes}.' },
  probe: { short: 'A guess was answered after {time}.', long: 'The attacker guessed a prompt and saw one number: its first token came after {time}.' },
  forgotten: {
    tokens: { short: '{policy} forgets {n} of {request}.', long: 'The policy {policy} [forgets|forgetting] {n} of {request}, in every layer: no query reads that again.' },
    entries: { short: '{policy} forgets {n} of {request}, not the same in all layers and heads.', long: 'The policy {policy} [forgets|forgetting] {n} of {request}, chosen in each layer and head: no query reads that again.' },
    freed: { short: 'Empty now and given back: {blocks}.', long: 'Nothing is kept in {blocks} any more, and what is empty is given back.' },
    nTokens: { one: '1 token', many: '{n} tokens' }, nEntries: { one: '1 entry', many: '{n} entries' },
  },
  noCache: { short: 'Without a cache nothing is kept: all {blocks} blocks are given back.', long: 'This engine keeps no cache: what the step has computed is thrown away, and the next step computes all of it again. {blocks} blocks are blank.' },
  forced: { short: 'The text goes on with {token}, as in the reference.', long: 'The text of the reference goes on with {token}. This lane reads it, whatever it would have said itself.' },
};

export const compareGlossary = {
  kl: 'KL: how far a lane’s probabilities for the next token are from the reference’s, in nats. 0: the same.',
  logit: 'Logit: the score of a token before scores are turned into probabilities.',
  forgetting: 'Forgetting: a policy drops entries of a running request on purpose, to keep the cache small.',
};

export const compareLane = {
  chip: 'lane {index}: {spec}', back: 'back to the comparison', chipHint: 'This log is that of one lane: {title}. {about}',
};

export const compareLens = {
  label: 'Compare: the same text with another cache in each lane',
  tabs: { label: 'What is compared', lanes: 'Lanes', bandwidth: 'Bandwidth', timing: 'Who can see my cache?' },
  missing: 'This experiment is not part of this version of the page.',
  change: 'Change lanes', keep: 'Back to the lanes',
  setup: {
    title: 'The same prompt, with another cache in each lane',
    lead: 'Each lane runs the model with its own kind of cache. All of them read the text that the first one, the reference, writes; what each would have said itself is measured at every token.',
    presets: 'One click', own: 'Or choose lanes', prompt: 'Prompt', promptDefault: 'Write a short story about a lighthouse keeper who finds a map.',
    tokens: 'New tokens', lanes: 'Lanes', lane: 'Lane {n}', reference: 'Reference', add: 'Add a lane', remove: 'Remove lane {n}', combine: 'Combine with', nothing: 'nothing more',
    run: 'Compare', running: 'Starting', needle: 'Needle test', needleHint: 'The prompt hides a word among other text and asks for it at the end. Does each lane still find it?',
    families: { heads: 'Heads', latent: 'Latent', bits: 'Bits', forgetting: 'Forgetting', allocation: 'Allocation' },
    exact: 'computes the same', lossy: 'changes what the model says', optionOf: '{title}: {value}',
    noEngine: 'Nothing to compare in this recording.',
    noEngineLong: 'A comparison is a run with two to four lanes: the same prompt with and without a cache, with fewer heads or bits, or with entries forgotten. Run it on the live model, or open a recording of one.',
    isLane: 'This is lane {index} of a comparison: {spec}.', isLaneLong: 'Its own log is shown here, so the other lenses show what this lane does. All lanes side by side are in the comparison.', toComparison: 'Back to the comparison',
    noChoices: 'This engine offers no lanes to choose from.',
    open: 'Open a recording',
    preset: {
      cache: ['With and without a cache', 'What is computed again when nothing is kept'],
      heads: ['Heads: MHA, GQA, MQA', 'More heads, the model’s own, one for all'],
      bits: ['Fewer bits', '16, 8 and 4 bits instead of 32'],
      forgetting: ['Forgetting on purpose', 'A window, sinks, heavy hitters'],
      latent: ['Latent', 'One short vector instead of K and V'],
      allocation: ['Allocation', 'The same entries, kept in other places'],
      needle: ['Needle test', 'Is a word in the middle of the prompt still found?'],
    },
  },
  waiting: 'The lanes are ready and no token is generated yet.',
  tape: {
    label: 'What each lane writes, token below token', cursor: 'Token under the cursor, lane by lane', reference: 'reference', first: 'first difference', ended: 'ended', newest: 'Newest token',
    same: '{lane}, token {index}: {token}, as the reference', own: '{lane}, token {index}: the reference took {taken}; this lane, having read the same text, says {own} (KL {kl})', free: 'writing by itself it has {free} here',
    ref: '{lane}, token {index}: {token}', over: 'its own text has ended',
    note: ['From its first difference on a lane shows the text that it writes by itself.', 'below a token: having read the reference’s text, it would have said another one there.'], unequal: 'The sign for unequal',
    earlier: '‹ first difference: token {n}', later: 'first difference: token {n} ›',
    exactNote: 'Exact: at every token the most probable one is the reference’s, and no logit is off by more than {limit}, which is rounding.',
  },
  nTokens: { one: '1 token', many: '{n} tokens' },
  summary: {
    label: 'Each lane: what it costs, and what it does to the text', kl: '· KL {kl}', first: 'first difference: token {n}', firstHint: 'Show the first token at which {lane} differs',
    found: '✓ hidden word found', lost: '✗ hidden word lost',
  },
  lead: {
    none: '–', times: '{x}×', later: 'measured from the second token on',
    bytes_per_token: { of: 'per token', times: 'the cache', beside: '{own} per token, not {other}', same: '{own} per token too' },
    held_bytes: { of: 'of cache', times: 'the cache', beside: '{own} held, not {other}', same: '{own} held too' },
    read_bytes: { of: 'read per token', times: 'the reading', beside: '{own} per token, not {other}', same: '{own} per token too' },
    copied_bytes: { of: 'copied', times: 'the copying', beside: 'because its cache grew', same: '' },
    first_token_ms: { of: 'to the first token', times: 'the wait', beside: '{own} to the first token, not {other}', same: '{own} to the first token too' },
    ms_per_token: { of: 'per token', times: 'the time', beside: '{own} per token, not {other}', same: '{own} per token too' },
  },
  badge: {
    proved: '✓ exact: same tokens, logits ±{diff}', wrong: '✗ not exact: {why}', lossy: '{n} of {all} as the reference', none: 'not measured yet',
    tokens: '{n} of {all} tokens differ', logits: 'max |Δ logit| {diff} exceeds {limit}', reference: 'reference',
  },
  figures: {
    caption: 'Measured for request {letter}, {n} of {all} new tokens', figure: 'figure',
    bytes_per_token: ['Cache per token', 'Bytes of K and V that one more token costs, scales included'], held_bytes: ['Cache held', 'The blocks that the lane holds, scales and full-precision part included'],
    kv_projections: ['K/V projections so far', 'Tokens whose K and V were computed, counted'], read_bytes: ['Read by this step', 'Cache bytes that the last query read, as they are stored'],
    copied_bytes: ['Copied by growing', 'Bytes moved so far because the cache had to grow'], kept_share: ['Entries kept', 'Entries not forgotten, over all layers and heads'],
    first_token_ms: ['First token', 'Forward passes over the prompt, measured'], ms_per_token: ['Per token, median', 'Median of all tokens after the first, measured'],
    mean_kl: ['Mean KL', 'Mean distance of its probabilities from the reference’s, in nats; 0 is the same'], top1_agreement: ['Says the same token', 'Share of tokens where its most probable one is the reference’s'],
    perplexity: ['Perplexity of the text', 'How surprised the lane is by the shown text: e to the mean of −ln q'], first_divergence: ['First difference', 'First of the new tokens, counted from 0, at which it says another one'],
    max_abs_logit_diff: ['Largest |Δ logit|', 'Largest difference of one score from the reference’s, over all tokens'], needle: ['Hidden word', 'The lane’s own answer to the question at the end of the prompt'],
    hit: '{time}, {n} hit', never: 'none', at: 'token {n}', found: 'found', lost: 'lost', open: ['Open this lane', 'The lane has a log of its own, which every lens can show'], openCache: 'Cache', openPages: 'Pages', openLabel: 'Open the lane {lane} in {lens}', here: 'this log',
    times: '{x}×', ratio: '{text} ({x}×)', not: '–',
  },
  charts: {
    kl: 'KL to the reference at each token', klNote: 'nats, logarithmic; on the lowest line: {floor} or less', klNone: 'No lane here is lossy: nothing to draw. Their badges say how exact they are.',
    ms: 'Milliseconds per token', msNote: 'after the first token; measured on this machine, where the lanes share it',
    work: 'K/V projections so far', workCached: 'N', workNone: 'N(N+1)/2', workNote: 'N tokens from nothing: N with a cache, N(N+1)/2 without. Here {p} prompt tokens and then {n} new ones: {cached} with, {none} without.',
    token: 'new token', all: '{lane}: last {last}, largest {most}',
  },
  errors: {
    title: 'How far K and V are from the reference’s', note: '‖lane − reference‖ / ‖reference‖ after {n} tokens; rows are layers (0 at the bottom), columns KV heads. Each lane has a scale of its own; the bars compare their largest errors.', noteOne: '‖lane − reference‖ / ‖reference‖ after {n} tokens; rows are layers (0 at the bottom), columns KV heads.',
    pending: 'Measured now and then; not yet in this run.', largest: 'largest {max}', zero: 'none yet', zeroBits: 'What a step has just written is still there in full precision; the error shows once it is stored in fewer bits and read back.', zeroOther: 'So far every entry is as in the reference.',
    k: 'K', v: 'V', layer: 'layer', one: '{lane}: K mean {k}, largest {kMax} in layer {kLayer}; V mean {v}, largest {vMax} in layer {vLayer}', exactOnly: 'No lossy lane: nothing to measure.', cell: '{lane}, layer {layer}, KV head {head}: K {k}, V {v}',
  },
  kept: { title: 'What is forgotten', one: '{lane} keeps {percent} of its entries', link: 'see which ones in its Cache' },
  needle: { title: 'The hidden word', word: 'hidden in the prompt: “{word}”', found: 'found', lost: 'lost', answer: 'its answer', pending: 'not answered yet' },
  claims: {
    title: 'Claimed and measured', claim: 'often claimed', measured: 'measured here', from: 'from',
    cache: ['10–100× faster with a cache', 'time per token without ÷ with, at {n} tokens'], utilisation: ['2–4× better use of memory by paging', 'bytes held, contiguous ÷ paged, at {n} tokens'],
    heads: ['4–8× smaller with GQA', 'bytes per token, MHA ÷ GQA'], bits: ['2–4× smaller with int8 or int4', 'bytes per token, full precision ÷ {lane}'],
    none: '–', add: 'not measured: add {lanes}', and: ' and ', or: ' or ',
  },
  describe: '{n} lanes of request {letter}, {count} of {all} new tokens. {lanes}', describeLane: '{lane}: {cost}; {badge}.', describeSetup: 'A form to choose the lanes of a comparison.', describeNone: 'This run has no lanes.',
};
