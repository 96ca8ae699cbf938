"""Eviction policies: in which order free blocks that still hold a cached prefix are reused.

The free queue is kept in that order, so that its head is always the next block to go and can be seen beforehand. A
policy is one small class: it gives a block that becomes free a rank, and the block stands behind all with a smaller or
equal one. Blocks without a prefix are always reused first.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from kvviz.config import EvictionPolicy


@dataclass(slots=True)
class BlockUse:
    """What a policy may know of a cached block: steps and counts."""

    cached_since: int = 0
    free_since: int = 0
    num_hits: int = 0


class Policy(Protocol):
    """Ranks a block that becomes free; smaller is reused earlier. None: behind everybody, without looking."""

    @property
    def name(self) -> EvictionPolicy:
        """What it is called."""

    def rank(self, use: BlockUse) -> float | None:
        """Rank of a block that becomes free now."""


class Lru:
    """By when the last user left: the order of vLLM."""

    name: EvictionPolicy = "lru"

    def rank(self, use: BlockUse) -> float | None:
        return None


class Fifo:
    """By when the prefix was cached, however often it was hit since."""

    name: EvictionPolicy = "fifo"

    def rank(self, use: BlockUse) -> float | None:
        return use.cached_since


class Lfu:
    """By how often it was hit; of equals, by when the last user left."""

    name: EvictionPolicy = "lfu"

    def rank(self, use: BlockUse) -> float | None:
        return use.num_hits


class Random:
    """By lot, drawn when the block becomes free."""

    name: EvictionPolicy = "random"

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def rank(self, use: BlockUse) -> float | None:
        return self._chance.random()


def policy_of(name: EvictionPolicy, seed: int) -> Policy:
    policies: dict[EvictionPolicy, Policy] = {"lru": Lru(), "fifo": Fifo(), "lfu": Lfu(), "random": Random(seed)}
    return policies[name]
