// Generated from kvviz/events.py by `python -m kvviz.log.schema`. Do not edit.
//
// In JSDoc: @typedef {import('./events.d.ts').Event} Event

export type FormatVersion = 1;

/**
 * The text of one token at its place in a sequence.
 *
 * `kind` is `text`, `special` (a control token, shown by name) or `bytes` (the token holds only part of a character).
 * A `bytes` piece has `hex` ("f0 9f"). The last piece of a character also has the complete character in `text`, and in
 * `joins` the number of tokens that form it, including itself. The `text` of all pieces of a sequence, joined, equals
 * the decoded sequence with special tokens by name. A character that is never completed has no text.
 */
export interface Piece {
  text: string;
  kind: "text" | "special" | "bytes";
  hex: string | null;
  joins: number | null;
}

/**
 * How the next token is chosen. `temperature` 0: greedy; `top_k` 0, `top_p` 1: off; `seed` None: the run's seed.
 */
export interface SamplingParams {
  temperature: number;
  top_k: number;
  top_p: number;
  seed: number | null;
}

/**
 * Where a request forked: it has the tokens of `parent_id` before `position`, and its own token there.
 *
 * `token_id` None: the fork computes the token before `position` again and samples its own.
 */
export interface ForkOrigin {
  parent_id: number;
  position: number;
  token_id: number | null;
}

/**
 * Why a prefix lookup matched this far and no further.
 *
 * `code`: `hit` (every full block that may hit did) · `last_token` (one more block matches, but the token at
 * `position`, the last, must be computed) · `differs` (the closest cached match has another token at `position`) ·
 * `ends` (the longest cached match ends before `position`) · `evicted` (the block that continues at `position` was
 * evicted at `step`) · `other_keys` (the same tokens are or were cached under another key, named in `keys`: salt,
 * dtype, weights …) · `less_than_block` (a cached prefix shares the first `position` tokens, less than a block) ·
 * `nothing_shared` · `nothing_cached` · `shorter_than_block` (the prompt has no full block that may hit) ·
 * `disabled`. `num_shared_tokens` is the length of the longest prefix shared with anything that is or was cached under
 * the same keys. The last 4,096 evicted blocks are remembered.
 */
export interface LookupReason {
  code: "hit" | "last_token" | "differs" | "ends" | "evicted" | "other_keys" | "less_than_block" | "nothing_shared" | "nothing_cached" | "shorter_than_block" | "disabled";
  position: number | null;
  num_shared_tokens: number;
  step: number | null;
  keys: string[];
}

/**
 * Why this cached block was evicted: the policy, the block's place in the free queue, and the blocks behind it.
 *
 * The policy orders the queue: `lru` by when the last user released the block, `fifo` by when the prefix was cached,
 * `lfu` by number of hits (ties as in `lru`), `random` at random. `free_since_step` is the step in which the last user
 * released the block (0: before the first step), `cached_since_step` the step in which its prefix was cached,
 * `num_hits` its number of hits. `alternatives` are up to four block ids that follow in the queue, head first.
 * `num_free` is the length of the queue before the block was taken.
 */
export interface EvictionReason {
  policy: "lru" | "fifo" | "lfu" | "random";
  queue_position: number;
  free_since_step: number;
  num_free: number;
  alternatives: number[];
  cached_since_step: number;
  num_hits: number;
}

/**
 * Why a block was allocated: `num_blocks_held` blocks are too few for tokens up to `num_tokens` - 1.
 *
 * `fetch`: a cached block returns from the host tier; `swap_in`: a block of a swapped request returns.
 */
export interface AllocationReason {
  code: "prompt" | "decode" | "fetch" | "swap_in";
  num_tokens: number;
  num_blocks_held: number;
}

/**
 * Why this request lost its blocks: `for_request_id` needs `num_blocks_needed`, and `num_free` are free.
 *
 * `code`: `recompute` (its tokens are computed again later) or `swap` (its entries move to the host tier). `order`:
 * the victim is the `last` of the running requests, or has the lowest `priority`. `host_full`: the host tier had no
 * space, so the request is recomputed instead of swapped. It keeps its `num_generated` tokens; `num_lost_tokens`
 * entries must be computed again or moved back.
 */
