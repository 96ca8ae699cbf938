"""The runner: what computes the steps that the engine decides, with a model or, in tests, without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from kvviz.engine.requests import Request
from kvviz.events import Chunk, SamplingParams

MAX_TOKEN_ID = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What a runner computes for one request in one step: some new tokens after all that is in the cache.

    `token_ids` sit at positions `start` … and go into `slots`; `block_table` covers `length` = start + new tokens
    (None where a block is gone because no layer reads it any more). `sampling` is None when no token is wanted.
    """

    request_id: int
    token_ids: Sequence[int]
    start: int
    slots: Sequence[int]
    block_table: Sequence[int | None]
    length: int
    sampling: SamplingParams | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sampled token and the most probable ones with their probabilities, best first."""

    token_id: int
    candidates: Sequence[tuple[int, float]]
    code: Literal["greedy", "sampled", "forced"]
    num_considered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """Entries of one request that are not read again, see `kvviz.events.KvForgotten`.

    `empty_indices`: logical blocks in which nothing is kept any more.
    """

    policy: str
    dropped: tuple[tuple[tuple[int, ...], ...], ...]
    empty_indices: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a runner did: a sample per segment that wanted one, and when each layer wrote and was read.

    `forgotten`: by place in the step, for those requests of which entries were dropped.
    """

    samples: Sequence[Sample | None]
    layers: Sequence[int]
    layer_us: Sequence[int]
    read_us: Sequence[int]
    forward_us: int
    forgotten: Mapping[int, Forgotten] = field(default_factory=dict)


#: Of a step in which nobody could compute: no runner is asked.
NOTHING_RUN = StepResult(samples=(), layers=(), layer_us=(), read_us=(), forward_us=0)


class Runner(Protocol):
    """Computes steps and moves blocks. `window`, `cache_keys` and `max_positions` are facts about its model.

    The three moves copy the entries of whole blocks at once and give the bytes and microseconds that it took.
    """

    @property
    def window(self) -> int | None:
        """Tokens that the farthest-reading layer sees back when every layer has a window, else None."""

    @property
    def cache_keys(self) -> tuple[str, ...]:
        """What makes cached entries of this runner different from another's: weights, dtype, codec, windows."""

    @property
    def max_positions(self) -> int | None:
        """Longest sequence that the model takes, None when it has no limit."""

    def run(self, step: int, segments: Sequence[Segment]) -> StepResult:
        """One forward pass over all segments, of which there is at least one."""

    def copy_block(self, source: int, target: int) -> tuple[int, int]:
        """Copy a block within the pool."""

    def store_blocks(self, block_ids: Sequence[int], host_ids: Sequence[int]) -> tuple[int, int]:
        """Copy blocks of the pool into the host tier."""

    def load_blocks(self, host_ids: Sequence[int], block_ids: Sequence[int]) -> tuple[int, int]:
        """Copy blocks of the host tier into the pool."""

    def fork(self, parent_id: int, request_id: int) -> None:
        """A request goes on from its parent's entries."""

    def forget(self, request_id: int) -> None:
        """The request has ended."""


def check_result(plan: Sequence[tuple[Request, Chunk]], result: StepResult) -> None:
    """Raise `TypeError` or `ValueError` when a runner's answer does not fit the step that it was asked for."""
    if len(result.samples) != len(plan):
        raise ValueError(
            f"the runner gave {len(result.samples)} samples for {len(plan)} segments; one each was expected"
        )
    for (request, chunk), sample in zip(plan, result.samples, strict=True):
        wanted = chunk.start + chunk.num_tokens == request.num_tokens
        if (sample is not None) is not wanted:
            raise ValueError(
                f"request {request.request_id} wanted {'a' if wanted else 'no'} sample, but got {sample!r}"
            )
        if sample is not None and not 0 <= sample.token_id <= MAX_TOKEN_ID:
            raise ValueError(f"the runner sampled token {sample.token_id}; ids go from 0 to {MAX_TOKEN_ID}")
