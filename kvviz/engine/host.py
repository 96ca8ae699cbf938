"""The host tier: a larger, slower store of blocks for swapped requests and for evicted prefixes.

It tracks the contents of its blocks; a runner copies the tensors. Blocks of swapped requests stay until the request
returns. Prefixes are evicted to make space, least recently used first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from kvviz.events import Event, HostEvicted
from kvviz.log.digest import short_hash


class HostTier:
    """`num_blocks` host blocks. `cached` maps prefix hashes to host blocks, least recently used first."""

    def __init__(self, num_blocks: int, emit: Callable[[Event], object]) -> None:
        self.num_blocks = num_blocks
        self.cached: OrderedDict[bytes, int] = OrderedDict()
        self.swapped: dict[int, tuple[int, ...]] = {}
        self._free = list(range(num_blocks))
        self._since: dict[int, int] = {}
        self._emit = emit
        heapify(self._free)

    @property
    def num_swapped(self) -> int:
        return sum(map(len, self.swapped.values()))

    def has_capacity(self, count: int) -> bool:
        """Whether `count` more blocks of a swapped request fit, if prefixes are evicted."""
        return self.num_swapped + count <= self.num_blocks

    def swap_out(self, request_id: int, count: int) -> tuple[int, ...]:
        host_ids = tuple(self._take() for _ in range(count))
        self.swapped[request_id] = host_ids
        return host_ids

    def swap_in(self, request_id: int) -> tuple[int, ...]:
        """Free the host blocks of a request and return them."""
        host_ids = self.swapped.pop(request_id)
        for host_id in host_ids:
            heappush(self._free, host_id)
        return host_ids

    def keep(self, block_hash: bytes, step: int) -> int | None:
        """Return a host block for an evicted prefix; None if it is already stored or nothing can be evicted."""
        if block_hash in self.cached:
            self.cached.move_to_end(block_hash)
            return None
        if not self._free and not self.cached:
            return None
        host_id = self._take()
        self.cached[block_hash] = host_id
        self._since[host_id] = step
        return host_id

    def __contains__(self, block_hash: bytes) -> bool:
        return block_hash in self.cached

    def take_out(self, block_hash: bytes) -> int:
        """Return the host block of a prefix that goes back to the pool. It stays reserved until `give_back`."""
        return self.cached.pop(block_hash)

    def forget(self) -> None:
        while self.cached:
            heappush(self._free, self._evict())

    def give_back(self, host_id: int) -> None:
        """Free a host block that was taken out."""
        heappush(self._free, host_id)

    def state(self) -> list[tuple[int, int]]:
        """Pairs of host block and short hash (0 for swapped requests), ascending, for the digest."""
        held = [(host_id, short_hash(block_hash)) for block_hash, host_id in self.cached.items()]
        held += [(host_id, 0) for host_ids in self.swapped.values() for host_id in host_ids]
        return sorted(held)

    def _take(self) -> int:
        return heappop(self._free) if self._free else self._evict()

    def _evict(self) -> int:
        block_hash, host_id = self.cached.popitem(last=False)
        self._emit(HostEvicted(host_id=host_id, hash=block_hash.hex(), since_step=self._since[host_id]))
        return host_id