export interface PreemptionReason {
  code: "recompute" | "swap";
  order: "last" | "priority";
  for_request_id: number;
  num_blocks_needed: number;
  num_free: number;
  num_blocks_held: number;
  num_generated: number;
  num_lost_tokens: number;
  host_full: boolean;
}

/**
 * The tokens of one request that a step computes: `start` to `start + num_tokens` - 1.
 *
 * `kind` is `prefill` for tokens that were already known, and `decode` for the one token sampled last.
 */
export interface Chunk {
  request_id: number;
  start: number;
  num_tokens: number;
  kind: "prefill" | "decode";
}

/**
 * The request at the head of the waiting queue that a step did not admit, and why. Those behind it wait as well.
 *
 * With `blocks`, the request needs `num_blocks_needed` blocks, and `num_free` are free.
 */
export interface Blocked {
  request_id: number;
  code: "blocks" | "budget" | "slots" | "preemption";
  num_blocks_needed: number | null;
  num_free: number | null;
}

/**
 * A token the model might have produced, with its probability after temperature and before top-k and top-p.
 */
export interface Candidate {
  token_id: number;
  probability: number;
  piece: Piece;
}

/**
 * How the token was chosen, and how many tokens remained after top-k and top-p.
 *
 * `forced`: the compared text dictates the token; the first candidate is the model's own choice.
 */
export interface SampleReason {
  code: "greedy" | "sampled" | "forced";
  num_considered: number;
}

/**
 * Why a request ended: `eos` (it sampled an end token), `length` (its token limit), `cancelled`, `failed`.
 */
export interface FinishReason {
  code: "eos" | "length" | "cancelled" | "failed";
  token_id: number | null;
}

/**
 * Why blocks were released.
 *
 * The request ended (`finished`, `cancelled`, `failed`), was `preempted` or `swapped` out, or its `window` moved on.
 * `forgotten`: no layer or head keeps an entry of these blocks. `no_cache`: the step is over and this engine keeps
 * nothing between steps.
 */
export interface ReleaseReason {
  code: "finished" | "cancelled" | "failed" | "preempted" | "swapped" | "window" | "forgotten" | "no_cache";
  window_start: number | null;
}

/**
 * A request joined the waiting queue. Its prompt is known; none of it is computed.
 *
 * `continues` is the request whose conversation this one continues; the prompt repeats its history. `prompt` is the
 * text as the user wrote it. `token_ids` are what the model gets, chat template included. The first
 * `num_prompt_tokens` of them are the prompt (None: all of them; a fork also has tokens that were generated before
 * it). Under `priority` order, a smaller `priority` goes first.
 */
export interface RequestAdded {
  type: "request_added";
  request_id: number;
  prompt: string;
  token_ids: number[];
  pieces: Piece[];
  max_new_tokens: number;
  sampling: SamplingParams;
  template: boolean;
  salt: string | null;
  continues: number | null;
  num_prompt_tokens: number | null;
  priority: number;
  fork: ForkOrigin | null;
}

/**
 * A fork shares blocks with its parent and runs. The reference count of each shared block rose by one.
 *
 * `block_ids` is the fork's block table (None where a block is outside the window). K and V exist for its first
 * `num_computed` tokens. If both go on to write to the same block, the first writer gets a copy.
 */
export interface RequestForked {
  type: "request_forked";
  request_id: number;
  parent_id: number;
  block_ids: (number | null)[];
  num_computed: number;
  window_start: number;
}

/**
 * The priority of a request changed.
 */
export interface RequestReprioritised {
  type: "request_reprioritised";
  request_id: number;
  priority: number;
}

/**
 * Step `step` started (counted from 1). All events up to the matching `step_finished` belong to it.
 */
export interface StepStarted {
  type: "step_started";
  step: number;
}

