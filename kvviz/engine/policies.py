"""Eviction policies: the order in which free blocks that hold a cached prefix are reused.

The free queue is kept in that order, so its head is always the next block to be evicted. A policy assigns a rank to a
block that becomes free; the block is inserted behind all blocks with a smaller or equal rank. Blocks without a prefix
are always reused first.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from kvviz.config import EvictionPolicy


@dataclass(slots=True)
class BlockUse:
    """Facts about a cached block that a policy may use: steps and counts."""

    cached_since: int = 0
    free_since: int = 0
    num_hits: int = 0


class Policy(Protocol):
    """Ranks a block that becomes free; smaller is reused earlier. None: at the tail, without a search."""

    @property
    def name(self) -> EvictionPolicy:
        """Name of the policy."""

    def rank(self, use: BlockUse) -> float | None:
        """Rank of a block that becomes free now."""


class Lru:
    """Order by when the last user released the block, as in vLLM."""

    name: EvictionPolicy = "lru"

    def rank(self, use: BlockUse) -> float | None:
        return None


class Fifo:
    """Order by when the prefix was cached, regardless of hits."""

    name: EvictionPolicy = "fifo"

    def rank(self, use: BlockUse) -> float | None:
        return use.cached_since


class Lfu:
    """Order by number of hits; ties by when the last user released the block."""

    name: EvictionPolicy = "lfu"

    def rank(self, use: BlockUse) -> float | None:
        return use.num_hits


class Random:
    """A random order, drawn when a block becomes free."""

    name: EvictionPolicy = "random"

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def rank(self, use: BlockUse) -> float | None:
        return self._chance.random()


def policy_of(name: EvictionPolicy, seed: int) -> Policy:
    policies: dict[EvictionPolicy, Policy] = {"lru": Lru(), "fifo": Fifo(), "lfu": Lfu(), "random": Random(seed)}
    return policies[name]
