"""Caches over traces: hand-computed cases, a slow reference, the optimum against all, sweeps against direct runs."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.errors import TraceError
from kvviz.traces import batches as batching
from kvviz.traces import caches, optimum
from kvviz.traces.batches import Batch, Numbering, batches_of
from kvviz.traces.results import MAX_POINTS
from kvviz.traces.simulation import POLICIES, simulate, sweep, sweep_lru
from kvviz.traces.trace import StoredTrace
from kvviz.traces.trace_request import TraceRequest
from tests.support.sample import sampled
from tests.support.slow_caches import slow_counts

BLOCK = 4


@dataclass
class Made:
    """A trace of (hash_ids, input_length)."""

    requests: Sequence[tuple[list[int], int]]
    block_size: int = BLOCK

    def __iter__(self) -> Iterator[Batch]:
        made = (TraceRequest(float(i), length, 1, array("Q", ids)) for i, (ids, length) in enumerate(self.requests))
        yield from batches_of(made, Numbering())


def stored(requests: Sequence[tuple[list[int], int]]) -> StoredTrace:
    return StoredTrace.of(Made(requests))


def whole(*chains: list[int]) -> list[tuple[list[int], int]]:
    """Requests whose prompts fill their blocks."""
    return [(list(ids), len(ids) * BLOCK) for ids in chains]


@st.composite
def any_requests(draw: st.DrawFn) -> list[tuple[list[int], int]]:
    """Ids by lot, also twice in one request, with lengths that need not fit."""
    ids = st.lists(st.integers(0, 12) | st.integers(2**64 - 3, 2**64 - 1), max_size=7)
    return draw(st.lists(st.tuples(ids, st.integers(0, 40)), min_size=1, max_size=25))


@st.composite
def chains(draw: st.DrawFn) -> list[tuple[list[int], int]]:
    """Ids that stand for prefixes: the same id always has the same ids before it."""
    paths = draw(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=30))
    numbers: dict[tuple[int, ...], int] = {}
    return whole(
        *([numbers.setdefault(tuple(path[: n + 1]), len(numbers)) for n in range(len(path))] for path in paths)
    )


@pytest.fixture(params=[1, 7, None], ids=["batches of one", "batches of seven", "one batch"])
def batch_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches, so that what is carried from one to the next is tested, too."""
    if request.param:
        monkeypatch.setattr(batching, "MIN_BATCH_REFERENCES", request.param)
        monkeypatch.setattr(batching, "BATCH_SHARE", 10**9)


@pytest.mark.parametrize(("policy", "stayed"), [("lru", 1), ("fifo", 3)])
def test_by_hand(policy: str, stayed: int) -> None:
    """Capacity 3, next to leave first. [1 2]: holds 2 1. [1 2 3]: two hits, holds 3 2 1 (lru) or 2 1 3 (fifo).

    [4 5]: 5 and 4 come and two leave: 3 2 (lru) or 2 1 (fifo), so 1 or 3 has stayed.
    """
    requests = whole([1, 2], [1, 2, 3], [4, 5], [stayed], [6, 7])  # a hit, and two more leave for 6 and 7
    result = simulate(stored(requests), policy, 3).result
    assert (result.hit_blocks, result.evictions) == (3, 4)
    assert result.hit_tokens == 3 * BLOCK


def test_lfu_by_hand() -> None:
    """[1] [1] [2] [3]: 2 and 3 were used once, 2 earlier, so 2 leaves; then 1 is a hit and 2 is not."""
    result = simulate(stored(whole([1], [1], [2], [3], [1], [2])), "lfu", 2).result
    assert (result.hit_blocks, result.evictions) == (2, 2)


def test_lfu_counts_from_when_a_block_came() -> None:
    """Capacity 1. 1 is used three times, leaves for no block that was used less; so nothing else ever stays."""
    requests = whole([1], [1], [1], [2], [2], [2], [1])
    result = simulate(stored(requests), "lfu", 1).result
    assert (result.hit_blocks, result.evictions) == (3, 3)  # 2 leaves each time, with a count of one each time


def test_the_optimum_by_hand() -> None:
    """Capacity 2, [1] [2] [3] [1] [2]: 3 leaves at once, for nobody needs it again; lru keeps 2 and 3, in vain."""
    requests = whole([1], [2], [3], [1], [2])
    assert simulate(stored(requests), "optimum", 2).result.hit_blocks == 2
    assert simulate(stored(requests), "lru", 2).result.hit_blocks == 0