/**
 * The full blocks of a prompt were looked up in the prefix cache, in order, up to the first miss.
 *
 * `num_host_tokens` of the hit tokens are in the host tier. They follow those in `hit_block_ids` and are fetched from
 * there.
 */
export interface PrefixLookedUp {
  type: "prefix_looked_up";
  request_id: number;
  num_tokens: number;
  num_hit_tokens: number;
  hit_block_ids: number[];
  reason: LookupReason;
  num_host_tokens: number;
}

/**
 * A request left the waiting queue and runs. Its first `num_hit_tokens` tokens count as computed.
 *
 * Also emitted when a preempted request resumes.
 */
export interface RequestStarted {
  type: "request_started";
  request_id: number;
  num_hit_tokens: number;
}

/**
 * A cached block joined the block table of a request; its reference count rose by one.
 *
 * If the block was free, it left the free queue.
 */
export interface BlockShared {
  type: "block_shared";
  request_id: number;
  logical_index: number;
  block_id: number;
}

/**
 * A cached block is about to be evicted, and was copied to the host tier under its prefix hash.
 */
export interface BlockOffloaded {
  type: "block_offloaded";
  block_id: number;
  host_id: number;
  hash: string;
  num_bytes: number;
  copy_us: number;
}

/**
 * The host tier was full, so it evicted its least recently used prefix.
 */
export interface HostEvicted {
  type: "host_evicted";
  host_id: number;
  hash: string;
  since_step: number;
}

/**
 * The block at the head of the free queue is needed and lost the cached prefix it held.
 */
export interface BlockEvicted {
  type: "block_evicted";
  block_id: number;
  hash: string;
  reason: EvictionReason;
}

/**
 * The head of the free queue joined the block table of a request, empty and with reference count 1.
 */
export interface BlockAllocated {
  type: "block_allocated";
  request_id: number;
  logical_index: number;
  block_id: number;
  reason: AllocationReason;
}

/**
 * Copy-on-write: before writing to a block that others also use, a request got a copy of its own.
 *
 * The copy holds the first `num_tokens` entries and comes from the head of the free queue. It replaces `from_block_id`
 * in the block table, whose reference count fell by one.
 */
export interface BlockCopied {
  type: "block_copied";
  request_id: number;
  logical_index: number;
  from_block_id: number;
  block_id: number;
  num_tokens: number;
  num_bytes: number;
  copy_us: number;
}

/**
 * A prefix hit in the host tier: its entries moved to a newly allocated block, and the host block is free.
 */
export interface BlockFetched {
  type: "block_fetched";
  request_id: number;
  logical_index: number;
  block_id: number;
  host_id: number;
  hash: string;
  num_bytes: number;
  copy_us: number;
}

/**
 * A full block was registered under its chained prefix hash.
 *
 * As in vLLM, this happens when its tokens are scheduled, before K and V are written. `duplicate_of` is the first
 * block already registered under the same hash, if any; lookups continue to return that one.
 */
export interface BlockCached {
  type: "block_cached";
  request_id: number;
  logical_index: number;
  block_id: number;
  hash: string;
  parent_hash: string | null;
  duplicate_of: number | null;
}

/**
 * A running request gives way to another. The following events release its blocks, and it waits at the front.
 *
 * With `recompute`, none of its tokens counts as computed. With `swap`, its entries move to the host tier.
 */
export interface RequestPreempted {
  type: "request_preempted";
  request_id: number;
  reason: PreemptionReason;
}

/**
 * The blocks of a preempted request were copied to the host tier, one host block each, before their release.
 */
export interface BlocksSwappedOut {
  type: "blocks_swapped_out";
  request_id: number;
  logical_indices: number[];
  block_ids: number[];
  host_ids: number[];
  num_bytes: number;
  copy_us: number;
}

/**
 * The blocks of a swapped request were copied back to newly allocated ones. It runs; its host blocks are free.
 */
export interface BlocksSwappedIn {
  type: "blocks_swapped_in";
  request_id: number;
  logical_indices: number[];
  block_ids: number[];
  host_ids: number[];
  num_bytes: number;
  copy_us: number;
}

