"""Caches with a fixed number of blocks, by eviction policy: LRU, FIFO, LFU, random.

All process requests as docs/traces.md defines. A request hits the blocks cached when it arrives. Then all its blocks
are cached: inserted or renewed, from the end of its chain to the head. Then blocks are evicted one at a time until the
capacity is met; these can include blocks of the same request.
"""

from __future__ import annotations

import heapq
import random
from array import array
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Protocol

import numpy as np

from kvviz.traces.batches import Batch, Numbers

PIECE = 2**13
#: A rank packs count, time and block in one number; these are the bits for block and time.
_BLOCK_BITS, _TIME_BITS = 31, 45


class Cache(Protocol):
    """A cache. `num_entered` counts insertions of uncached blocks; `size` is the number of cached blocks."""

    num_entered: int
    size: int

    def replay(self, batch: Batch) -> list[int]:
        """Process the next batch. For each request, return how many blocks at the head of its chain were cached."""


class LruCache:
    """Evicts the least recently used block.

    A queue holds a block once for each use since its insertion. The block is evicted when its last place is reached.
    Memory: 12 bytes per block, plus the batch.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.num_entered = self.size = 0
        self._order: Numbers = np.empty(0, np.int32)  # cached blocks, next to be evicted first
        self._num_seen = 0

    def replay(self, batch: Batch) -> list[int]:
        places = np.concatenate([self._order, batch.tail_first()])
        self._num_seen = max(self._num_seen, int(batch.blocks.max(initial=-1)) + 1)
        uses = self._uses()  # by block: number of its places in the queue
        queue = _one_by_one(places)
        size, capacity, num_passed, found = self.size, self.capacity, 0, []
        for blocks in batch.chains():
            num_hit = 0
            for block in blocks:
                if not uses[block]:
                    break
                uses[block] += 1
                num_hit += 1
            found.append(num_hit)
            num_new = 0
            for block in blocks[num_hit:]:
                count = uses[block]
                if not count:
                    num_new += 1
                uses[block] = count + 1
            self.num_entered += num_new
            size += num_new
            excess = size - capacity
            if excess > 0:
                for block in queue:
                    num_passed += 1
                    uses[block] = count = uses[block] - 1
                    if not count:
                        excess -= 1
                        if not excess:
                            break
                size = capacity
        self.size = size
        self._order = last_places(places[num_passed:], self._num_seen)
        return found

    def _uses(self) -> list[int]:
        uses = np.zeros(self._num_seen, np.uint8)
        uses[self._order] = 1
        counts: list[int] = uses.tolist()
        return counts


def last_places(places: Numbers, num_seen: int) -> Numbers:
    """Each block at its last place, in order."""
    last = np.empty(num_seen, np.int64)
    at = np.arange(len(places))
    last[places] = at  # for a repeated block, the last place wins
    kept: Numbers = places[last[places] == at]
    return kept


class FifoCache:
    """Evicts the block inserted first, regardless of its uses. A reinserted block counts as new."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.num_entered = self.size = 0
        self._is_in = bytearray()
        self._queue: deque[int] = deque()

    def replay(self, batch: Batch) -> list[int]:
        _grow(self._is_in, batch)
        is_in, queue, capacity, found = self._is_in, self._queue, self.capacity, []
        for blocks in batch.chains():
            num_hit = num_cached(blocks, is_in)
            found.append(num_hit)
            new = [block for block in blocks[num_hit:] if not is_in[block]]
            for block in new:
                is_in[block] = 1
            queue.extend(reversed(new))
            self.num_entered += len(new)
            while len(queue) > capacity:
                is_in[queue.popleft()] = 0
        self.size = len(queue)
        return found


class LfuCache:
    """Evicts the block used by the fewest requests since its insertion; the least recently used block on a tie."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.num_entered = self.size = 0
        self._ranks: list[int] = []  # by block: count, time of the last use and block in one number; 0: not cached
        self._heap: list[int] = []  # ranks; outdated ones are skipped
        self._now = 0

    def replay(self, batch: Batch) -> list[int]:
        ranks, heap, capacity, found = self._ranks, self._heap, self.capacity, []
        ranks.extend([0] * (int(batch.blocks.max(initial=-1)) + 1 - len(ranks)))
        for blocks in batch.chains():
            found.append(num_cached(blocks, ranks))
            for block in reversed(blocks):
                self._now += 1
                rank = ranks[block]
                if not rank:
                    self.num_entered += 1
                    self.size += 1
                count = (rank >> (_BLOCK_BITS + _TIME_BITS)) + 1
                ranks[block] = rank = ((count << _TIME_BITS) + self._now << _BLOCK_BITS) + block
                heapq.heappush(heap, rank)
            while self.size > capacity:
                rank = heapq.heappop(heap)
                block = rank & ((1 << _BLOCK_BITS) - 1)
                if ranks[block] == rank:
                    ranks[block] = 0
                    self.size -= 1
            if len(heap) > 1.25 * self.size + PIECE:
                heap[:] = [rank for rank in ranks if rank]
                heapq.heapify(heap)
        return found


class RandomCache:
    """Evicts a block at random: at place ⌊x × size⌋ for the next x of Python's generator with the seed.

    New blocks are appended. The last block moves to the place of an evicted one.
    """

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self.capacity = capacity
        self.num_entered = self.size = 0
        self._chance = random.Random(seed)
        self._held = array("i")
        self._place = array("i")  # by block; −1: not cached

    def replay(self, batch: Batch) -> list[int]:
        held, place, capacity, chance, found = self._held, self._place, self.capacity, self._chance.random, []
        place.extend([-1] * (int(batch.blocks.max(initial=-1)) + 1 - len(place)))
        for blocks in batch.chains():
            num_hit = len(blocks)
            for at in range(len(blocks) - 1, -1, -1):
                block = blocks[at]
                if place[block] < 0:
                    num_hit = at
                    place[block] = len(held)
                    held.append(block)
                    self.num_entered += 1
            found.append(num_hit)
            while len(held) > capacity:
                at = int(chance() * len(held))
                block, last = held[at], held.pop()
                if block != last:
                    held[at] = last
                    place[last] = at
                place[block] = -1
        self.size = len(held)
        return found


def _grow(flags: bytearray, batch: Batch) -> None:
    flags.extend(bytes(max(0, int(batch.blocks.max(initial=-1)) + 1 - len(flags))))


def num_cached(blocks: list[int], is_in: bytearray | list[int]) -> int:
    """Number of cached blocks at the head, before the first that is not cached."""
    num = 0
    for block in blocks:
        if not is_in[block]:
            break
        num += 1
    return num


def _one_by_one(numbers: Numbers) -> Iterator[int]:
    """Yield the numbers one by one, converted in small groups."""
    return chain.from_iterable(numbers[at : at + PIECE].tolist() for at in range(0, len(numbers), PIECE))
