"""A study of one trace for the page: its figures, each policy over capacities, and each policy at one capacity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kvviz.traces.cache_size import blocks_in
from kvviz.traces.lines import Faults
from kvviz.traces.results import Result
from kvviz.traces.simulation import POLICIES, simulate, sweep_lru
from kvviz.traces.trace import StoredTrace, Trace, TraceFile

#: Capacities of a curve, from a fraction of the distinct blocks to all of them, evenly spaced on a logarithmic axis.
NUM_CAPACITIES = 17
#: Number of capacities for LRU, which computes them in one pass. Those of the other policies are a subset.
LRU_FACTOR = 5
SMALLEST_SHARE = 512
#: The default capacity is the number of distinct blocks divided by this.
DEFAULT_SHARE = 12
#: Maximum number of references in a trace for the page, including uploaded files.
MAX_STUDY_REFERENCES = 3_000_000

#: A part of the study: its kind, its policy ("" for the trace), and its JSON data.
Part = tuple[str, str, Any]
Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Settings of a study. The capacity is `blocks` (0: unlimited), or what fits in `memory_bytes` for a model."""

    policies: tuple[str, ...] = POLICIES
    seed: int = 0
    blocks: int | None = None
    memory_bytes: int = 0
    model_id: str = ""
    dtype: str = "bf16"

    def capacity(self, block_size: int, distinct_blocks: int) -> int:
        """Blocks of the cache; by default, a twelfth of the trace's. Raises `KvvizError` like `blocks_in`."""
        if self.memory_bytes:
            return blocks_in(self.memory_bytes, self.model_id, self.dtype, block_size)
        return max(1, distinct_blocks // DEFAULT_SHARE) if self.blocks is None else self.blocks


def capacities_of(distinct_blocks: int, num_steps: int = NUM_CAPACITIES) -> list[int]:
    """Capacities of a curve, ascending; the last one holds all blocks."""
    low = max(1, distinct_blocks // SMALLEST_SHARE)
    return sorted({round(float(size)) for size in np.geomspace(low, max(1, distinct_blocks), num_steps)})


def study(trace: Trace, question: Question, progress: Progress) -> Iterator[Part]:
    """Yield the parts of a study as they are computed. Raises `KvvizError`.

    The `summary` of the trace comes first, then for each policy its `point` at the chosen capacity and its `curve`.
    """
    progress(0.0, "reading")
    stored = StoredTrace.of(trace, MAX_STUDY_REFERENCES)
    total = 1 + sum(1 if policy == "lru" else NUM_CAPACITIES + 1 for policy in question.policies)
    done = 1

    def step(policy: str) -> None:
        nonlocal done
        done += 1
        progress(done / (total + 1), policy)

    fine = capacities_of(stored.num_blocks, LRU_FACTOR * (NUM_CAPACITIES - 1) + 1)
    one_pass = sweep_lru(stored, fine)
    lru = one_pass.results(stored.block_size)
    capacity = question.capacity(stored.block_size, stored.num_blocks)
    faults, note = (trace.faults, trace.block_size_note) if isinstance(trace, TraceFile) else (Faults(), None)
    yield "summary", "", summary_of(stored, faults, note, lru[-1], [int(count) for count in one_pass.reuse])
    for policy in question.policies:
        yield "point", policy, point_of(stored, policy, capacity, question.seed)
        step(policy)
        if policy == "lru":
            yield "curve", policy, curve_of(lru)
            continue
        results = []
        for size in capacities_of(stored.num_blocks):
            results.append(simulate(stored, policy, size, seed=question.seed).result)
            step(policy)
        yield "curve", policy, curve_of(results)


def summary_of(
    stored: StoredTrace, faults: Faults, note: str | None, unbounded: Result, reuse: list[int]
) -> dict[str, Any]:
    """Figures of the trace. `unbounded` is a result without evictions."""
    return {
        "requests": unbounded.requests,
        "total_tokens": unbounded.total_tokens,
        "references": unbounded.references,
        "distinct_blocks": stored.num_blocks,
        "block_size": stored.block_size,
        "most_hit_tokens": unbounded.hit_tokens,
        "reuse": reuse,
        "first_timestamp": float(stored.batches[0].timestamps[0]),
        "last_timestamp": float(stored.batches[-1].timestamps[-1]),
        "bad_lines": faults.count,
        "faults": faults.sentences(),
        "block_size_note": note,
    }


def point_of(stored: StoredTrace, policy: str, capacity: int, seed: int) -> dict[str, Any]:
    """Counts of one policy at one capacity, with its course: [timestamp, tokens, hit tokens] for each bin."""
    run = simulate(stored, policy, capacity, seed=seed)
    return {**asdict(run.result), "hit_rate": run.result.hit_rate, "course": run.course.points()}


def curve_of(results: Sequence[Result]) -> dict[str, Any]:
    """Counts over capacities, as columns."""
    return {
        name: [getattr(result, name) for result in results]
        for name in ("blocks", "hit_rate", "hit_tokens", "hit_blocks", "evictions")
    }
