"""The events: past-tense facts about a KV cache, and the only thing a picture may be made from.

An event is a frozen dataclass with a `type` tag. It carries ids, positions, counts and a `reason` (a code with its
numbers), never prose and never a counter that a reader could derive. On the wire, on disk and in memory a *record* is
`[seq, t_us, {"type": ..., ...}]`; `seq` is dense from 0 and stamped by `kvviz.log.event_log.EventLog`
alone, `t_us` is monotonic microseconds since the log began and is never read by a
fold. Durations live only in fields whose names end in `_us`, so two runs can be compared by stripping those.

Units: positions and counts are tokens, `slot` = block_id × block_size + offset, hashes are lower-case hex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, dataclass_transform

from pydantic import Discriminator, TypeAdapter

#: Version of the record format; a reader refuses a larger major number. Written as `format` in every header.
FORMAT_VERSION = 1

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def _event(cls: type[T]) -> type[T]:
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@_event
class Piece:
    """How one token reads in its place in a sequence.

    `kind` is `text`, `special` (a control token, shown by name), or `bytes` (the token holds only part of a
    character). A `bytes` piece has `hex` ("f0 9f"); the last one of a character also has the finished character in
    `text` and in `joins` the number of tokens, itself included, that make it. Joined over a sequence the `text` of
    all pieces equals the decoded whole, special tokens by name; a character that is never finished has no text.
    """

    text: str
    kind: Literal["text", "special", "bytes"] = "text"
    hex: str | None = None
    joins: int | None = None


@_event
class Candidate:
    """One token the model might have produced, with its probability after temperature, before top-k and top-p."""

    token_id: int
    probability: float
    piece: Piece


@_event
class SamplingParams:
    """How the next token is chosen. `temperature` 0: greedy; `top_k` 0, `top_p` 1: off; `seed` None: the run's."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None


@_event
class Chunk:
    """What one request computes in one step: tokens `start` to `start + num_tokens` - 1.

    `kind` is `prefill` while tokens that were known beforehand are computed, `decode` for the one token sampled last.
    """

    request_id: int
    start: int
    num_tokens: int
    kind: Literal["prefill", "decode"]


@_event
class Blocked:
    """The head of the waiting line that a step did not admit, and why; everybody behind it waits with it.

    With `blocks`: it needs `num_blocks_needed` and `num_free` are free.
    """

    request_id: int
    code: Literal["blocks", "budget", "slots", "preemption"]
    num_blocks_needed: int | None = None
    num_free: int | None = None


@_event
class LookupReason:
    """Why a prefix lookup found what it found, and not more.

    `code`: `hit` (every full block that may hit did) · `last_token` (one more block matches, but the token at
    `position`, the last, must be computed) · `differs` (what was cached most like this prompt has another token at
    `position`) · `ends` (nothing longer was ever cached: it ends before `position`) · `evicted` (the block that goes on
    at `position` was evicted at `step`) · `other_keys` (the same tokens are or were cached under another key, named in
    `keys`: salt, dtype, weights …) · `less_than_block` (something cached shares its first `position` tokens, less than
    a block) · `nothing_shared` · `nothing_cached` · `shorter_than_block` (the prompt has no full block that may hit) ·
    `disabled`. `num_shared_tokens`: the longest beginning shared with anything that is or was cached under the same
    keys; the last 4,096 evicted blocks are remembered.
    """

    code: Literal[
        "hit",
        "last_token",
        "differs",
        "ends",
        "evicted",
        "other_keys",
        "less_than_block",
        "nothing_shared",
        "nothing_cached",
        "shorter_than_block",
        "disabled",
    ]
    position: int | None = None
    num_shared_tokens: int = 0
    step: int | None = None
    keys: tuple[str, ...] = ()


@_event
class AllocationReason:
    """Why a block was taken: tokens up to `num_tokens` - 1 are to be written; `num_blocks_held` blocks are too few.

    `fetch`: to take back a cached block from the host tier; `swap_in`: to take back a swapped request's block.
    """

    code: Literal["prompt", "decode", "fetch", "swap_in"]
    num_tokens: int
    num_blocks_held: int


