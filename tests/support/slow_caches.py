"""Caches by the rules of docs/traces.md with lists and sorts only, to hold kvviz.traces against. Slow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Counts:
    hit_blocks: int = 0
    hit_tokens: int = 0
    evictions: int = 0


def slow_counts(
    requests: Sequence[tuple[list[int], int]], policy: str, capacity: int, block_size: int, seed: int = 0
) -> Counts:
    """`requests`: pairs of hash_ids and input_length. `capacity` 0: unbounded."""
    counts, chance = Counts(), random.Random(seed)
    cached: list[int] = []  # in the order in which they entered
    entered: dict[int, int] = {}
    used: dict[int, int] = {}
    uses: dict[int, int] = {}
    clock = 0
    for index, (ids, length) in enumerate(requests):
        prefix = 0
        while prefix < len(ids) and ids[prefix] in cached:
            prefix += 1
        counts.hit_blocks += prefix
        counts.hit_tokens += min(prefix * block_size, length)
        distinct = sorted(set(ids), key=ids.index)
        for block in reversed(distinct):
            clock += 1
            if block not in cached:
                cached.append(block)
                entered[block] = clock
                uses[block] = 0
            used[block] = clock
            uses[block] += 1
        while capacity and len(cached) > capacity:
            if policy == "lru":
                victim = sorted(cached, key=lambda block: used[block])[0]
            elif policy == "fifo":
                victim = sorted(cached, key=lambda block: entered[block])[0]
            elif policy == "lfu":
                victim = sorted(cached, key=lambda block: (uses[block], used[block]))[0]
            elif policy == "random":
                victim = cached[int(chance.random() * len(cached))]
            else:
                victim = sorted(cached, key=lambda block: next_use(requests, index + 1, block))[-1]
            if policy == "random":  # the last takes the place
                last = cached.pop()
                if last != victim:
                    cached[cached.index(victim)] = last
            else:
                cached.remove(victim)
            counts.evictions += 1
    return counts


def next_use(requests: Sequence[tuple[list[int], int]], start: int, block: int) -> tuple[float, int]:
    """Request that refers to the block next, and where in its chain."""
    for index in range(start, len(requests)):
        if block in requests[index][0]:
            return index, requests[index][0].index(block)
    return float("inf"), 0