def test_a_request_longer_than_the_cache_keeps_its_head() -> None:
    requests = whole([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    result = simulate(stored(requests), "lru", 3).result
    assert result.hit_blocks == 3
    # 5 come and 2 leave; then 4 and 5 come again and leave
    assert result.evictions == 4
    assert sweep(stored(requests), "lru", [3])[0] == result


def test_what_is_behind_a_gap_is_no_hit_but_is_renewed() -> None:
    """8 is missing, so 2 behind it is no hit, but it becomes recent, and 1 leaves before it."""
    requests = whole([1, 2, 3], [9], [8, 2], [2], [1])
    # held in 3 blocks, next to leave first: 3 2 1 | 2 1 9 | 9 2 8 (1 leaves) | 9 8 2: hit | 1 is gone
    result = simulate(stored(requests), "lru", 3).result
    assert result.hit_blocks == 1
    assert sweep(stored(requests), "lru", [3])[0] == result


def test_hit_tokens_end_with_the_prompt() -> None:
    result = simulate(stored([([1, 2], 6), ([1, 2], 6), ([1, 2], 5), ([1, 2, 3], 9)]), "lru", 0).result
    assert result.hit_tokens == 6 + 5 + 8
    assert result.total_tokens == 26
    assert result.hit_rate == 19 / 26


def test_no_tokens_at_all_is_no_rate() -> None:
    result = simulate(stored([([], 0)]), "lru", 1).result
    assert (result.hit_rate, result.block_hit_rate, result.requests) == (0.0, 0.0, 1)


@settings(max_examples=100, deadline=None)
@given(requests=any_requests(), capacity=st.integers(0, 14), policy=st.sampled_from(POLICIES))
def check_reference(requests: list[tuple[list[int], int]], capacity: int, policy: str) -> None:
    expected = slow_counts(requests, policy, capacity, BLOCK, seed=5)
    result = simulate(stored(requests), policy, capacity, seed=5).result
    assert (result.hit_blocks, result.hit_tokens, result.evictions) == (
        expected.hit_blocks,
        expected.hit_tokens,
        expected.evictions,
    )
    assert result.total_tokens == sum(length for _, length in requests)
    assert result.requests == len(requests)
    assert result.references == sum(len(ids) for ids, _ in requests)
    assert result.distinct_blocks == len({block for ids, _ in requests for block in ids})


@pytest.mark.usefixtures("batch_size")
def test_every_policy_counts_what_the_slow_reference_counts() -> None:
    check_reference()


@pytest.mark.usefixtures("batch_size")
def test_a_sweep_gives_what_direct_runs_give() -> None:
    check_sweep()


@settings(max_examples=50, deadline=None)
@given(requests=any_requests(), capacities=st.lists(st.integers(0, 16), min_size=1, max_size=4))
def check_sweep(requests: list[tuple[list[int], int]], capacities: list[int]) -> None:
    trace = stored(requests)
    for policy in POLICIES:
        direct = [simulate(trace, policy, capacity).result for capacity in capacities]
        assert sweep(trace, policy, capacities) == direct
    for result in sweep(trace, "lru", capacities):
        expected = slow_counts(requests, "lru", result.blocks, BLOCK)
        assert (result.hit_tokens, result.evictions) == (expected.hit_tokens, expected.evictions)


@settings(max_examples=150, deadline=None)
@given(requests=chains(), capacity=st.integers(1, 12), seed=st.integers(0, 3))
def test_on_chains_nothing_hits_more_blocks_than_the_optimum(
    requests: list[tuple[list[int], int]], capacity: int, seed: int
) -> None:
    trace = stored(requests)
    best = simulate(trace, "optimum", capacity).result
    for policy in POLICIES:
        assert simulate(trace, policy, capacity, seed=seed).result.hit_blocks <= best.hit_blocks, policy


@settings(max_examples=40, deadline=None)
@given(requests=chains().filter(lambda made: len(made) <= 5), capacity=st.integers(1, 3))
def test_on_chains_the_optimum_is_the_best_of_all_choices(requests: list[tuple[list[int], int]], capacity: int) -> None:
    """Against every way to choose what stays, by trying them all."""

    def best_from(index: int, held: frozenset[int]) -> int:
        if index == len(requests):
            return 0
        ids = requests[index][0]
        prefix = next((n for n, block in enumerate(ids) if block not in held), len(ids))
        everything = sorted(held | set(ids))
        kept = combinations(everything, min(capacity, len(everything)))
        return prefix + max(best_from(index + 1, frozenset(each)) for each in kept)

    assert simulate(stored(requests), "optimum", capacity).result.hit_blocks == best_from(0, frozenset())


def test_without_chains_the_optimum_may_hit_less() -> None:
    """2 is needed next but behind 1, which is not there: the optimum keeps a block that a prefix cannot use."""
    requests = whole([9], [2], [5], [1, 2], [9])
    # capacity 1: belady keeps 2 for [1 2] where it is behind a gap; random or no keeping of 2 could hit 9
    assert simulate(stored(requests), "optimum", 1).result.hit_blocks == 0
    better = [simulate(stored(requests), "random", 1, seed=seed).result.hit_blocks for seed in range(200)]
    assert max(better) == 1


def test_reuse_distances_are_counted_by_powers_of_two() -> None:
    """[1 2 3 4] twice: depths 1, 2, 3, 4 from the head, so one up to 1, one up to 2, two up to 4; four were new."""
    reuse = sweep_lru(stored(whole([1, 2, 3, 4], [1, 2, 3, 4])), [0]).reuse
    assert list(reuse[:4]) == [1, 1, 2, 0]
    assert reuse[-1] == 4
    assert reuse.sum() == 8


def test_a_course_has_few_points_and_all_tokens() -> None:
    requests = [([n % 5], 3) for n in range(5 * MAX_POINTS + 3)]
    run = simulate(stored(requests), "lru", 0)
    points = run.course.points()
    assert MAX_POINTS / 2 <= len(points) <= MAX_POINTS
    assert run.course.requests_per_point == 8
    assert sum(tokens for _, tokens, _ in points) == run.result.total_tokens
    assert sum(hits for _, _, hits in points) == run.result.hit_tokens
    assert points[0] == (7.0, 24, 9)  # of the first eight, five are new
    assert points[-1][0] == len(requests) - 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("mru", 1), "Policy must be one of lru, fifo, lfu, random, optimum (got 'mru')."),
        (("lru", -1), "Cache size must be 0 (unlimited) to 9,007,199,254,740,992 blocks (got -1)."),
    ],
)
def test_settings_outside_their_limits(arguments: tuple[str, int], sentence: str) -> None:
    with pytest.raises(TraceError) as caught:
        simulate(stored(whole([1])), *arguments)
    assert caught.value.message == sentence