@_event
class EvictionReason:
    """Why this cached block and no other: the policy, its place in the free queue, and who stood behind it.

    The queue is in the order of the policy: `lru` by when the last user left, `fifo` by when the prefix was cached,
    `lfu` by how often it was hit (then as `lru`), `random` by lot. `free_since_step` is the step in which its last user
    left (0: before the first step), `cached_since_step` that in which its prefix was cached, `num_hits` how often it
    was hit. `alternatives` are the next block ids of the queue, head first, at most four; `num_free` is the length of
    the queue before the block was taken.
    """

    policy: Literal["lru", "fifo", "lfu", "random"]
    queue_position: int
    free_since_step: int
    num_free: int
    alternatives: tuple[int, ...]
    cached_since_step: int = 0
    num_hits: int = 0


@_event
class ReleaseReason:
    """Why blocks were given back: the request ended (`finished`, `cancelled`, `failed`), was `preempted` or `swapped`
    out, or its `window` moved on; no layer and head keeps an entry of these blocks any more (`forgotten`); or the step
    is over and this engine keeps nothing between two (`no_cache`).
    """

    code: Literal["finished", "cancelled", "failed", "preempted", "swapped", "window", "forgotten", "no_cache"]
    window_start: int | None = None


@_event
class PreemptionReason:
    """Why this request lost its blocks: `for_request_id` needs `num_blocks_needed` and `num_free` are free.

    `code`: `recompute` (computed again later) or `swap` (kept in the host tier). `order`: the victim is the `last` of
    the running requests, or has the lowest `priority`. `host_full`: it would have been swapped, had there been room.
    It keeps its `num_generated` tokens; `num_lost_tokens` entries must be computed again or moved back.
    """

    code: Literal["recompute", "swap"]
    order: Literal["last", "priority"]
    for_request_id: int
    num_blocks_needed: int
    num_free: int
    num_blocks_held: int
    num_generated: int
    num_lost_tokens: int
    host_full: bool = False


@_event
class ForkOrigin:
    """Where a request branched off: it has the tokens of `parent_id` before `position`, and one of its own there.

    `token_id` None: the branch computes the token before `position` again and samples its own.
    """

    parent_id: int
    position: int
    token_id: int | None


@_event
class FinishReason:
    """Why a request ended: `eos` (it sampled an end token), `length` (its budget), `cancelled`, `failed`."""

    code: Literal["eos", "length", "cancelled", "failed"]
    token_id: int | None = None


@_event
class SampleReason:
    """How the token was chosen, and among how many tokens were left after top-k and top-p.

    `forced`: it is the token of the text that is being compared; the first candidate is the model's own choice.
    """

    code: Literal["greedy", "sampled", "forced"]
    num_considered: int


@_event
class RequestAdded:
    """A request joined the waiting line. Its prompt is known and nothing is computed.

    `continues` is the request whose conversation this one carries on (its history is resent in the prompt).
    `prompt` is what the person wrote; the tokens are what the model gets, chat template included. Of them the first
    `num_prompt_tokens` are the prompt (None: all; a fork also has tokens that were generated before it). `priority`:
    smaller goes first, when the scheduler goes by it.
    """

    request_id: int
    prompt: str
    token_ids: tuple[int, ...]
    pieces: tuple[Piece, ...]
    max_new_tokens: int
    sampling: SamplingParams
    template: bool = False
    salt: str | None = None
    continues: int | None = None
    num_prompt_tokens: int | None = None
    priority: int = 0
    fork: ForkOrigin | None = None
    type: Literal["request_added"] = "request_added"


@_event
class RequestForked:
    """A fork shares blocks that its parent holds: each one's reference count rose by one, and the fork runs.

    `block_ids` are the fork's block table (None where a block is out of the window), `num_computed` of its tokens have
    K and V in them. A block that both go on to write is copied by the first one that does.
    """

    request_id: int
    parent_id: int
    block_ids: tuple[int | None, ...]
    num_computed: int
    window_start: int = 0
    type: Literal["request_forked"] = "request_forked"


