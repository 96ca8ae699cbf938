// Generated from kvviz/events.py by `python -m kvviz.log.schema`. Do not edit.
//
// In JSDoc: @typedef {import('./events.d.ts').Event} Event

export type FormatVersion = 1;

/**
 * How one token reads in its place in a sequence.
 *
 * `kind` is `text`, `special` (a control token, shown by name), or `bytes` (the token holds only part of a
 * character). A `bytes` piece has `hex` ("f0 9f"); the last one of a character also has the finished character in
 * `text` and in `joins` the number of tokens, itself included, that make it. Joined over a sequence the `text` of
 * all pieces equals the decoded whole, special tokens by name; a character that is never finished has no text.
 */
export interface Piece {
  text: string;
  kind: "text" | "special" | "bytes";
  hex: string | null;
  joins: number | null;
}

/**
 * How the next token is chosen. `temperature` 0: greedy; `top_k` 0, `top_p` 1: off; `seed` None: the run's.
 */
export interface SamplingParams {
  temperature: number;
  top_k: number;
  top_p: number;
  seed: number | null;
}

/**
 * Where a request branched off: it has the tokens of `parent_id` before `position`, and one of its own there.
 *
 * `token_id` None: the branch computes the token before `position` again and samples its own.
 */
export interface ForkOrigin {
  parent_id: number;
  position: number;
  token_id: number | null;
}

/**
 * Why a prefix lookup found what it found, and not more.
 *
 * `code`: `hit` (every full block that may hit did) · `last_token` (one more block matches, but the token at
 * `position`, the last, must be computed) · `differs` (what was cached most like this prompt has another token at
 * `position`) · `ends` (nothing longer was ever cached: it ends before `position`) · `evicted` (the block that goes on
 * at `position` was evicted at `step`) · `other_keys` (the same tokens are or were cached under another key, named in
 * `keys`: salt, dtype, weights …) · `less_than_block` (something cached shares its first `position` tokens, less than
 * a block) · `nothing_shared` · `nothing_cached` · `shorter_than_block` (the prompt has no full block that may hit) ·
 * `disabled`. `num_shared_tokens`: the longest beginning shared with anything that is or was cached under the same
 * keys; the last 4,096 evicted blocks are remembered.
 */
export interface LookupReason {
  code: "hit" | "last_token" | "differs" | "ends" | "evicted" | "other_keys" | "less_than_block" | "nothing_shared" | "nothing_cached" | "shorter_than_block" | "disabled";
  position: number | null;
  num_shared_tokens: number;
  step: number | null;
  keys: string[];
}

/**
 * Why this cached block and no other: the policy, its place in the free queue, and who stood behind it.
 *
 * The queue is in the order of the policy: `lru` by when the last user left, `fifo` by when the prefix was cached,
 * `lfu` by how often it was hit (then as `lru`), `random` by lot. `free_since_step` is the step in which its last user
 * left (0: before the first step), `cached_since_step` that in which its prefix was cached, `num_hits` how often it
 * was hit. `alternatives` are the next block ids of the queue, head first, at most four; `num_free` is the length of
 * the queue before the block was taken.
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
 * Why a block was taken: tokens up to `num_tokens` - 1 are to be written; `num_blocks_held` blocks are too few.
 *
 * `fetch`: to take back a cached block from the host tier; `swap_in`: to take back a swapped request's block.
 */
export interface AllocationReason {
  code: "prompt" | "decode" | "fetch" | "swap_in";
  num_tokens: number;
  num_blocks_held: number;
}

/**
 * Why this request lost its blocks: `for_request_id` needs `num_blocks_needed` and `num_free` are free.
 *
 * `code`: `recompute` (computed again later) or `swap` (kept in the host tier). `order`: the victim is the `last` of
 * the running requests, or has the lowest `priority`. `host_full`: it would have been swapped, had there been room.
 * It keeps its `num_generated` tokens; `num_lost_tokens` entries must be computed again or moved back.
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
 * What one request computes in one step: tokens `start` to `start + num_tokens` - 1.
 *
 * `kind` is `prefill` while tokens that were known beforehand are computed, `decode` for the one token sampled last.
 */
export interface Chunk {
  request_id: number;
  start: number;
  num_tokens: number;
  kind: "prefill" | "decode";
}

/**
 * The head of the waiting line that a step did not admit, and why; everybody behind it waits with it.
 *
 * With `blocks`: it needs `num_blocks_needed` and `num_free` are free.
 */
export interface Blocked {
  request_id: number;
  code: "blocks" | "budget" | "slots" | "preemption";
  num_blocks_needed: number | null;
  num_free: number | null;
}

