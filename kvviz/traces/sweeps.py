"""LRU caches of many sizes in one pass, and the reuse distances of blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvviz.traces.batches import Batch, Ints
from kvviz.traces.distances import NEVER, StackDistances
from kvviz.traces.results import Result, Tally

#: Reuse distances are counted in bins up to each power of two.
NUM_POWERS = 31


class LruSweep:
    """For every capacity, the same counts as a direct run of `kvviz.traces.caches.LruCache`.

    A cache of C blocks holds a block if its depth is at most C, so a prefix hits up to its first greater depth.
    `reuse` int64 [`NUM_POWERS` + 1]: references with a depth in (2^(i−1), 2^i]; the last bin: never used before.
    """

    def __init__(self, capacities: Sequence[int]) -> None:
        self.capacities = list(capacities)
        self.reuse: Ints = np.zeros(NUM_POWERS + 1, np.int64)
        self._limits = np.unique(np.minimum([capacity or NEVER - 1 for capacity in capacities], NEVER - 1))
        self._hit_blocks, self._hit_tokens, self._present = (
            np.zeros(len(self._limits) + 1, np.int64) for _ in range(3)
        )
        self._num_references = 0
        self._distances = StackDistances()
        self._tally = Tally()

    def replay(self, batch: Batch, block_size: int) -> None:
        self._tally.count(batch)
        depths = self._distances.depths(batch)
        counts = np.diff(batch.starts)
        request = np.repeat(np.arange(len(counts)), counts)
        needed = np.maximum.accumulate((request << 32) | depths) & 0xFFFFFFFF  # running maximum along the chain
        begins = batch.positions
        ends = np.empty(len(depths), np.int64)
        ends[:-1] = begins[1:]
        ends[(batch.starts[1:] - 1)[counts > 0]] = batch.chain_lengths[counts > 0]
        lengths = batch.input_lengths[request]
        tokens = np.minimum(ends * block_size, lengths) - np.minimum(begins.astype(np.int64) * block_size, lengths)
        level = np.searchsorted(self._limits, needed)
        np.add.at(self._hit_blocks, level, ends - begins)
        np.add.at(self._hit_tokens, level, tokens)
        self._present += np.bincount(np.searchsorted(self._limits, depths), minlength=len(self._present))
        self._num_references += len(depths)
        powers = np.searchsorted(2 ** np.arange(NUM_POWERS, dtype=np.int64), depths)
        self.reuse += np.bincount(np.where(depths == NEVER, NUM_POWERS, powers), minlength=NUM_POWERS + 1)

    def results(self, block_size: int, *, is_partial: bool = False) -> list[Result]:
        tally = self._tally
        blocks, tokens, present = (np.cumsum(each) for each in (self._hit_blocks, self._hit_tokens, self._present))
        results = []
        for capacity in self.capacities:
            limit = min(capacity or NEVER - 1, NEVER - 1)
            at = int(np.searchsorted(self._limits, limit))
            entered = self._num_references - int(present[at])
            results.append(
                Result(
                    policy="lru",
                    blocks=capacity,
                    block_size=block_size,
                    requests=tally.requests,
                    total_tokens=tally.total_tokens,
                    hit_tokens=int(tokens[at]),
                    references=tally.references,
                    hit_blocks=int(blocks[at]),
                    evictions=entered - min(limit, tally.num_blocks),
                    distinct_blocks=tally.num_blocks,
                    is_partial=is_partial,
                )
            )
        return results
