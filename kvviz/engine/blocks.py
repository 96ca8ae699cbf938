"""The block pool: reference counts, the prefix cache and the order in which blocks are reused.

Semantics follow `BlockPool` of vLLM V1 from version 0.23 on, without its null block: usable blocks start at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from kvviz.engine.free_queue import FreeQueue
from kvviz.engine.memory import PrefixMemory
from kvviz.engine.policies import BlockUse, Lru, Policy
from kvviz.events import (
    AllocationReason,
    BlockAllocated,
    BlockCached,
    BlockCopied,
    BlockEvicted,
    BlockShared,
    BlocksReleased,
    Event,
    EvictionReason,
    PrefixCacheReset,
    ReleaseReason,
)
from kvviz.log.digest import short_hash

#: Number of runner-up blocks that an eviction lists.
NUM_ALTERNATIVES = 4


class BlockPool:
    """Fixed array of blocks with reference counts, prefix hashes and one free queue.

    A block is in the free queue exactly when its count is 0. A free block that keeps its hash is *cached*: a prefix can
    hit it, and it is evicted when it reaches the head of the queue. Every change is emitted as an event.
    `before_eviction` is called with the block and its prefix hash while the entries still exist.
    """

    def __init__(
        self,
        num_blocks: int,
        emit: Callable[[Event], object],
        *,
        prefix_cache: bool = True,
        policy: Policy | None = None,
        memory: PrefixMemory | None = None,
    ) -> None:
        self.num_blocks = num_blocks
        self.prefix_cache = prefix_cache
        self.ref_counts = [0] * num_blocks
        self.hashes: list[bytes | None] = [None] * num_blocks
        self.short_hashes = [0] * num_blocks
        self.free = FreeQueue(range(num_blocks), num_blocks)
        self.cached: dict[bytes, dict[int, None]] = {}  # hash -> block ids, first registered first
        self.step = 0
        self.memory = memory or PrefixMemory()
        self.before_eviction: Callable[[int, bytes], object] = lambda block_id, block_hash: None
        self._policy = policy or Lru()
        self._uses = [BlockUse() for _ in range(num_blocks)]
        self._ranks: list[float] = [0.0] * num_blocks
        self._emit = emit

    @property
    def num_free(self) -> int:
        return len(self.free)

    @property
    def usage(self) -> float:
        return 1 - self.num_free / self.num_blocks

    def find(self, hashes: Sequence[bytes], limit: int) -> list[int]:
        """Cached blocks of a chain of hashes, in order, up to the first miss and at most `limit`."""
        block_ids: list[int] = []
        if self.prefix_cache:
            for block_hash in hashes[:limit]:
                holders = self.cached.get(block_hash)
                if not holders:
                    break
                block_ids.append(next(iter(holders)))
        return block_ids

    def share(self, request_id: int, logical_index: int, block_id: int) -> None:
        """Add a user to a cached block. If it was free, it leaves the free queue."""
        if self.ref_counts[block_id] == 0:
            self.free.remove(block_id)
        self.ref_counts[block_id] += 1
        self._uses[block_id].num_hits += 1
        self._emit(BlockShared(request_id=request_id, logical_index=logical_index, block_id=block_id))

    def fork(self, block_ids: Sequence[int]) -> None:
        """Add a user to each of these blocks, which are in use."""
        for block_id in block_ids:
            assert self.ref_counts[block_id] > 0, f"block {block_id} is forked but not in use"
            self.ref_counts[block_id] += 1

    def allocate(self, request_id: int, logical_index: int, reason: AllocationReason) -> int:
        """Pop the head of the free queue for a request. Raises `ValueError` if no block is free."""
        block_id = self._pop()
        self._emit(BlockAllocated(request_id=request_id, logical_index=logical_index, block_id=block_id, reason=reason))
        return block_id

    def copy(
        self,
        request_id: int,
        logical_index: int,
        source: int,
        num_tokens: int,
        move: Callable[[int, int], tuple[int, int]],
    ) -> int:
        """Pop the head of the free queue as a copy of `source`, which loses one user.

        `move(source, target)` copies the entries and returns bytes and microseconds.
        """
        block_id = self._pop()
        num_bytes, copy_us = move(source, block_id)
        self.ref_counts[source] -= 1
        assert self.ref_counts[source] > 0, "a block that is not shared is not copied"
        self._emit(
            BlockCopied(
                request_id=request_id,
                logical_index=logical_index,
                from_block_id=source,
                block_id=block_id,
                num_tokens=num_tokens,
                num_bytes=num_bytes,
                copy_us=copy_us,
            )
        )
        return block_id

    def _pop(self) -> int:
        block_id = self.free.first
        block_hash = self.hashes[block_id]
        if block_hash is None:
            self.free.remove(block_id)
        else:
            num_free = self.num_free
            self.before_eviction(block_id, block_hash)
            self.free.remove(block_id)
            self._evict(block_id, num_free)
        self.ref_counts[block_id] = 1
        return block_id

    def register(
        self,
        request_id: int,
        logical_index: int,
        block_id: int,
        block_hash: bytes,
        parent_hash: bytes | None,
        token_ids: Sequence[int] = (),
        keys: tuple[str, ...] = (),
    ) -> None:
        """Register a full block in the prefix cache. Lookups return the first block registered under a hash.

        `token_ids` are the tokens of the block, `keys` the extra keys of its chain.
        """
        assert self.hashes[block_id] is None, f"block {block_id} already holds a prefix"
        holders = self.cached.setdefault(block_hash, {})
        duplicate_of = next(iter(holders), None)
        holders[block_id] = None
        self.hashes[block_id] = block_hash
        self.short_hashes[block_id] = short_hash(block_hash)
        self._uses[block_id] = BlockUse(cached_since=self.step)
        self.memory.add(block_hash, parent_hash, token_ids, keys)
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
        """Remove a user from each block, in the given order (the tail of a table first).

        Blocks that reach count 0 enter the free queue: those without a hash as one batch at the head, the others at the
        tail or at the place that the policy assigns.
        """
        prepended: list[int] = []
        appended: list[int] = []
        for block_id in block_ids:
            assert self.ref_counts[block_id] > 0, f"block {block_id} is released but not in use"
            self.ref_counts[block_id] -= 1
            if self.ref_counts[block_id] == 0:
                self._uses[block_id].free_since = self.step
                (prepended if self.hashes[block_id] is None else appended).append(block_id)
        if prepended:
            self.free.prepend_n(prepended)
        places = self._put(appended) if appended else None
        self._emit(
            BlocksReleased(
                request_id=request_id,
                block_ids=tuple(block_ids),
                logical_indices=tuple(logical_indices),
                prepended=tuple(prepended),
                appended=tuple(appended),
                reason=reason,
                places=places,
            )
        )

    def _put(self, block_ids: Sequence[int]) -> tuple[int, ...] | None:
        """Insert cached blocks in policy order and return their places, or None if all go to the tail."""
        places: list[int] = []
        for block_id in block_ids:
            rank = self._policy.rank(self._uses[block_id])
            if rank is None:
                self.free.append_n((block_id,))
                continue
            self._ranks[block_id] = rank
            behind = next(
                (index for index, other in enumerate(self.free) if self.hashes[other] and self._ranks[other] > rank),
                len(self.free),
            )
            self.free.insert(behind, block_id)
            places.append(behind)
        return tuple(places) if places else None

    def reset(self) -> bool:
        """Discard all cached prefixes. Returns False and changes nothing while any block is in use."""
        if self.num_free < self.num_blocks:
            return False
        self.forget([block_id for block_id, block_hash in enumerate(self.hashes) if block_hash is not None])
        self.memory.clear()
        return True

    def forget(self, block_ids: Sequence[int], reason: Literal["reset", "unwritten", "overwritten"] = "reset") -> None:
        """Discard the cached prefixes of these blocks, in use or free."""
        for block_id in block_ids:
            block_hash = self._forget(block_id)
            if block_hash not in self.cached:
                self.memory.drop(block_hash)
        self._emit(PrefixCacheReset(block_ids=tuple(block_ids), reason=reason))

    def _evict(self, block_id: int, num_free: int) -> None:
        block_hash = self._forget(block_id)
        self._emit(
            BlockEvicted(
                block_id=block_id,
                hash=block_hash.hex(),
                reason=EvictionReason(
                    policy=self._policy.name,
                    queue_position=0,
                    free_since_step=self._uses[block_id].free_since,
                    cached_since_step=self._uses[block_id].cached_since,
                    num_hits=self._uses[block_id].num_hits,
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
            self.memory.remove(block_hash, self.step)
        self.hashes[block_id] = None
        self.short_hashes[block_id] = 0
        return block_hash
