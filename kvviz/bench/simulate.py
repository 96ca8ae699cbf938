"""Trace simulation relative to a plain OrderedDict, within one run.

Rounds are interleaved: a loop over an OrderedDict with the same lookups, insertions and evictions, then one LRU run, a
sweep over `NUM_CAPACITIES` capacities and the optimum, each starting from hashes. Times are the thread's CPU time.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kvviz.traces.batches import Batch, Numbering, batches_of
from kvviz.traces.generated import BENCH
from kvviz.traces.simulation import simulate, sweep
from kvviz.traces.trace import StoredTrace
from kvviz.traces.trace_request import TraceRequest

NUM_ROUNDS = 9
NUM_CAPACITIES = 20
#: Capacity of the single runs: one in this many distinct blocks.
CAPACITY_SHARE = 4


@dataclass(frozen=True, slots=True)
class SimulateResult:
    """Medians over the rounds: `plain_ms` of the plain loop, and the other times ÷ the plain loop's."""

    requests: int
    references: int
    distinct_blocks: int
    capacity: int
    seed: int
    plain_ms: float
    lru: float
    sweep: float
    optimum: float


@dataclass(frozen=True, slots=True)
class _Hashes:
    """The benchmark's requests, as read from a file. Each iteration numbers the blocks anew."""

    requests: Sequence[TraceRequest]
    block_size: int = BENCH.block_size

    def __iter__(self) -> Iterator[Batch]:
        return batches_of(self.requests, Numbering())


def measure_simulate() -> SimulateResult:
    """Measure all rounds. Asserts that the plain loop and the LRU run agree."""
    trace = _Hashes(list(BENCH.requests()))
    chains = [request.hash_ids.tolist() for request in trace.requests]
    num_blocks = len({block for chain in chains for block in chain})
    capacity = num_blocks // CAPACITY_SHARE
    capacities = [num_blocks * part // NUM_CAPACITIES for part in range(1, NUM_CAPACITIES + 1)]
    expected = plain_lru(chains, capacity)
    result = simulate(trace, "lru", capacity).result
    assert (result.hit_blocks, result.evictions) == expected
    rounds = [
        (
            _seconds(lambda: plain_lru(chains, capacity)),
            _seconds(lambda: simulate(trace, "lru", capacity)),
            _seconds(lambda: sweep(trace, "lru", capacities)),
            _seconds(lambda: simulate(StoredTrace.of(trace), "optimum", capacity)),
        )
        for _ in range(NUM_ROUNDS)
    ]
    lru, swept, optimum = (statistics.median(row[at] / row[0] for row in rounds) for at in (1, 2, 3))
    plain_ms = 1_000 * statistics.median(row[0] for row in rounds)
    return SimulateResult(
        len(chains), sum(map(len, chains)), num_blocks, capacity, BENCH.seed, plain_ms, lru, swept, optimum
    )


def plain_lru(chains: Sequence[Sequence[int]], capacity: int) -> tuple[int, int]:
    """Hits and evictions of LRU, in blocks, by the rules of docs/traces.md in the simplest way."""
    cache: OrderedDict[int, None] = OrderedDict()
    num_hit = num_evicted = 0
    for chain in chains:
        for block in chain:
            if block not in cache:
                break
            num_hit += 1
        for block in reversed(chain):
            if block in cache:
                cache.move_to_end(block)
            else:
                cache[block] = None
        while len(cache) > capacity:
            cache.popitem(last=False)
            num_evicted += 1
    return num_hit, num_evicted


def _seconds(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.thread_time()
    work()
    return time.thread_time() - began
