"""The clairvoyant optimum: evicts the block needed furthest in the future. No cache of the same size has more hits."""

from __future__ import annotations

import heapq

import numpy as np

from kvviz.traces.batches import Batch
from kvviz.traces.caches import num_cached
from kvviz.traces.trace import StoredTrace

_BLOCK_BITS = 31
_BLOCK_MASK = 2**_BLOCK_BITS - 1
#: The heap is rebuilt when it holds this many times the blocks of the cache, plus `SLACK`.
_MOST_STALE = 1.25
SLACK = 2**13


class Optimum:
    """Belady's algorithm on the references in chain order.

    References of one request are numbered along its chain. Of the blocks that the same request needs next, the one
    further down its chain is evicted first. Blocks that are never needed again are evicted before all others, the
    latest first.
    """

    def __init__(self, capacity: int, trace: StoredTrace) -> None:
        self.capacity = capacity
        self.num_entered = self.size = 0
        self._next_use = trace.next_use
        self._is_in = bytearray(trace.num_blocks)
        self._unneeded: list[int] = []
        self._heap: list[int] = []  # needed furthest in the future first; past uses come last

    def replay(self, batch: Batch) -> list[int]:
        is_in, unneeded, heap = self._is_in, self._unneeded, self._heap
        first, num_references = batch.first_reference, len(self._next_use)
        next_use = self._next_use[first : first + len(batch.blocks)].astype(np.int64)
        ranks = (-(next_use << _BLOCK_BITS) - batch.blocks).tolist()
        never, mask, capacity, size, found = -(num_references << _BLOCK_BITS), _BLOCK_MASK, self.capacity, self.size, []
        begin = 0
        for blocks in batch.chains():
            num_hit = num_cached(blocks, is_in)
            found.append(num_hit)
            num_new = 0
            for block, rank in zip(blocks, ranks[begin : begin + len(blocks)], strict=True):
                if not is_in[block]:
                    is_in[block] = 1
                    num_new += 1
                if rank <= never:
                    unneeded.append(block)
                else:
                    heapq.heappush(heap, rank)
            begin += len(blocks)
            self.num_entered += num_new
            size += num_new
            while size > capacity:
                is_in[unneeded.pop() if unneeded else -heapq.heappop(heap) & mask] = 0
                size -= 1
            if len(heap) > _MOST_STALE * size + SLACK:
                passed = -((first + begin) << _BLOCK_BITS)
                heap[:] = [rank for rank in heap if rank <= passed]
                heapq.heapify(heap)
        self.size = size
        return found
