/** One sentence for each event: what just happened and why. `main.js` includes it. */

export const captions = {
  nothing: { short: 'Nothing has happened yet.', long: 'Nothing has happened yet.' },
  waiting: {
    short: 'Request {request} is waiting. Its {count} tokens aren’t computed yet.',
    long: 'Request {request} is waiting: none of its {count} tokens are cached yet. The next step starts its [prefill].',
  },
  hit: {
    short: '{hit} of {count} tokens hit the cache: {blocks} still {hold} their K and V.',
    long: '{request} starts like an earlier prompt. {blocks} still {hold} the {K} and {V} of its first {hit} tokens, so they aren’t computed again ([prefix hit]).',
  },
  miss: {
    last_token: {
      short: 'The last token is always computed: {hit} of {count} tokens hit.',
      long: 'More of the prompt is cached, but its last token must be computed: its [query] predicts the next token. {hit} of {count} tokens hit.',
    },
    shorter_than_block: {
      short: 'The prompt is too short for a prefix hit.',
      long: 'Only full [blocks|block] can hit, and no block is full before the last token of this prompt.',
    },
    nothing_cached: {
      short: 'Nothing is cached yet, so nothing hits.',
      long: 'The pool has no cached [prefix|prefix hit] yet, so all {count} tokens must be computed.',
    },
    disabled: {
      short: 'The prefix cache is off.',
      long: 'The prefix cache is off, so all {count} tokens are computed.',
    },
  },
  evicted: {
    short: 'Block {block} is evicted: it was at the head of the free queue.',
    long: 'Block {block} is [evicted|eviction]. It has been free since step {since} and was first of {free} in the [free queue]. {others} It loses its cached prefix.',
    others: 'Next in line: {list}.',
    alone: 'No other block was free.',
    many: {
      short: '{n} cached blocks are evicted from the head of the free queue: {list}.',
      long: 'Request {request} needs {need}, so {n} cached blocks are [evicted|eviction] in [free queue] order ({order}): {list}. They lose their cached prefixes.',
    },
  },
  allocated: {
    prompt: {
      short: 'Request {request} takes {blocks} from the head of the free queue.',
      long: 'Request {request} takes {blocks} from the head of the [free queue]: its {tokens} tokens don’t fit in the {held} it has.',
      first: 'Request {request} takes {blocks} from the head of the [free queue] for its first {tokens} tokens.',
    },
    decode: {
      short: 'The last block of {request} is full, so it takes {blocks}.',
      long: 'The last [block] of {request} is full, so it takes {blocks} from the head of the [free queue] for the next token.',
    },
  },
  prefill: {
    short: 'Prefill: {count} tokens pass through layer {layer} together.',
    long: '[Prefill|prefill]: {count} tokens pass through layer {layer} together. Each writes one {K} and one {V}.',
    all: {
      short: 'Prefill: {count} tokens pass through all {layers} layers together.',
      long: '[Prefill|prefill]: {count} tokens pass through all {layers} layers together. Each token writes one {K} and one {V} per layer.',
    },
    chunk: {
      short: 'Prefill, tokens {from}–{to} of {total}.',
      long: '[Chunked prefill|chunk]: tokens {from}–{to} of {total} pass through the layers together. Each writes one {K} and one {V} per layer.',
    },
  },
  decode: {
    write: {
      short: 'Layer {layer}: {token} writes one {K} and one {V}.',
      long: 'Layer {layer}: {token} writes its {K} and {V} to block {block}, slot {slot}.',
    },
    read: {
      short: 'Layer {layer}: the query of {token} reads all {count} entries.',
      long: 'Layer {layer}: the [query] of {token} reads all {count} entries, including its own. Then the query is discarded.',
    },
    window: {
      short: 'Layer {layer}: the query of {token} reads its last {count} entries.',
      long: 'Layer {layer} has a [window]: the [query] of {token} reads only the last {count} entries. Then the query is discarded.',
    },
    all: {
      short: '{token}: one write and one full read per layer.',
      long: '[Decode|decode]: in every layer, {token} writes one {K} and one {V}, and its [query] reads all {count} entries. The query is then discarded: no later token needs it.',
    },
  },
  sampled: {
    greedy: {
      short: 'The next token is {token} ({percent}).',
      long: 'The next token is {token} ({percent}), the most probable one. The next step will compute its {K} and {V}.',
    },
    sampled: {
      short: 'The next token is {token} ({percent}).',
      long: 'The next token is sampled: {token}, with probability {percent}. The next step will compute its {K} and {V}.',
    },
    last: {
      short: 'The last token is {token} ({percent}). It’s never cached.',
      long: 'The last token is {token} ({percent}). No step computes its {K} and {V}, so it’s never cached.',
    },
  },
  chunkDone: {
    short: '{computed} of {total} prompt tokens are cached.',
    long: '{computed} of {total} prompt tokens are cached. The first token is sampled after the last [chunk].',
  },
  finished: {
    eos: 'Request {request} finishes with {token}.',
    length: 'Request {request} has generated its {max} and finishes.',
    cancelled: 'Request {request} is cancelled.',
    failed: 'Request {request} failed.',
  },
  allBlocks: 'Its blocks',
  someShared: {
    one: '1 of its blocks is still shared; the others',
    many: '{n} of its blocks are still shared; the others',
  },
  released: {
    short: '{whose} drop to count 0: {kept} cached, {blanked} blank.',
    long: '{whose} drop to [reference count] 0: {kept} cached in the [free queue] until a prompt hits them or the space is needed, and {blanked} blank.',
    blank: {
      short: '{whose} are blank again.',
      long: '{whose} drop to [reference count] 0 and are blank again: none of them is full and cached.',
    },
    cached: {
      short: 'Its blocks are released: {kept} cached.',
      long: '{whose} drop to [reference count] 0: {kept} cached in the [free queue] until a prompt hits them or the space is needed.',
    },
    shared: { short: 'Its blocks are still in use.', long: 'Its blocks are still in use by other requests.' },
  },
  window: {
    short: '{blocks} left every window and are released.',
    long: 'No layer can read positions below {start} any more: {blocks} left every [window] and are released.',
  },
  reset: {
    short: 'The prefix cache is cleared: {n} blocks are no longer cached.',
    long: 'The prefix cache is cleared: {n} blocks are no longer cached. The order of the [free queue] stays.',
  },
  added: {
    short: 'Request {request} waits with {count} tokens.',
    long: 'Request {request} has joined. Its {count} tokens wait for [prefill].',
  },
  measured: {
    short: 'First token after {hit}; without the hit, {miss} (measured).',
    long: 'The first token of {request} took {hit}. With a fresh [salt], the same {count} tokens had no hit and took {miss}, measured in a separate pool on this machine.',
  },
  wrong: {
    short: 'This picture is wrong from step {step} on.',
    long: 'This picture is wrong from step {step} on: its digest differs from the engine’s. {what}',
  },
  empty: { short: 'The step computed nothing.', long: 'The step computed nothing.' },
  unknown: 'Step {step}.',
  listMore: '{list} and {n} more',
  blockOne: 'block {a}',
  blockMany: 'blocks {list}',
  nBlocks: { one: '1 stays', many: '{n} stay' },
  hold: { one: 'holds', many: 'hold' },
  nTokens: '{n} tokens',
  nBlank: { one: '1 becomes', many: '{n} become' },
  need: '{n} blocks',
  and: ' and ',
};

