"""Events: past-tense facts about a KV cache. Everything on screen is a fold over them.

An event is a frozen dataclass with a `type` tag. It holds ids, positions, counts and a `reason` (a code and its
numbers). It holds no prose and no counter that a reader could derive. On the wire, on disk and in memory, a *record* is
`[seq, t_us, {"type": ..., ...}]`. Only `kvviz.log.event_log.EventLog` assigns `seq`, which is dense from 0. `t_us` is
monotonic microseconds since the log started; folds never read it. Durations appear only in fields whose names end in
`_us`, so stripping those fields makes two runs comparable.

Units: positions and counts are tokens, `slot` = block_id × block_size + offset, hashes are lower-case hex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, dataclass_transform

from pydantic import Discriminator, TypeAdapter

#: Version of the record format, written as `format` in every header. Readers reject a larger major number.
FORMAT_VERSION = 1

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def _event(cls: type[T]) -> type[T]:
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@_event
class Piece:
    """The text of one token at its place in a sequence.

    `kind` is `text`, `special` (a control token, shown by name) or `bytes` (the token holds only part of a character).
    A `bytes` piece has `hex` ("f0 9f"). The last piece of a character also has the complete character in `text`, and in
    `joins` the number of tokens that form it, including itself. The `text` of all pieces of a sequence, joined, equals
    the decoded sequence with special tokens by name. A character that is never completed has no text.
    """

    text: str
    kind: Literal["text", "special", "bytes"] = "text"
    hex: str | None = None
    joins: int | None = None


@_event
class Candidate:
    """A token the model might have produced, with its probability after temperature and before top-k and top-p."""

    token_id: int
    probability: float
    piece: Piece


@_event
class SamplingParams:
    """How the next token is chosen. `temperature` 0: greedy; `top_k` 0, `top_p` 1: off; `seed` None: the run's seed."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None


@_event
class Chunk:
    """The tokens of one request that a step computes: `start` to `start + num_tokens` - 1.

    `kind` is `prefill` for tokens that were already known, and `decode` for the one token sampled last.
    """

    request_id: int
    start: int
    num_tokens: int
    kind: Literal["prefill", "decode"]


@_event
class Blocked:
    """The request at the head of the waiting queue that a step did not admit, and why. Those behind it wait as well.

    With `blocks`, the request needs `num_blocks_needed` blocks, and `num_free` are free.
    """

    request_id: int
    code: Literal["blocks", "budget", "slots", "preemption"]
    num_blocks_needed: int | None = None
    num_free: int | None = None


@_event
class LookupReason:
    """Why a prefix lookup matched this far and no further.

    `code`: `hit` (every full block that may hit did) · `last_token` (one more block matches, but the token at
    `position`, the last, must be computed) · `differs` (the closest cached match has another token at `position`) ·
    `ends` (the longest cached match ends before `position`) · `evicted` (the block that continues at `position` was
    evicted at `step`) · `other_keys` (the same tokens are or were cached under another key, named in `keys`: salt,
    dtype, weights …) · `less_than_block` (a cached prefix shares the first `position` tokens, less than a block) ·
    `nothing_shared` · `nothing_cached` · `shorter_than_block` (the prompt has no full block that may hit) ·
    `disabled`. `num_shared_tokens` is the length of the longest prefix shared with anything that is or was cached under
    the same keys. The last 4,096 evicted blocks are remembered.
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
    """Why a block was allocated: `num_blocks_held` blocks are too few for tokens up to `num_tokens` - 1.

    `fetch`: a cached block returns from the host tier; `swap_in`: a block of a swapped request returns.
    """

    code: Literal["prompt", "decode", "fetch", "swap_in"]
    num_tokens: int
    num_blocks_held: int


@_event
class EvictionReason:
    """Why this cached block was evicted: the policy, the block's place in the free queue, and the blocks behind it.

    The policy orders the queue: `lru` by when the last user released the block, `fifo` by when the prefix was cached,
    `lfu` by number of hits (ties as in `lru`), `random` at random. `free_since_step` is the step in which the last user
    released the block (0: before the first step), `cached_since_step` the step in which its prefix was cached,
    `num_hits` its number of hits. `alternatives` are up to four block ids that follow in the queue, head first.
    `num_free` is the length of the queue before the block was taken.
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
    """Why blocks were released.

    The request ended (`finished`, `cancelled`, `failed`), was `preempted` or `swapped` out, or its `window` moved on.
    `forgotten`: no layer or head keeps an entry of these blocks. `no_cache`: the step is over and this engine keeps
    nothing between steps.
    """

    code: Literal["finished", "cancelled", "failed", "preempted", "swapped", "window", "forgotten", "no_cache"]
    window_start: int | None = None