@_event
class RequestReprioritised:
    """Somebody gave the request another priority."""

    request_id: int
    priority: int
    type: Literal["request_reprioritised"] = "request_reprioritised"


@_event
class RequestPreempted:
    """A running request stops for another: its blocks are released by the events that follow, and it waits in front.

    By `recompute` none of its tokens counts as computed any more; by `swap` its entries move to the host tier.
    """

    request_id: int
    reason: PreemptionReason
    type: Literal["request_preempted"] = "request_preempted"


@_event
class BlocksSwappedOut:
    """A preempted request's blocks were copied to the host tier, one host block for each, before they are released."""

    request_id: int
    logical_indices: tuple[int, ...]
    block_ids: tuple[int, ...]
    host_ids: tuple[int, ...]
    num_bytes: int
    copy_us: int
    type: Literal["blocks_swapped_out"] = "blocks_swapped_out"


@_event
class BlocksSwappedIn:
    """A swapped request's blocks were copied back into newly allocated ones; it runs on, its host blocks are free."""

    request_id: int
    logical_indices: tuple[int, ...]
    block_ids: tuple[int, ...]
    host_ids: tuple[int, ...]
    num_bytes: int
    copy_us: int
    type: Literal["blocks_swapped_in"] = "blocks_swapped_in"


@_event
class BlockCopied:
    """Copy-on-write: a request is about to write into a block that others use too, and got a copy of its own.

    The head of the free queue was popped and holds a copy of the first `num_tokens` entries; it stands in the block
    table instead of `from_block_id`, whose count fell by one.
    """

    request_id: int
    logical_index: int
    from_block_id: int
    block_id: int
    num_tokens: int
    num_bytes: int
    copy_us: int
    type: Literal["block_copied"] = "block_copied"


@_event
class BlockOffloaded:
    """A cached block is about to be evicted, and a copy of it was put into the host tier under its prefix hash."""

    block_id: int
    host_id: int
    hash: str
    num_bytes: int
    copy_us: int
    type: Literal["block_offloaded"] = "block_offloaded"


@_event
class BlockFetched:
    """A prefix was hit in the host tier: its entries moved into a newly allocated block; the host block is free."""

    request_id: int
    logical_index: int
    block_id: int
    host_id: int
    hash: str
    num_bytes: int
    copy_us: int
    type: Literal["block_fetched"] = "block_fetched"


@_event
class HostEvicted:
    """The host tier was full: the prefix that was used least lately was forgotten to make room."""

    host_id: int
    hash: str
    since_step: int
    type: Literal["host_evicted"] = "host_evicted"


@_event
class StepStarted:
    """Step `step` began (from 1). All events up to the matching `step_finished` belong to it."""

    step: int
    type: Literal["step_started"] = "step_started"


@_event
class PrefixLookedUp:
    """The prompt's full blocks were looked up in the prefix cache, first to last, up to the first miss.

    `num_host_tokens` of the hit tokens lie in the host tier, behind those in `hit_block_ids`, and come back from there.
    """

    request_id: int
    num_tokens: int
    num_hit_tokens: int
    hit_block_ids: tuple[int, ...]
    reason: LookupReason
    num_host_tokens: int = 0
    type: Literal["prefix_looked_up"] = "prefix_looked_up"


@_event
class RequestStarted:
    """The request left the waiting line and runs; its first `num_hit_tokens` tokens count as computed.

    Also when it was preempted and is computed again.
    """

    request_id: int
    num_hit_tokens: int
    type: Literal["request_started"] = "request_started"


@_event
class BlockShared:
    """A cached block was taken into a request's block table: its reference count rose by one.

    If it was free it left the free queue, from wherever it stood.
    """

    request_id: int
    logical_index: int
    block_id: int
    type: Literal["block_shared"] = "block_shared"


@_event
class BlockEvicted:
    """A block at the head of the free queue lost the cached prefix it held, because somebody needs the block."""

    block_id: int
    hash: str
    reason: EvictionReason
    type: Literal["block_evicted"] = "block_evicted"


@_event
class BlockAllocated:
    """The head of the free queue was popped and appended to a request's block table with reference count 1, blank."""

    request_id: int
    logical_index: int
    block_id: int
    reason: AllocationReason
    type: Literal["block_allocated"] = "block_allocated"