/**
 * What a step computes: one flat batch of these chunks, in this order, within `budget` tokens.
 *
 * `blocked` is the request at the head of the waiting queue that was not admitted, and what was missing: `blocks`,
 * `budget`, `slots` (the maximum number of requests is running) or `preemption` (a step that preempts admits nothing).
 */
export interface StepScheduled {
  type: "step_scheduled";
  step: number;
  chunks: Chunk[];
  budget: number | null;
  blocked: Blocked | null;
}

/**
 * K and V of these positions were written into these slots, in every layer that stores any.
 *
 * Emitted once per step and request, after the forward pass. The record's `seq` is the `write_seq` of the entries.
 * `layers` is the order in which the layers wrote. `layer_us` is when each layer wrote, and `read_us` when its
 * attention had read the entries, in microseconds since the forward pass started.
 */
export interface KvWritten {
  type: "kv_written";
  request_id: number;
  positions: number[];
  slots: number[];
  layers: number[];
  layer_us: number[];
  read_us: number[];
}

/**
 * A policy dropped entries of a request after they were read. They are never read again; their blocks may remain.
 *
 * `dropped[layer][head]` lists positions. A single list of heads stands for all layers if they drop the same entries,
 * and a single list of positions for all KV heads of a layer. The next event releases blocks with no entries left.
 */
export interface KvForgotten {
  type: "kv_forgotten";
  request_id: number;
  policy: string;
  dropped: number[][][];
}

/**
 * A token was chosen for `position`. Its K and V don't exist yet; the step that computes the token writes them.
 */
export interface TokenSampled {
  type: "token_sampled";
  request_id: number;
  position: number;
  token_id: number;
  piece: Piece;
  candidates: Candidate[];
  reason: SampleReason;
}

/**
 * A request ended. The following events release its blocks.
 */
export interface RequestFinished {
  type: "request_finished";
  request_id: number;
  reason: FinishReason;
}

/**
 * A request released blocks. The reference count of each fell by one, in the order of `block_ids`.
 *
 * `logical_indices` are their places in the block table, now empty. Blocks that reached count 0 entered the free
 * queue: those in `prepended` (no cached prefix, empty again) as one batch at its head, those in `appended` (still
 * cached) at its tail, each list in queue order. `places` is then None. Under policies other than `lru`, the blocks
 * were inserted one by one, each at the given place of the queue (0: the head).
 */
export interface BlocksReleased {
  type: "blocks_released";
  request_id: number;
  block_ids: number[];
  logical_indices: number[];
  prepended: number[];
  appended: number[];
  reason: ReleaseReason;
  places: number[] | null;
}

/**
 * The cached prefixes of these blocks were discarded. The blocks stay where they are, in use or free.
 *
 * `reason`: `reset`, all of them; `unwritten`, registered in a step that failed, or for a request preempted in it;
 * `overwritten`, a fork writes to a full block of its parent that is not used elsewhere.
 */
export interface PrefixCacheReset {
  type: "prefix_cache_reset";
  block_ids: number[];
  reason: "reset" | "unwritten" | "overwritten";
}

/**
 * The prompt of a request that hit the prefix cache was computed once more under a fresh salt, without a hit.
 *
 * The measurement uses its own pool and leaves this one unchanged. `first_token_us` is its time to first token, and
 * `hit_first_token_us` that of the request. Both run from the start of the first step to the sampled token, summed
 * over the steps.
 */
export interface MissMeasured {
  type: "miss_measured";
  request_id: number;
  num_tokens: number;
  first_token_us: number;
  hit_first_token_us: number;
}