@_event
class PreemptionReason:
    """Why this request lost its blocks: `for_request_id` needs `num_blocks_needed`, and `num_free` are free.

    `code`: `recompute` (its tokens are computed again later) or `swap` (its entries move to the host tier). `order`:
    the victim is the `last` of the running requests, or has the lowest `priority`. `host_full`: the host tier had no
    space, so the request is recomputed instead of swapped. It keeps its `num_generated` tokens; `num_lost_tokens`
    entries must be computed again or moved back.
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
    """Where a request forked: it has the tokens of `parent_id` before `position`, and its own token there.

    `token_id` None: the fork computes the token before `position` again and samples its own.
    """

    parent_id: int
    position: int
    token_id: int | None


@_event
class FinishReason:
    """Why a request ended: `eos` (it sampled an end token), `length` (its token limit), `cancelled`, `failed`."""

    code: Literal["eos", "length", "cancelled", "failed"]
    token_id: int | None = None


@_event
class SampleReason:
    """How the token was chosen, and how many tokens remained after top-k and top-p.

    `forced`: the compared text dictates the token; the first candidate is the model's own choice.
    """

    code: Literal["greedy", "sampled", "forced"]
    num_considered: int


@_event
class RequestAdded:
    """A request joined the waiting queue. Its prompt is known; none of it is computed.

    `continues` is the request whose conversation this one continues; the prompt repeats its history. `prompt` is the
    text as the user wrote it. `token_ids` are what the model gets, chat template included. The first
    `num_prompt_tokens` of them are the prompt (None: all of them; a fork also has tokens that were generated before
    it). Under `priority` order, a smaller `priority` goes first.
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
    """A fork shares blocks with its parent and runs. The reference count of each shared block rose by one.

    `block_ids` is the fork's block table (None where a block is outside the window). K and V exist for its first
    `num_computed` tokens. If both go on to write to the same block, the first writer gets a copy.
    """

    request_id: int
    parent_id: int
    block_ids: tuple[int | None, ...]
    num_computed: int
    window_start: int = 0
    type: Literal["request_forked"] = "request_forked"


@_event
class RequestReprioritised:
    """The priority of a request changed."""

    request_id: int
    priority: int
    type: Literal["request_reprioritised"] = "request_reprioritised"


@_event
class RequestPreempted:
    """A running request gives way to another. The following events release its blocks, and it waits at the front.

    With `recompute`, none of its tokens counts as computed. With `swap`, its entries move to the host tier.
    """

    request_id: int
    reason: PreemptionReason
    type: Literal["request_preempted"] = "request_preempted"


@_event
class BlocksSwappedOut:
    """The blocks of a preempted request were copied to the host tier, one host block each, before their release."""

    request_id: int
    logical_indices: tuple[int, ...]
    block_ids: tuple[int, ...]
    host_ids: tuple[int, ...]
    num_bytes: int
    copy_us: int
    type: Literal["blocks_swapped_out"] = "blocks_swapped_out"


@_event
class BlocksSwappedIn:
    """The blocks of a swapped request were copied back to newly allocated ones. It runs; its host blocks are free."""

    request_id: int
    logical_indices: tuple[int, ...]
    block_ids: tuple[int, ...]
    host_ids: tuple[int, ...]
    num_bytes: int
    copy_us: int
    type: Literal["blocks_swapped_in"] = "blocks_swapped_in"