@_event
class BlockCached:
    """A full block was registered under its chained prefix hash.

    As in vLLM this happens when its tokens are scheduled, before K and V are written. `duplicate_of` is the first
    block already registered under the same hash, if any; lookups go on returning that one.
    """

    request_id: int
    logical_index: int
    block_id: int
    hash: str
    parent_hash: str | None
    duplicate_of: int | None = None
    type: Literal["block_cached"] = "block_cached"


@_event
class StepScheduled:
    """What the step computes: one flat batch of these chunks, in this order, out of `budget` tokens at most.

    `blocked`: the waiting request at the head of the line that was not let in, and what it lacked: `blocks`, `budget`,
    `slots` (the most requests run already) or `preemption` (nobody is let in when somebody was just put out).
    """

    step: int
    chunks: tuple[Chunk, ...]
    budget: int | None = None
    blocked: Blocked | None = None
    type: Literal["step_scheduled"] = "step_scheduled"


@_event
class KvWritten:
    """K and V of these positions were written into these slots, in every layer that stores any.

    Emitted once a step and request, after the forward pass; the record's `seq` is the entries' `write_seq`.
    `layers` is the order in which the layers wrote, `layer_us` when each did, in microseconds since the forward began;
    `read_us` when each layer's attention had read them.
    """

    request_id: int
    positions: tuple[int, ...]
    slots: tuple[int, ...]
    layers: tuple[int, ...]
    layer_us: tuple[int, ...]
    read_us: tuple[int, ...]
    type: Literal["kv_written"] = "kv_written"


@_event
class KvForgotten:
    """A policy dropped entries of a request after they were read: nobody reads them again, though their block may stay.

    `dropped[layer][head]`: positions. One list of heads stands for all layers when they drop the same, and one list of
    positions for all KV heads of a layer. Blocks in which nothing is kept are released by the event that follows.
    """

    request_id: int
    policy: str
    dropped: tuple[tuple[tuple[int, ...], ...], ...]
    type: Literal["kv_forgotten"] = "kv_forgotten"


@_event
class TokenSampled:
    """A token was chosen for `position`. Its K and V do not exist yet: the step that computes it writes them."""

    request_id: int
    position: int
    token_id: int
    piece: Piece
    candidates: tuple[Candidate, ...]
    reason: SampleReason
    type: Literal["token_sampled"] = "token_sampled"


@_event
class RequestFinished:
    """The request ended; its blocks are released by the events that follow."""

    request_id: int
    reason: FinishReason
    type: Literal["request_finished"] = "request_finished"


@_event
class BlocksReleased:
    """A request gave blocks back: each one's reference count fell by one, in the order of `block_ids`.

    `logical_indices` are their places in the block table, which are empty from now on. Blocks that reached count 0
    entered the free queue: those in `prepended` (no cached prefix: blank again) as one batch at its head, those in
    `appended` (still cached) at its tail, each list in queue order. `places` is None then; under another policy than
    `lru` they were put in one by one, each at that place of the queue (0: the head).
    """

    request_id: int
    block_ids: tuple[int, ...]
    logical_indices: tuple[int, ...]
    prepended: tuple[int, ...]
    appended: tuple[int, ...]
    reason: ReleaseReason
    places: tuple[int, ...] | None = None
    type: Literal["blocks_released"] = "blocks_released"


@_event
class PrefixCacheReset:
    """The cached prefixes of these blocks were forgotten; the blocks stay where they are, in use or in the free queue.

    `reason`: `reset`, all of them; `unwritten`, registered in a step that failed or for a request put out in it;
    `overwritten`, a branch writes into its parent's full block, which nobody else uses any more.
    """

    block_ids: tuple[int, ...]
    reason: Literal["reset", "unwritten", "overwritten"] = "reset"
    type: Literal["prefix_cache_reset"] = "prefix_cache_reset"