def test_a_sweep_has_a_limit() -> None:
    for capacities in ([], [1] * 201):
        with pytest.raises(TraceError, match="A sweep must have 1–200 capacities"):
            sweep(stored(whole([1])), "lru", capacities)


class Long:
    """`num_blocks` different blocks, each `times` times, in requests of 32 from a seed; nothing is kept of it."""

    block_size = 16

    def __init__(self, num_blocks: int, times: int) -> None:
        self.num_blocks, self.times = num_blocks, times

    def requests(self) -> Iterator[TraceRequest]:
        chance = random.Random(3)
        for _ in range(self.times):
            order = list(range(0, self.num_blocks, 32))
            chance.shuffle(order)
            for first in order:
                ids = array("Q", (2**40 + block for block in range(first, first + 32)))
                yield TraceRequest(0.0, 512, 1, ids)

    def __iter__(self) -> Iterator[Batch]:
        return batches_of(self.requests(), Numbering())


def peak_bytes(policy: str, num_blocks: int, times: int, share: float) -> int:
    trace, capacity = Long(num_blocks, times), int(num_blocks * share)
    tracemalloc.start()
    try:
        if policy == "sweep":
            sweep(trace, "lru", [capacity * n // 20 for n in range(1, 21)])
        else:
            simulate(StoredTrace.of(trace) if policy == "optimum" else trace, policy, capacity)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


FEWER, MORE = 2**13, 2**15


@pytest.fixture
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is the same for every trace is small, so that what grows is seen on small traces."""
    monkeypatch.setattr(batching, "MIN_BATCH_REFERENCES", 2**10)
    monkeypatch.setattr(caches, "PIECE", 2**8)
    monkeypatch.setattr(optimum, "SLACK", 2**8)


@pytest.mark.slow
@pytest.mark.usefixtures("_small_batches")
@pytest.mark.parametrize(
    ("policy", "share"),
    sampled(
        itertools.product(["lru", "fifo", "lfu", "random", "sweep"], [0.9, 2.0]),
        group=lambda case: case[1],
        always=[("sweep", 0.9)],
    ),
)
def test_memory_is_at_most_120_bytes_for_each_distinct_block(policy: str, share: float) -> None:
    few, many = (peak_bytes(policy, num_blocks, 2, share) for num_blocks in (FEWER, MORE))
    assert 12 <= (many - few) / (MORE - FEWER) <= 120
    # nor does it grow with references
    assert peak_bytes(policy, FEWER, 12, share) - peak_bytes(policy, FEWER, 4, share) <= 2 * (12 - 4) * FEWER


@pytest.mark.slow
@pytest.mark.usefixtures("_small_batches")
def test_memory_of_the_optimum_is_at_most_40_bytes_more_for_each_reference() -> None:
    few, many = (peak_bytes("optimum", FEWER, times, 0.5) for times in (2, 10))
    assert 8 <= (many - few) / (8 * FEWER) <= 40
    few, many = (peak_bytes("optimum", num_blocks, 2, 0.5) for num_blocks in (FEWER, MORE))
    assert (many - few) / (MORE - FEWER) <= 120 + 2 * 40