@_event
class BlockCopied:
    """Copy-on-write: before writing to a block that others also use, a request got a copy of its own.

    The copy holds the first `num_tokens` entries and comes from the head of the free queue. It replaces `from_block_id`
    in the block table, whose reference count fell by one.
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
    """A cached block is about to be evicted, and was copied to the host tier under its prefix hash."""

    block_id: int
    host_id: int
    hash: str
    num_bytes: int
    copy_us: int
    type: Literal["block_offloaded"] = "block_offloaded"


@_event
class BlockFetched:
    """A prefix hit in the host tier: its entries moved to a newly allocated block, and the host block is free."""

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
    """The host tier was full, so it evicted its least recently used prefix."""

    host_id: int
    hash: str
    since_step: int
    type: Literal["host_evicted"] = "host_evicted"


@_event
class StepStarted:
    """Step `step` started (counted from 1). All events up to the matching `step_finished` belong to it."""

    step: int
    type: Literal["step_started"] = "step_started"


@_event
class PrefixLookedUp:
    """The full blocks of a prompt were looked up in the prefix cache, in order, up to the first miss.

    `num_host_tokens` of the hit tokens are in the host tier. They follow those in `hit_block_ids` and are fetched from
    there.
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
    """A request left the waiting queue and runs. Its first `num_hit_tokens` tokens count as computed.

    Also emitted when a preempted request resumes.
    """

    request_id: int
    num_hit_tokens: int
    type: Literal["request_started"] = "request_started"


@_event
class BlockShared:
    """A cached block joined the block table of a request; its reference count rose by one.

    If the block was free, it left the free queue.
    """

    request_id: int
    logical_index: int
    block_id: int
    type: Literal["block_shared"] = "block_shared"


@_event
class BlockEvicted:
    """The block at the head of the free queue is needed and lost the cached prefix it held."""

    block_id: int
    hash: str
    reason: EvictionReason
    type: Literal["block_evicted"] = "block_evicted"


@_event
class BlockAllocated:
    """The head of the free queue joined the block table of a request, empty and with reference count 1."""

    request_id: int
    logical_index: int
    block_id: int
    reason: AllocationReason
    type: Literal["block_allocated"] = "block_allocated"


@_event
class BlockCached:
    """A full block was registered under its chained prefix hash.

    As in vLLM, this happens when its tokens are scheduled, before K and V are written. `duplicate_of` is the first
    block already registered under the same hash, if any; lookups continue to return that one.
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
    """What a step computes: one flat batch of these chunks, in this order, within `budget` tokens.

    `blocked` is the request at the head of the waiting queue that was not admitted, and what was missing: `blocks`,
    `budget`, `slots` (the maximum number of requests is running) or `preemption` (a step that preempts admits nothing).
    """

    step: int
    chunks: tuple[Chunk, ...]
    budget: int | None = None
    blocked: Blocked | None = None
    type: Literal["step_scheduled"] = "step_scheduled"


@_event
class KvWritten:
    """K and V of these positions were written into these slots, in every layer that stores any.

    Emitted once per step and request, after the forward pass. The record's `seq` is the `write_seq` of the entries.
    `layers` is the order in which the layers wrote. `layer_us` is when each layer wrote, and `read_us` when its
    attention had read the entries, in microseconds since the forward pass started.
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
    """A policy dropped entries of a request after they were read. They are never read again; their blocks may remain.

    `dropped[layer][head]` lists positions. A single list of heads stands for all layers if they drop the same entries,
    and a single list of positions for all KV heads of a layer. The next event releases blocks with no entries left.
    """

    request_id: int
    policy: str
    dropped: tuple[tuple[tuple[int, ...], ...], ...]
    type: Literal["kv_forgotten"] = "kv_forgotten"


@_event
class TokenSampled:
    """A token was chosen for `position`. Its K and V don't exist yet; the step that computes the token writes them."""

    request_id: int
    position: int
    token_id: int
    piece: Piece
    candidates: tuple[Candidate, ...]
    reason: SampleReason
    type: Literal["token_sampled"] = "token_sampled"


@_event
class RequestFinished:
    """A request ended. The following events release its blocks."""

    request_id: int
    reason: FinishReason
    type: Literal["request_finished"] = "request_finished"


