"""The block pool: who uses which block, what the prefix cache holds, and in which order blocks are reused.

Semantics are those of vLLM V1 from version 0.23 on (`BlockPool`), without its null block: usable blocks count from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvviz.digest import short_hash
from kvviz.engine.free_queue import FreeQueue
from kvviz.events import (
    AllocationReason,
    BlockAllocated,
    BlockCached,
    BlockEvicted,
    BlockShared,
    BlocksReleased,
    Event,
    EvictionReason,
    PrefixCacheReset,
    ReleaseReason,
)

#: How many runners-up an eviction names.
NUM_ALTERNATIVES = 4


class BlockPool:
    """Fixed array of blocks with reference counts, prefix hashes and one free queue.

    A block is in the free queue exactly when its count is 0. A free block that keeps its hash is *cached*: it can be
    hit, or be evicted when it reaches the head of the queue. Every change is emitted as an event.
    """

    def __init__(self, num_blocks: int, emit: Callable[[Event], object], *, prefix_cache: bool = True) -> None:
        self.num_blocks = num_blocks
        self.prefix_cache = prefix_cache
        self.ref_counts = [0] * num_blocks
        self.hashes: list[bytes | None] = [None] * num_blocks
        self.short_hashes = [0] * num_blocks
        self.free = FreeQueue(range(num_blocks), num_blocks)
        self.cached: dict[bytes, dict[int, None]] = {}  # hash -> block ids, first registered first
        self.step = 0
        self._free_since = [0] * num_blocks
        self._emit = emit

    @property
    def num_free(self) -> int:
        """Blocks with count 0, cached ones included."""
        return len(self.free)

    @property
    def usage(self) -> float:
        """Share of the blocks that somebody uses."""
        return 1 - self.num_free / self.num_blocks

    def find(self, hashes: Sequence[bytes], limit: int) -> list[int]:
        """Cached blocks of a chain of hashes, first to last, up to the first miss and at most `limit`."""
        block_ids: list[int] = []
        if self.prefix_cache:
            for block_hash in hashes[:limit]:
                holders = self.cached.get(block_hash)
                if not holders:
                    break
                block_ids.append(next(iter(holders)))
        return block_ids

    def share(self, request_id: int, logical_index: int, block_id: int) -> None:
        """One more user for a cached block; it leaves the free queue if it was in it."""
        if self.ref_counts[block_id] == 0:
            self.free.remove(block_id)
        self.ref_counts[block_id] += 1
        self._emit(BlockShared(request_id=request_id, logical_index=logical_index, block_id=block_id))

    def allocate(self, request_id: int, logical_index: int, reason: AllocationReason) -> int:
        """Pop the head of the free queue for a request. Raises `ValueError` when no block is free."""
        num_free = self.num_free
        block_id = self.free.popleft()
        if self.hashes[block_id] is not None:
            self._evict(block_id, num_free)
        self.ref_counts[block_id] = 1
        self._emit(BlockAllocated(request_id=request_id, logical_index=logical_index, block_id=block_id, reason=reason))
        return block_id

    def register(
        self, request_id: int, logical_index: int, block_id: int, block_hash: bytes, parent_hash: bytes | None
    ) -> None:
        """Enter a full block in the prefix cache. The first holder of a hash goes on serving lookups."""
        holders = self.cached.setdefault(block_hash, {})
        duplicate_of = next(iter(holders), None)
        holders[block_id] = None
        self.hashes[block_id] = block_hash
        self.short_hashes[block_id] = short_hash(block_hash)
        self._emit(
            BlockCached(
                request_id=request_id,
                logical_index=logical_index,
                block_id=block_id,
                hash=block_hash.hex(),
                parent_hash=parent_hash.hex() if parent_hash else None,
                duplicate_of=duplicate_of,
            )
        )

    def release(
        self, request_id: int, block_ids: Sequence[int], logical_indices: Sequence[int], reason: ReleaseReason
    ) -> None:
        """One user less for each block, in the given order (a table's tail first).

        Blocks at count 0 enter the free queue: those without a hash as one batch at the head, the others at the tail.
        """
        prepended: list[int] = []
        appended: list[int] = []
        for block_id in block_ids:
            assert self.ref_counts[block_id] > 0, f"block {block_id} is released but nobody uses it"
            self.ref_counts[block_id] -= 1
            if self.ref_counts[block_id] == 0:
                self._free_since[block_id] = self.step
                (prepended if self.hashes[block_id] is None else appended).append(block_id)
        self.free.prepend_n(prepended)
        self.free.append_n(appended)
        self._emit(
            BlocksReleased(
                request_id=request_id,
                block_ids=tuple(block_ids),
                logical_indices=tuple(logical_indices),
                prepended=tuple(prepended),
                appended=tuple(appended),
                reason=reason,
            )
        )

    def reset(self) -> bool:
        """Forget every cached prefix. False, and nothing happens, while any block is in use."""
        if self.num_free < self.num_blocks:
            return False
        self.forget([block_id for block_id, block_hash in enumerate(self.hashes) if block_hash is not None])
        return True

    def forget(self, block_ids: Sequence[int]) -> None:
        """Drop the cached prefixes of these blocks, wherever the blocks are."""
        for block_id in block_ids:
            self._forget(block_id)
        self._emit(PrefixCacheReset(block_ids=tuple(block_ids)))

    def _evict(self, block_id: int, num_free: int) -> None:
        block_hash = self._forget(block_id)
        self._emit(
            BlockEvicted(
                block_id=block_id,
                hash=block_hash.hex(),
                reason=EvictionReason(
                    policy="lru",
                    queue_position=0,
                    free_since_step=self._free_since[block_id],
                    num_free=num_free,
                    alternatives=tuple(self.free.head(NUM_ALTERNATIVES)),
                ),
            )
        )

    def _forget(self, block_id: int) -> bytes:
        block_hash = self.hashes[block_id]
        assert block_hash is not None
        holders = self.cached[block_hash]
        del holders[block_id]
        if not holders:
            del self.cached[block_hash]
        self.hashes[block_id] = None
        self.short_hashes[block_id] = 0
        return block_hash