/**
 * One token the model might have produced, with its probability after temperature, before top-k and top-p.
 */
export interface Candidate {
  token_id: number;
  probability: number;
  piece: Piece;
}

/**
 * How the token was chosen, and among how many tokens were left after top-k and top-p.
 *
 * `forced`: it is the token of the text that is being compared; the first candidate is the model's own choice.
 */
export interface SampleReason {
  code: "greedy" | "sampled" | "forced";
  num_considered: number;
}

/**
 * Why a request ended: `eos` (it sampled an end token), `length` (its budget), `cancelled`, `failed`.
 */
export interface FinishReason {
  code: "eos" | "length" | "cancelled" | "failed";
  token_id: number | null;
}

/**
 * Why blocks were given back: the request ended (`finished`, `cancelled`, `failed`), was `preempted` or `swapped`
 * out, or its `window` moved on; no layer and head keeps an entry of these blocks any more (`forgotten`); or the step
 * is over and this engine keeps nothing between two (`no_cache`).
 */
export interface ReleaseReason {
  code: "finished" | "cancelled" | "failed" | "preempted" | "swapped" | "window" | "forgotten" | "no_cache";
  window_start: number | null;
}

/**
 * A request joined the waiting line. Its prompt is known and nothing is computed.
 *
 * `continues` is the request whose conversation this one carries on (its history is resent in the prompt).
 * `prompt` is what the person wrote; the tokens are what the model gets, chat template included. Of them the first
 * `num_prompt_tokens` are the prompt (None: all; a fork also has tokens that were generated before it). `priority`:
 * smaller goes first, when the scheduler goes by it.
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
 * A fork shares blocks that its parent holds: each one's reference count rose by one, and the fork runs.
 *
 * `block_ids` are the fork's block table (None where a block is out of the window), `num_computed` of its tokens have
 * K and V in them. A block that both go on to write is copied by the first one that does.
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
 * Somebody gave the request another priority.
 */
export interface RequestReprioritised {
  type: "request_reprioritised";
  request_id: number;
  priority: number;
}

/**
 * Step `step` began (from 1). All events up to the matching `step_finished` belong to it.
 */
export interface StepStarted {
  type: "step_started";
  step: number;
}

/**
 * The prompt's full blocks were looked up in the prefix cache, first to last, up to the first miss.
 *
 * `num_host_tokens` of the hit tokens lie in the host tier, behind those in `hit_block_ids`, and come back from there.
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
 * The request left the waiting line and runs; its first `num_hit_tokens` tokens count as computed.
 *
 * Also when it was preempted and is computed again.
 */
export interface RequestStarted {
  type: "request_started";
  request_id: number;
  num_hit_tokens: number;
}

/**
 * A cached block was taken into a request's block table: its reference count rose by one.
 *
 * If it was free it left the free queue, from wherever it stood.
 */
export interface BlockShared {
  type: "block_shared";
  request_id: number;
  logical_index: number;
  block_id: number;
}

/**
 * A cached block is about to be evicted, and a copy of it was put into the host tier under its prefix hash.
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
 * The host tier was full: the prefix that was used least lately was forgotten to make room.
 */
export interface HostEvicted {
  type: "host_evicted";
  host_id: number;
  hash: string;
  since_step: number;
}

/**
 * A block at the head of the free queue lost the cached prefix it held, because somebody needs the block.
 */
export interface BlockEvicted {
  type: "block_evicted";
  block_id: number;
  hash: string;
  reason: EvictionReason;
}

/**
 * The head of the free queue was popped and appended to a request's block table with reference count 1, blank.
 */
export interface BlockAllocated {
  type: "block_allocated";
  request_id: number;
  logical_index: number;
  block_id: number;
  reason: AllocationReason;
}

/**
 * Copy-on-write: a request is about to write into a block that others use too, and got a copy of its own.
 *
 * The head of the free queue was popped and holds a copy of the first `num_tokens` entries; it stands in the block
 * table instead of `from_block_id`, whose count fell by one.
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
 * A prefix was hit in the host tier: its entries moved into a newly allocated block; the host block is free.
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
 * As in vLLM this happens when its tokens are scheduled, before K and V are written. `duplicate_of` is the first
 * block already registered under the same hash, if any; lookups go on returning that one.
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
 * A running request stops for another: its blocks are released by the events that follow, and it waits in front.
 *
 * By `recompute` none of its tokens counts as computed any more; by `swap` its entries move to the host tier.
 */
export interface RequestPreempted {
  type: "request_preempted";
  request_id: number;
  reason: PreemptionReason;
}