@_event
class MissMeasured:
    """The prompt of a request that hit the prefix cache was computed once more under a fresh salt, without a hit.

    Done in a pool of its own, so nothing of this pool moved. `first_token_us` is its time to first token,
    `hit_first_token_us` that of the request itself, both from start of the first step to the sampled token, summed
    over its steps.
    """

    request_id: int
    num_tokens: int
    first_token_us: int
    hit_first_token_us: int
    type: Literal["miss_measured"] = "miss_measured"


@_event
class LaneMeasured:
    """What one lane of a comparison did for one token of the text that lane 0, the reference, writes.

    The lane is teacher-forced: at `position` it has read the same tokens as the reference. There `own_token_id` is its
    most probable token and `token_id` the one that was taken; `agrees`: they are the same. `kl` is Σ p ln(p / q) in
    nats, p the reference's probabilities and q the lane's; `nll` is -ln q(`token_id`); `max_abs_diff` the largest
    difference of two logits. `free_token_id` is what stands at `position` when the lane writes by itself, None once
    that text has ended.

    `num_projections`: tokens whose K and V were computed for this request so far. `held_bytes`: the blocks that it
    holds, with scales and the full-precision part; `read_bytes`: the entries that its last query read, as they are
    stored; `copied_bytes`: moved so far because the cache grew. `kept_share`: entries not forgotten, over all layers
    and heads. `step_us`: the forward passes since the token before, the prompt's for the first.
    """

    lane: int
    request_id: int
    position: int
    token_id: int
    own_token_id: int
    own_piece: Piece
    agrees: bool
    kl: float
    nll: float
    max_abs_diff: float
    free_token_id: int | None
    free_piece: Piece | None
    num_projections: int
    num_hit_tokens: int
    held_bytes: int
    read_bytes: int
    copied_bytes: int
    kept_share: float
    step_us: int
    type: Literal["lane_measured"] = "lane_measured"


@_event
class LaneErrorsMeasured:
    """How far a lane's K and V, as attention reads them, are from the reference's, after `num_tokens` tokens.

    ‖lane - reference‖ / ‖reference‖ over the entries that both still hold, [layer][KV head of the reference]; the
    difference is the codec's own and what the layers below made of it.
    """

    lane: int
    request_id: int
    num_tokens: int
    key_error: tuple[tuple[float, ...], ...]
    value_error: tuple[tuple[float, ...], ...]
    type: Literal["lane_errors_measured"] = "lane_errors_measured"


@_event
class NeedleSought:
    """A lane's own answer to a prompt that hides a word has ended: whether the word is in it."""

    lane: int
    request_id: int
    word: str
    found: bool
    answer: str
    type: Literal["needle_sought"] = "needle_sought"


@_event
class ProbeTimed:
    """An attacker guessed a prompt and saw one number: the time to its first token.

    `is_secret`: whether the guess is what the other tenant asked before, which the attacker does not know;
    `says_secret`: what the attacker concluded from the time alone, None while it learns from prompts of its own.
    `num_hit_tokens`: what the engine had cached of it, for the reader. `shared`: whether the tenants share prefixes.
    """

    request_id: int
    probe: int
    shared: bool
    is_secret: bool
    says_secret: bool | None
    first_token_us: int
    num_hit_tokens: int
    type: Literal["probe_timed"] = "probe_timed"


@_event
class StepFinished:
    """The step ended. `digest` (16 hex digits) covers the state of the cache, see docs/events.md.

    `forward_us` is the module's forward pass, `step_us` the whole step.
    """

    step: int
    digest: str
    forward_us: int
    step_us: int
    type: Literal["step_finished"] = "step_finished"


Event: TypeAlias = (
    RequestAdded
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
    | StepFinished
)

#: Every event class, in the order of the documentation.
EVENT_TYPES: tuple[type[Any], ...] = Event.__args__

_adapter: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Discriminator("type")])
_record_adapter: TypeAdapter[tuple[int, int, Event]] = TypeAdapter(
    tuple[int, int, Annotated[Event, Discriminator("type")]]
)


def parse_record(line: bytes) -> tuple[int, int, Event]:
    """The record that a line of JSON describes; nothing is converted, unknown fields are ignored.

    Raises pydantic's `ValidationError`.
    """
    return _record_adapter.validate_json(line, strict=True)
