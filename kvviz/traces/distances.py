"""Stack distances: the LRU cache size at which each reference hits, for all sizes in one pass.

See R. L. Mattson et al., "Evaluation techniques for storage hierarchies" (1970). LRU caches of all sizes hold the heads
of one list of blocks, most recent first: a cache of C blocks holds a block exactly if its depth is at most C.
"""

from __future__ import annotations

import numpy as np

from kvviz.traces.batches import Batch, Ints, Numbers, order_of
from kvviz.traces.caches import last_places

#: Depth of a block that was never cached.
NEVER = 2**31 - 1


class StackDistances:
    """The list of all blocks seen, most recent last."""

    def __init__(self) -> None:
        self._order: Numbers = np.empty(0, np.int32)

    def depths(self, batch: Batch) -> Ints:
        """Depth of each reference of the next batch when its request arrives, from 1, or `NEVER`. int64 [R].

        References are ordered by time, the tail of a chain first, after the D blocks known before. Let p be the time of
        a block's previous use and S the time its request starts. Then S − p times are at or after p. To find the
        depth, subtract those that are no longer a block's last use: one for each later use, before S, of a block
        previously used at or after p.
        """
        num_known, counts = len(self._order), np.diff(batch.starts)
        recent = batch.tail_first()
        num_blocks = max(int(self._order.max(initial=-1)), int(recent.max(initial=-1))) + 1
        places = np.full(num_blocks, -1, np.int64)
        places[self._order] = np.arange(num_known)
        before = _previous(recent, num_known, places)
        arrival = np.repeat(batch.starts[:-1], counts)  # where the request of each reference starts
        is_old = before >= 0
        old = np.flatnonzero(is_old)
        ranks = np.empty(len(old), np.int64)
        ranks[np.argsort(before[old])] = np.arange(len(old))
        num_old = np.concatenate([[0], np.cumsum(is_old)])
        depths = np.full(len(recent), NEVER, np.int64)
        depths[old] = num_known + arrival[old] - before[old] - _num_greater(ranks, num_old[arrival[old]])
        self._order = last_places(np.concatenate([self._order, recent]), num_blocks)
        return depths[batch.mirror()]


def _previous(blocks: Numbers, first: int, places: Ints) -> Ints:
    """Time of the previous use of each reference; their own times start at `first`. `places`: last time by block."""
    order = order_of(blocks)
    ordered = blocks[order]
    before = places[blocks]
    is_same = ordered[1:] == ordered[:-1]
    before[order[1:][is_same]] = order[:-1][is_same] + first
    return before


def _num_greater(ranks: Ints, ends: Ints) -> Ints:
    """For each i, count the values of ranks[: ends[i]] greater than ranks[i]. `ranks` is a permutation of 0 … m − 1.

    This is a wavelet matrix, processed bit by bit from the highest. If the bit of the rank is 0, all values in the same
    group with a 1 are greater. Then zeros and ones are partitioned in order, and the search continues in the part with
    the same bit.
    """
    num_greater, low, high, level = np.zeros_like(ranks), np.zeros_like(ranks), ends, ranks
    for bit in range(len(ranks).bit_length() - 1, -1, -1):
        is_one = (level >> bit & 1).astype(bool)
        ones = np.concatenate([[0], np.cumsum(is_one)])
        num_zeros = len(level) - ones[-1]
        ones_low, ones_high = ones[low], ones[high]
        goes_up = (ranks >> bit & 1).astype(bool)
        num_greater += np.where(goes_up, 0, ones_high - ones_low)
        low = np.where(goes_up, num_zeros + ones_low, low - ones_low)
        high = np.where(goes_up, num_zeros + ones_high, high - ones_high)
        level = np.concatenate([level[~is_one], level[is_one]])
    return num_greater