/**
 * A preempted request's blocks were copied to the host tier, one host block for each, before they are released.
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
 * A swapped request's blocks were copied back into newly allocated ones; it runs on, its host blocks are free.
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
 * What the step computes: one flat batch of these chunks, in this order, out of `budget` tokens at most.
 *
 * `blocked`: the waiting request at the head of the line that was not let in, and what it lacked: `blocks`, `budget`,
 * `slots` (the most requests run already) or `preemption` (nobody is let in when somebody was just put out).
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
 * Emitted once a step and request, after the forward pass; the record's `seq` is the entries' `write_seq`.
 * `layers` is the order in which the layers wrote, `layer_us` when each did, in microseconds since the forward began;
 * `read_us` when each layer's attention had read them.
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
 * A policy dropped entries of a request after they were read: nobody reads them again, though their block may stay.
 *
 * `dropped[layer][head]`: positions. One list of heads stands for all layers when they drop the same, and one list of
 * positions for all KV heads of a layer. Blocks in which nothing is kept are released by the event that follows.
 */
export interface KvForgotten {
  type: "kv_forgotten";
  request_id: number;
  policy: string;
  dropped: number[][][];
}

/**
 * A token was chosen for `position`. Its K and V do not exist yet: the step that computes it writes them.
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
 * The request ended; its blocks are released by the events that follow.
 */
export interface RequestFinished {
  type: "request_finished";
  request_id: number;
  reason: FinishReason;
}

/**
 * A request gave blocks back: each one's reference count fell by one, in the order of `block_ids`.
 *
 * `logical_indices` are their places in the block table, which are empty from now on. Blocks that reached count 0
 * entered the free queue: those in `prepended` (no cached prefix: blank again) as one batch at its head, those in
 * `appended` (still cached) at its tail, each list in queue order. `places` is None then; under another policy than
 * `lru` they were put in one by one, each at that place of the queue (0: the head).
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
 * The cached prefixes of these blocks were forgotten; the blocks stay where they are, in use or in the free queue.
 *
 * `reason`: `reset`, all of them; `unwritten`, registered in a step that failed or for a request put out in it;
 * `overwritten`, a branch writes into its parent's full block, which nobody else uses any more.
 */
export interface PrefixCacheReset {
  type: "prefix_cache_reset";
  block_ids: number[];
  reason: "reset" | "unwritten" | "overwritten";
}

/**
 * The prompt of a request that hit the prefix cache was computed once more under a fresh salt, without a hit.
 *
 * Done in a pool of its own, so nothing of this pool moved. `first_token_us` is its time to first token,
 * `hit_first_token_us` that of the request itself, both from start of the first step to the sampled token, summed
 * over its steps.
 */
export interface MissMeasured {
  type: "miss_measured";
  request_id: number;
  num_tokens: number;
  first_token_us: number;
  hit_first_token_us: number;
}

/**
 * What one lane of a comparison did for one token of the text that lane 0, the reference, writes.
 *
 * The lane is teacher-forced: at `position` it has read the same tokens as the reference. There `own_token_id` is its
 * most probable token and `token_id` the one that was taken; `agrees`: they are the same. `kl` is Σ p ln(p / q) in
 * nats, p the reference's probabilities and q the lane's; `nll` is -ln q(`token_id`); `max_abs_diff` the largest
 * difference of two logits. `free_token_id` is what stands at `position` when the lane writes by itself, None once
 * that text has ended.
 *
 * `num_projections`: tokens whose K and V were computed for this request so far. `held_bytes`: the blocks that it
 * holds, with scales and the full-precision part; `read_bytes`: the entries that its last query read, as they are
 * stored; `copied_bytes`: moved so far because the cache grew. `kept_share`: entries not forgotten, over all layers
 * and heads. `step_us`: the forward passes since the token before, the prompt's for the first.
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
 * How far a lane's K and V, as attention reads them, are from the reference's, after `num_tokens` tokens.
 *
 * ‖lane - reference‖ / ‖reference‖ over the entries that both still hold, [layer][KV head of the reference]; the
 * difference is the codec's own and what the layers below made of it.
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
 * A lane's own answer to a prompt that hides a word has ended: whether the word is in it.
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
 * An attacker guessed a prompt and saw one number: the time to its first token.
 *
 * `is_secret`: whether the guess is what the other tenant asked before, which the attacker does not know;
 * `says_secret`: what the attacker concluded from the time alone, None while it learns from prompts of its own.
 * `num_hit_tokens`: what the engine had cached of it, for the reader. `shared`: whether the tenants share prefixes.
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
 * The step ended. `digest` (16 hex digits) covers the state of the cache, see docs/events.md.
 *
 * `forward_us` is the module's forward pass, `step_us` the whole step.
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
