"""The runner interface: computes the steps that the engine schedules, with a model or, in tests, without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from kvviz.engine.requests import Request
from kvviz.events import Chunk, SamplingParams

MAX_TOKEN_ID = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The new tokens of one request that a runner computes in one step.

    `token_ids` are at positions `start` … and go to `slots`. `block_table` covers `length` = start + new tokens (None
    for a released block that no layer reads). `sampling` is None if no token is to be sampled.
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
    """A sampled token and the most probable tokens with their probabilities, best first."""

    token_id: int
    candidates: Sequence[tuple[int, float]]
    code: Literal["greedy", "sampled", "forced"]
    num_considered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """Entries of one request that are never read again; see `kvviz.events.KvForgotten`.

    `empty_indices`: logical blocks with no entries left.
    """

    policy: str
    dropped: tuple[tuple[tuple[int, ...], ...], ...]
    empty_indices: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The result of a step: a sample for each segment that requested one, and the times of the layers.

    `forgotten` maps places in the step to the entries dropped for that request.
    """

    samples: Sequence[Sample | None]
    layers: Sequence[int]
    layer_us: Sequence[int]
    read_us: Sequence[int]
    forward_us: int
    forgotten: Mapping[int, Forgotten] = field(default_factory=dict)


#: Result of a step in which nothing could be computed; the runner isn't called.
NOTHING_RUN = StepResult(samples=(), layers=(), layer_us=(), read_us=(), forward_us=0)


class Runner(Protocol):
    """Computes steps and copies blocks. `window`, `cache_keys`, `max_positions` and `vocab_size` describe its model.

    The three copying methods copy all entries of whole blocks and return bytes and microseconds.
    """

    @property
    def window(self) -> int | None:
        """How far back the farthest-reading layer sees, in tokens, if every layer has a window; else None."""

    @property
    def cache_keys(self) -> tuple[str, ...]:
        """What distinguishes the cached entries of this runner: weights, dtype, codec, windows."""

    @property
    def max_positions(self) -> int | None:
        """Maximum sequence length of the model, or None if unlimited."""

    @property
    def vocab_size(self) -> int | None:
        """Token ids of the model are below this number; None if it takes any."""

    def run(self, step: int, segments: Sequence[Segment]) -> StepResult:
        """Run one forward pass over all segments (at least one)."""

    def copy_block(self, source: int, target: int) -> tuple[int, int]:
        """Copy a block within the pool."""

    def store_blocks(self, block_ids: Sequence[int], host_ids: Sequence[int]) -> tuple[int, int]:
        """Copy blocks from the pool to the host tier."""

    def load_blocks(self, host_ids: Sequence[int], block_ids: Sequence[int]) -> tuple[int, int]:
        """Copy blocks from the host tier to the pool."""

    def fork(self, parent_id: int, request_id: int) -> None:
        """Continue a request from the entries of its parent."""

    def forget(self, request_id: int) -> None:
        """Discard the state of a finished request."""


def check_result(plan: Sequence[tuple[Request, Chunk]], result: StepResult) -> None:
    """Raise `TypeError` or `ValueError` if a result doesn't match the step."""
    if len(result.samples) != len(plan):
        raise ValueError(f"expected one sample per segment ({len(plan)}), got {len(result.samples)}")
    for (request, chunk), sample in zip(plan, result.samples, strict=True):
        wanted = chunk.start + chunk.num_tokens == request.num_tokens
        if (sample is not None) is not wanted:
            raise ValueError(f"request {request.request_id} expected {'a' if wanted else 'no'} sample, got {sample!r}")
        if sample is not None and not 0 <= sample.token_id <= MAX_TOKEN_ID:
            raise ValueError(f"sampled token ids must be from 0 to {MAX_TOKEN_ID}, got {sample.token_id}")
