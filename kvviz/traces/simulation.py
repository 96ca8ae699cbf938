"""Simulations: runs a trace through a cache with one policy, at one or many capacities."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvviz.errors import TraceError
from kvviz.messages import shown
from kvviz.traces.caches import Cache, FifoCache, LfuCache, LruCache, RandomCache
from kvviz.traces.optimum import Optimum
from kvviz.traces.results import Course, Result, Tally
from kvviz.traces.sweeps import LruSweep
from kvviz.traces.trace import StoredTrace, Trace

POLICIES = ("lru", "fifo", "lfu", "random", "optimum")
#: Names of the policies in other programs.
OTHER_NAMES = {"opt": "optimum", "optimal": "optimum", "belady": "optimum"}
MAX_CAPACITY = 2**53
#: Maximum number of capacities in a sweep.
MAX_SWEEP = 200

Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """Counts of one run, and its course over the requests."""

    result: Result
    course: Course


def simulate(trace: Trace, policy: str, capacity: int, *, seed: int = 0, stop: Stop = lambda: False) -> SimulationRun:
    """Run a trace through one cache of `capacity` blocks (0: unbounded).

    The optimum needs a `StoredTrace`. `seed` is used by the random policy. If `stop()` returns true after a batch, the
    counts cover the batches so far. Raises `TraceError`.
    """
    policy = check_policy(policy)
    cache = _cache(trace, policy, check_capacity(capacity), seed)
    tally = Tally()
    for batch in trace:
        found = cache.replay(batch)
        tally.count(batch)
        tally.add(batch, found, trace.block_size)
        if stop():
            break
    return SimulationRun(tally.result(policy, capacity, trace.block_size, cache, is_partial=stop()), tally.course)


def sweep(
    trace: Trace, policy: str, capacities: Sequence[int], *, seed: int = 0, stop: Stop = lambda: False
) -> list[Result]:
    """Run a trace through caches of several capacities: LRU in one pass, the others one by one.

    If `stop()` returns true after a batch, the results of LRU cover the batches so far. For other policies, the last
    result is partial and the remaining capacities are missing. Raises `TraceError`.
    """
    check_capacities(capacities)
    if check_policy(policy) == "lru":
        return sweep_lru(trace, capacities, stop=stop).results(trace.block_size, is_partial=stop())
    results: list[Result] = []
    for capacity in capacities:
        results.append(simulate(trace, policy, capacity, seed=seed, stop=stop).result)
        if stop():
            break
    return results


def sweep_lru(trace: Trace, capacities: Sequence[int], *, stop: Stop = lambda: False) -> LruSweep:
    """SimulationRun all capacities under LRU in one pass, and count the reuse distances of the trace."""
    one_pass = LruSweep(check_capacities(capacities))
    for batch in trace:
        one_pass.replay(batch, trace.block_size)
        if stop():
            break
    return one_pass


def check_policy(policy: str) -> str:
    """Return the canonical name of a policy; accepts `OTHER_NAMES`. Raises `TraceError` if it is unknown."""
    name = policy.lower()
    if OTHER_NAMES.get(name, name) not in POLICIES:
        raise TraceError(
            f"Policy must be one of {', '.join(POLICIES)} (got {shown(policy)}).",
            code="bad_setting",
        )
    return OTHER_NAMES.get(name, name)


def check_capacity(capacity: int) -> int:
    """Validate a number of blocks; 0 means unlimited. Raises `TraceError`."""
    if not 0 <= capacity <= MAX_CAPACITY:
        raise TraceError(
            f"Cache size must be 0 (unlimited) to {MAX_CAPACITY:,} blocks (got {shown(capacity)}).",
            code="bad_setting",
        )
    return capacity


def check_capacities(capacities: Sequence[int]) -> Sequence[int]:
    """Validate the numbers of blocks for a sweep. Raises `TraceError`."""
    if not 1 <= len(capacities) <= MAX_SWEEP:
        raise TraceError(f"A sweep must have 1–{MAX_SWEEP} capacities (got {len(capacities):,}).", code="bad_setting")
    for capacity in capacities:
        check_capacity(capacity)
    return capacities


def _cache(trace: Trace, policy: str, capacity: int, seed: int) -> Cache:
    limit = capacity or sys.maxsize
    match policy:
        case "lru":
            return LruCache(limit)
        case "fifo":
            return FifoCache(limit)
        case "lfu":
            return LfuCache(limit)
        case "random":
            return RandomCache(limit, seed)
        case _:
            assert isinstance(trace, StoredTrace), "the optimum looks ahead"
            return Optimum(limit, trace)