/** How requests affect each other. */
export const servingCaptions = {
  preempted: {
    recompute: {
      short: 'Request {request} is preempted and loses its {held} with {lost}: {because}.',
      long: 'Request {request} is [preempted|preemption] and loses its {held}: {because}. {kept}. The K and V of {lost} must be recomputed or hit the cache again.',
    },
    nothing: {
      short: 'Request {request} is preempted and loses its {held}: {because}.',
      long: 'Request {request} is [preempted|preemption] and loses its {held}: {because}. None of its tokens were computed, so no work is lost.',
    },
    swap: {
      short: 'Request {request} is swapped out: {because}. The host tier takes its {held}.',
      long: 'Request {request} is [preempted|preemption] by swapping: {because}. The [host tier] takes its {held} ({bytes} in {time}), so nothing is recomputed when it resumes.',
    },
    because: {
      last: 'it was admitted last, and {taker} needs {need} while {free} are free',
      priority: 'it has the lowest [priority], and {taker} needs {need} while {free} are free',
      own: {
        last: 'it needs {need} while {free} are free, and it was admitted last',
        priority: 'it needs {need} while {free} are free, and its [priority] is the lowest',
      },
    },
    kept: { one: 'It keeps its generated token', many: 'It keeps its {n} generated tokens' },
    lost: '{n} tokens',
    cached: {
      short: '{n} of those tokens are still cached.',
      long: '{n} of those tokens are still cached and will hit unless they’re evicted first.',
    },
    hostFull: { short: 'The host tier is full.', long: 'The [host tier] is too full to swap it out.' },
    others: { short: 'Also preempted: {requests}.', long: 'Also preempted: {requests}.' },
  },
  copied: {
    short:
      '{request} writes to block {source}, shared with {others}: it gets a copy, {source} → {block}. Count {before} → {after}.',
    long: '{request} is about to write to block {source}, shared with {others}, so it gets its own copy, {source} → {block} ([copy-on-write]). {n} used, {bytes} copied in {time}. The [reference count] of {source} goes {before} → {after}.',
    entries: '{n} entries',
    nobody: 'other requests',
    more: { short: 'Also copied for {requests}.', long: 'Also copied for {requests}.' },
  },
  swappedIn: {
    short: 'Request {request} is swapped in: {n} from the host tier in {time}.',
    long: 'Request {request} is swapped in: the [host tier] returns its {n} ({bytes}) in {time}, into {blocks}. Nothing is recomputed.',
  },
  offloaded: {
    short: 'The host tier gets a copy ({bytes}).',
    long: 'The contents of {blocks} are first copied to the [host tier], as host block {host} ({bytes} in {time}). A later hit fetches them back.',
    many: {
      short: 'The host tier gets copies of {n} of them ({bytes}).',
      long: 'The contents of {blocks} are first copied to the [host tier] ({bytes} in {time}). A later hit fetches them back.',
    },
  },
  hostEvicted: {
    short: 'The host tier is full and evicts its oldest prefix.',
    long: 'The [host tier] is full and evicts host block {host}, unused since step {since}.',
    many: {
      short: 'The host tier is full and evicts {n} prefixes.',
      long: 'The [host tier] is full and evicts its {n} least recently used prefixes.',
    },
  },
  fetched: {
    short: 'One block is fetched from the host tier in {time}.',
    long: 'One of its blocks was in the [host tier] and is fetched into {blocks}: {bytes} in {time}.',
    many: {
      short: '{n} blocks are fetched from the host tier in {time}.',
      long: '{n} of its blocks were in the [host tier] and are fetched into {blocks}: {bytes} in {time}.',
    },
  },
  hitHost: {
    short: '{hit} of {count} tokens hit the cache, in the host tier.',
    long: 'The [host tier] still holds the {K} and {V} of the first {hit} tokens of {request}, so they’re fetched instead of computed ([prefix hit]).',
  },
  hitAgain: {
    short: 'Request {request} resumes: {hit} of its {count} tokens are still cached.',
    long: 'Request {request} resumes after its [preemption]. {blocks} still {hold} the {K} and {V} of its first {hit} tokens, so only the rest of its {count} tokens is recomputed.',
  },
  /** Of a request that shares. */
  forked: {
    token: {
      short: '{request} branches off {parent} at token {position} with {token}.',
      long: 'Request {request} branches off {parent} at token {position}, with {token} in its place ([fork]).',
    },
    samples: {
      short: '{request} branches off {parent} at token {position}.',
      long: 'Request {request} branches off {parent} at token {position} and samples its own token there ([fork]).',
    },
    whole: { short: 'They share {n}.', long: 'They share {blocks}. All are full, so no copy is needed.' },
    partial: {
      short: 'They share {n}; block {last} is copied at the first write.',
      long: 'They share {blocks}, the last one only in part ({filled} of {size} entries). Whichever writes to block {last} first gets a copy ([copy-on-write]).',
    },
    waits: {
      short: '{request} branches off {parent} at token {position} and waits.',
      long: 'Request {request} branches off {parent} at token {position}. It can’t share blocks now, so its {count} tokens wait. Cached ones will hit; the rest is recomputed.',
    },
    waitsOver: {
      short: '{request} branches off {parent}, which has released its blocks, and waits.',
      long: 'Request {request} branches off {parent} at token {position}. {parent} has finished and released its blocks, so {count} tokens wait. Cached ones will hit; the rest is recomputed.',
    },
    count: '{n} blocks',
  },
  blocked: {
    blocks: {
      short: '{request} waits: it needs {need}, {free} are free.',
      long: '{request} isn’t admitted: it needs {need}, and {free} are free.',
    },
    budget: {
      short: '{request} waits: the token budget is used up.',
      long: '{request} isn’t admitted: the [budget] of this step is used up.',
    },
    slots: {
      short: '{request} waits: {running} requests are running, which is the limit.',
      long: '{request} isn’t admitted: the limit of running requests is reached.',
    },
    preemption: {
      short: '{request} waits: a request was just preempted.',
      long: '{request} isn’t admitted: a step that preempts a request admits no new one.',
    },
    one: { short: 'One more waits behind it.', long: 'One more waits.' },
    many: { short: '{n} more wait behind it.', long: '{n} more wait.' },
  },
  evicted: {
    fifo: {
      short: 'Block {block} is evicted: its prefix was cached first, in step {cached}.',
      long: 'Block {block} is [evicted|eviction]: of {free} free blocks, its prefix was cached first, in step {cached} (first in, first out). {others} It loses its cached prefix.',
    },
    lfu: {
      short: 'Block {block} is evicted: it had the fewest hits ({hits}).',
      long: 'Block {block} is [evicted|eviction]: of {free} free blocks, it had the fewest hits ({hits}; least frequently used). {others} It loses its cached prefix.',
    },
    random: {
      short: 'Block {block} is evicted: it was chosen at random.',
      long: 'Block {block} is [evicted|eviction]: it was chosen at random from {free} free blocks. {others} It loses its cached prefix.',
    },
    order: { lru: 'least recently used first', fifo: 'first cached first', lfu: 'fewest hits first', random: 'random' },
    many: '{request} need {need}, so {n} cached blocks are [evicted|eviction] in [free queue] order ({order}): {list}. They lose their cached prefixes.',
  },
  allocated: {
    fetch: {
      short: 'Request {request} takes {blocks} for its fetched blocks.',
      long: 'Request {request} takes {blocks} from the head of the [free queue], to fetch its blocks from the [host tier].',
    },
    swap_in: {
      short: 'Request {request} takes {blocks} to resume.',
      long: 'Request {request} takes {blocks} from the head of the [free queue], to be swapped in from the [host tier].',
    },
    many: {
      short: '{requests} take {n} blocks from the head of the free queue.',
      long: '{requests} take {blocks} from the head of the [free queue].',
    },
  },
  miss: {
    differs: {
      short: 'No hit beyond token {position}: the prompt differs there.',
      long: 'The lookup stops at token {position}: the prompt differs there from everything cached. From that [block] on, the [hashes|prefix hash] don’t match.',
      texts: {
        short: 'No hit beyond token {position}: {own} here, {other} there.',
        long: 'The lookup stops at token {position}: it’s {own} here, but {other} in {former}. From that [block] on, the [hashes|prefix hash] don’t match.',
      },
    },
    less_than_block: {
      short: 'Only {position} tokens match, less than a block: no hit.',
      long: 'The first {position} tokens match a cached prompt. That’s less than a [block] of {size}, and only full blocks can hit.',
      texts: {
        short: 'Only {position} tokens match: then {own} here, {other} there.',
        long: 'The prompt starts like {former}, but token {position} is {own} here and {other} there. {position} tokens are less than a [block] of {size}, and only full blocks can hit.',
      },
    },
    ends: {
      short: 'Only its first {position} tokens were ever cached.',
      long: 'The lookup stops at token {position}: only the tokens before it were ever cached.',
    },
    evicted: {
      short: 'The block from token {position} on was evicted in step {step}.',
      long: 'The lookup stops at token {position}: the next [block] was [evicted|eviction] in step {step}.',
    },
    other_keys: {
      short: 'The same tokens are cached, but with another {keys}: no hit.',
      long: 'The same tokens are cached, but with another {keys}, which is part of the [hash|prefix hash]. Nothing matches.',
    },
    nothing_shared: {
      short: 'No cached prompt starts like this one: no hit.',
      long: 'No cached prompt starts like this one, so all {count} tokens must be computed.',
    },
  },
  keys: {
    salt: 'salt',
    dtype: 'dtype',
    weights: 'model',
    codec: 'codec',
    windows: 'window layout',
    window: 'window layout',
  },
  batch: {
    short: '{parts}: {total} of {budget} tokens in the budget.',
    long: 'One batch: {parts}. That uses {total} of {budget} tokens in the [budget].',
    plain: { short: '{parts}.', long: 'One batch: {parts}.' },
    decode: '{requests} [decodes|decode]',
    decodes: '{requests} [decode]',
    prefill: '{request} [prefills|prefill] {n} tokens',
    prefillOne: '{request} [prefills|prefill] one token',
    more: ' and {n} more prefill',
    layer: {
      short: 'Layer {layer}.',
      long: 'They pass through layer {layer} together, and each reads and writes only its own blocks.',
    },
  },
  samples: {
    one: '{request} {token}',
    single: {
      short: 'The next token: {list}.',
      long: 'The next token: {list}. The next step will compute its {K} and {V}.',
    },
    short: 'The next tokens: {list}.',
    long: 'The next tokens of {n} requests: {list}. Their {K} and {V} aren’t computed yet.',
  },
  again: {
    short: '{request} recomputes {count} tokens.',
    long: '{request} recomputes {count} tokens, because it lost its blocks ([preemption]). They pass through the layers together.',
    done: {
      short: '{computed} of {total} tokens are cached again.',
      long: '{computed} of {total} tokens are cached again. The next token is sampled after the last one.',
    },
  },
  ends: {
    short: 'Requests {requests} finish: {kept} cached, {blanked} blank.',
    long: 'Requests {requests} finish. Of their blocks, {kept} cached in the [free queue] and {blanked} blank.',
  },
  reprioritised: {
    short: 'Request {request} now has priority {priority}.',
    long: 'Request {request} now has [priority] {priority}: lower numbers go first.',
  },
};
