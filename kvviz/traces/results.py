"""Simulation results: counts for one cache over one trace, in total and over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvviz.traces.batches import Batch, Ints
from kvviz.traces.caches import Cache

#: Maximum number of points of a course. With enough requests, it has at least half as many.
MAX_POINTS = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One policy at one capacity (`blocks`, 0: unbounded) over `requests`.

    - `hit_tokens` of `total_tokens`.
    - `hit_blocks` of `references`, the hashes of all requests.
    - `evictions`: number of evicted blocks, including blocks of the request being processed.
    - `distinct_blocks`: distinct blocks in the trace.
    - `is_partial`: the run was stopped; all counts cover the requests up to there.
    """

    policy: str
    blocks: int
    block_size: int
    requests: int
    total_tokens: int
    hit_tokens: int
    references: int
    hit_blocks: int
    evictions: int
    distinct_blocks: int
    is_partial: bool = False

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens that hit; 0 if there are none."""
        return self.hit_tokens / self.total_tokens if self.total_tokens else 0.0

    @property
    def block_hit_rate(self) -> float:
        """Share of the block references that hit; 0 if there are none."""
        return self.hit_blocks / self.references if self.references else 0.0

    def saved_s(self, tokens_per_s: float) -> float:
        """Seconds of prefill that the hits save at `tokens_per_s`."""
        return self.hit_tokens / tokens_per_s


class Tally:
    """Sums over batches: their requests (`count`), and the hits of one cache (`add`)."""

    def __init__(self) -> None:
        self.requests = self.total_tokens = self.references = self.num_blocks = 0
        self.hit_tokens = self.hit_blocks = 0
        self.course = Course()

    def count(self, batch: Batch) -> None:
        self.requests += len(batch.input_lengths)
        self.total_tokens += int(batch.input_lengths.sum())
        self.references += int(batch.chain_lengths.sum())
        self.num_blocks = max(self.num_blocks, int(batch.blocks.max(initial=-1)) + 1)

    def add(self, batch: Batch, found: list[int], block_size: int) -> None:
        """Add the hits of a cache for each request of a batch, as returned by `Cache.replay`."""
        lengths = batch.hit_lengths(found)
        tokens = np.minimum(lengths * block_size, batch.input_lengths)
        self.hit_blocks += int(lengths.sum())
        self.hit_tokens += int(tokens.sum())
        self.course.add(batch.timestamps, batch.input_lengths, tokens)

    def result(self, policy: str, capacity: int, block_size: int, cache: Cache, *, is_partial: bool = False) -> Result:
        return Result(
            policy=policy,
            blocks=capacity,
            block_size=block_size,
            requests=self.requests,
            total_tokens=self.total_tokens,
            hit_tokens=self.hit_tokens,
            references=self.references,
            hit_blocks=self.hit_blocks,
            evictions=cache.num_entered - cache.size,
            distinct_blocks=self.num_blocks,
            is_partial=is_partial,
        )


@dataclass(slots=True)
class Course:
    """Tokens and hit tokens over the requests, in bins of equally many requests, at most `MAX_POINTS` of them.

    When there are more, neighbouring bins are merged, so memory stays constant.
    """

    requests_per_point: int = 1
    _times: list[float] = field(default_factory=list)
    _tokens: list[int] = field(default_factory=list)
    _hits: list[int] = field(default_factory=list)
    _open: int = 0

    def add(self, timestamps: np.ndarray[Any, Any], tokens: Ints, hits: Ints) -> None:
        """Add the next requests."""
        done = 0
        while done < len(tokens):
            if not self._open:
                self._begin()
            take = min(self.requests_per_point - self._open, len(tokens) - done)
            part = slice(done, done + take)
            self._times[-1] = float(timestamps[done + take - 1])
            self._tokens[-1] += int(tokens[part].sum())
            self._hits[-1] += int(hits[part].sum())
            self._open = (self._open + take) % self.requests_per_point
            done += take

    def _begin(self) -> None:
        if len(self._times) == MAX_POINTS:
            self._times = self._times[1::2]
            self._tokens = [sum(self._tokens[at : at + 2]) for at in range(0, MAX_POINTS, 2)]
            self._hits = [sum(self._hits[at : at + 2]) for at in range(0, MAX_POINTS, 2)]
            self.requests_per_point *= 2
        self._times.append(0.0)
        self._tokens.append(0)
        self._hits.append(0)

    def points(self) -> list[tuple[float, int, int]]:
        """For each bin: timestamp of its last request, tokens, hit tokens."""
        return list(zip(self._times, self._tokens, self._hits, strict=True))