@_event
class BlocksReleased:
    """A request released blocks. The reference count of each fell by one, in the order of `block_ids`.

    `logical_indices` are their places in the block table, now empty. Blocks that reached count 0 entered the free
    queue: those in `prepended` (no cached prefix, empty again) as one batch at its head, those in `appended` (still
    cached) at its tail, each list in queue order. `places` is then None. Under policies other than `lru`, the blocks
    were inserted one by one, each at the given place of the queue (0: the head).
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
    """The cached prefixes of these blocks were discarded. The blocks stay where they are, in use or free.

    `reason`: `reset`, all of them; `unwritten`, registered in a step that failed, or for a request preempted in it;
    `overwritten`, a fork writes to a full block of its parent that is not used elsewhere.
    """

    block_ids: tuple[int, ...]
    reason: Literal["reset", "unwritten", "overwritten"] = "reset"
    type: Literal["prefix_cache_reset"] = "prefix_cache_reset"


@_event
class MissMeasured:
    """The prompt of a request that hit the prefix cache was computed once more under a fresh salt, without a hit.

    The measurement uses its own pool and leaves this one unchanged. `first_token_us` is its time to first token, and
    `hit_first_token_us` that of the request. Both run from the start of the first step to the sampled token, summed
    over the steps.
    """

    request_id: int
    num_tokens: int
    first_token_us: int
    hit_first_token_us: int
    type: Literal["miss_measured"] = "miss_measured"


@_event
class LaneMeasured:
    """Measurements of one comparison lane for one token of the text that lane 0, the reference, generates.

    The lane is teacher-forced: at `position`, it has read the same tokens as the reference. `own_token_id` is its most
    probable token there, `token_id` the token taken, and `agrees` is whether they match. `kl` is Σ p ln(p / q) in nats,
    where p are the probabilities of the reference and q those of the lane. `nll` is -ln q(`token_id`), `max_abs_diff`
    the largest difference between two logits. `free_token_id` is the token at `position` when the lane generates
    freely, or None once that text has ended.

    `num_projections`: tokens whose K and V were computed for this request so far. `held_bytes`: the blocks it holds,
    including scales and the full-precision part. `read_bytes`: the stored entries that its last query read.
    `copied_bytes`: bytes moved so far because the cache grew. `kept_share`: the share of entries not forgotten, over
    all layers and heads. `step_us`: the forward passes since the previous token; for the first token, those of the
    prompt.
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
    """How much the K and V that attention reads in a lane differ from the reference, after `num_tokens` tokens.

    ‖lane - reference‖ / ‖reference‖ over the entries that both still hold, [layer][KV head of the reference]. The
    difference includes the error of the codec itself and the errors propagated from the layers below.
    """

    lane: int
    request_id: int
    num_tokens: int
    key_error: tuple[tuple[float, ...], ...]
    value_error: tuple[tuple[float, ...], ...]
    type: Literal["lane_errors_measured"] = "lane_errors_measured"


@_event
class NeedleSought:
    """A lane finished its own answer to a prompt that hides a word; `found` is whether the answer contains the word."""

    lane: int
    request_id: int
    word: str
    found: bool
    answer: str
    type: Literal["needle_sought"] = "needle_sought"


@_event
class ProbeTimed:
    """An attacker guessed a prompt and observed one number: the time to first token.

    `is_secret`: whether the guess equals the other tenant's earlier prompt, which the attacker doesn't know.
    `says_secret`: the attacker's conclusion from the time alone; None while it calibrates on its own prompts.
    `num_hit_tokens`: the cached tokens of the guess, which the attacker doesn't see. `shared`: whether the tenants
    share prefixes.
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
    """A step ended. `digest` (16 hex digits) covers the state of the cache; see docs/events.md.

    `forward_us` is the duration of the forward pass, `step_us` that of the whole step.
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

#: All event classes, in the order of the documentation.
EVENT_TYPES: tuple[type[Any], ...] = Event.__args__

_adapter: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Discriminator("type")])
_record_adapter: TypeAdapter[tuple[int, int, Event]] = TypeAdapter(
    tuple[int, int, Annotated[Event, Discriminator("type")]]
)


def parse_record(line: bytes) -> tuple[int, int, Event]:
    """Parse a record from a line of JSON, without converting values. Unknown fields are ignored.

    Raises pydantic's `ValidationError`.
    """
    return _record_adapter.validate_json(line, strict=True)