/**
 * Measurements of one comparison lane for one token of the text that lane 0, the reference, generates.
 *
 * The lane is teacher-forced: at `position`, it has read the same tokens as the reference. `own_token_id` is its most
 * probable token there, `token_id` the token taken, and `agrees` is whether they match. `kl` is Σ p ln(p / q) in nats,
 * where p are the probabilities of the reference and q those of the lane. `nll` is -ln q(`token_id`), `max_abs_diff`
 * the largest difference between two logits. `free_token_id` is the token at `position` when the lane generates
 * freely, or None once that text has ended.
 *
 * `num_projections`: tokens whose K and V were computed for this request so far. `held_bytes`: the blocks it holds,
 * including scales and the full-precision part. `read_bytes`: the stored entries that its last query read.
 * `copied_bytes`: bytes moved so far because the cache grew. `kept_share`: the share of entries not forgotten, over
 * all layers and heads. `step_us`: the forward passes since the previous token; for the first token, those of the
 * prompt.
 */
export interface LaneMeasured {
  type: "lane_measured";
  lane: number;
  request_id: number;
  position: number;
  token_id: number;
  own_token_id: number;
  own_piece: Piece;
  agrees: boolean;
  kl: number;
  nll: number;
  max_abs_diff: number;
  free_token_id: number | null;
  free_piece: Piece | null;
  num_projections: number;
  num_hit_tokens: number;
  held_bytes: number;
  read_bytes: number;
  copied_bytes: number;
  kept_share: number;
  step_us: number;
}

/**
 * How much the K and V that attention reads in a lane differ from the reference, after `num_tokens` tokens.
 *
 * ‖lane - reference‖ / ‖reference‖ over the entries that both still hold, [layer][KV head of the reference]. The
 * difference includes the error of the codec itself and the errors propagated from the layers below.
 */
export interface LaneErrorsMeasured {
  type: "lane_errors_measured";
  lane: number;
  request_id: number;
  num_tokens: number;
  key_error: number[][];
  value_error: number[][];
}

/**
 * A lane finished its own answer to a prompt that hides a word; `found` is whether the answer contains the word.
 */
export interface NeedleSought {
  type: "needle_sought";
  lane: number;
  request_id: number;
  word: string;
  found: boolean;
  answer: string;
}

/**
 * An attacker guessed a prompt and observed one number: the time to first token.
 *
 * `is_secret`: whether the guess equals the other tenant's earlier prompt, which the attacker doesn't know.
 * `says_secret`: the attacker's conclusion from the time alone; None while it calibrates on its own prompts.
 * `num_hit_tokens`: the cached tokens of the guess, which the attacker doesn't see. `shared`: whether the tenants
 * share prefixes.
 */
export interface ProbeTimed {
  type: "probe_timed";
  request_id: number;
  probe: number;
  shared: boolean;
  is_secret: boolean;
  says_secret: boolean | null;
  first_token_us: number;
  num_hit_tokens: number;
}

/**
 * A step ended. `digest` (16 hex digits) covers the state of the cache; see docs/events.md.
 *
 * `forward_us` is the duration of the forward pass, `step_us` that of the whole step.
 */
export interface StepFinished {
  type: "step_finished";
  step: number;
  digest: string;
  forward_us: number;
  step_us: number;
}

export type Event =
  | RequestAdded
  | RequestForked
  | RequestReprioritised
  | StepStarted
  | PrefixLookedUp
  | RequestStarted
  | BlockShared
  | BlockOffloaded
  | HostEvicted
  | BlockEvicted
  | BlockAllocated
  | BlockCopied
  | BlockFetched
  | BlockCached
  | RequestPreempted
  | BlocksSwappedOut
  | BlocksSwappedIn
  | StepScheduled
  | KvWritten
  | KvForgotten
  | TokenSampled
  | RequestFinished
  | BlocksReleased
  | PrefixCacheReset
  | MissMeasured
  | LaneMeasured
  | LaneErrorsMeasured
  | NeedleSought
  | ProbeTimed
  | StepFinished;

export type EventType = Event['type'];

/** The event with the tag T: EventOf<'kv_written'> is KvWritten. */
export type EventOf<T extends EventType> = Extract<Event, {type: T}>;

/** `[seq, t_us, event]` as on the wire and on disk. */
export type EventRecord = [seq: number, t_us: number, event: Event];
