"""Block tables: the blocks that hold a request's tokens, found in the prefix cache or allocated from the pool.

`BlockTables.allocate` follows vLLM V1's `KVCacheManager.allocate_slots`: it succeeds as a whole or changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from kvviz.engine.blocks import BlockPool
from kvviz.engine.host import HostTier
from kvviz.engine.requests import Request
from kvviz.events import (
    AllocationReason,
    BlockFetched,
    BlockOffloaded,
    BlocksSwappedIn,
    BlocksSwappedOut,
    Event,
    LookupReason,
    PrefixLookedUp,
    ReleaseReason,
    RequestForked,
)


@dataclass(frozen=True, slots=True)
class Lookup:
    """The result of a prefix lookup, first block to last, and the reason why it stopped.

    Each item is a block id, a hash if the block is in the host tier, or None if no layer will read the block.
    """

    found: tuple[int | bytes | None, ...]
    reason: LookupReason

    @property
    def block_ids(self) -> tuple[int, ...]:
        return tuple(item for item in self.found if isinstance(item, int))


class Mover(Protocol):
    """Copies whole blocks within the pool and between pool and host. Methods return bytes and microseconds."""

    def copy_block(self, source: int, target: int) -> tuple[int, int]:
        """Copy a block within the pool."""

    def store_blocks(self, block_ids: Sequence[int], host_ids: Sequence[int]) -> tuple[int, int]:
        """Copy blocks from the pool to the host tier."""

    def load_blocks(self, host_ids: Sequence[int], block_ids: Sequence[int]) -> tuple[int, int]:
        """Copy blocks from the host tier to the pool."""


class BlockTables:
    """Allocates and releases the blocks of requests.

    `window` is how far back the farthest-reading layer sees, in tokens, if every layer has a window; else None. `mover`
    copies entries. `host` is the second tier; with `offload`, evicted blocks move there. With `reserve`, a request
    holds blocks for its maximum length from the start.
    """

    def __init__(
        self,
        pool: BlockPool,
        block_size: int,
        emit: Callable[[Event], object],
        *,
        window: int | None = None,
        mover: Mover | None = None,
        host: HostTier | None = None,
        offload: bool = False,
        reserve: bool = False,
    ) -> None:
        self.pool = pool
        self.block_size = block_size
        self.window = window
        self.mover = mover
        self.host = host or HostTier(0, emit)
        self.offload = offload
        self.reserve = reserve
        self._emit = emit
        if offload:
            pool.before_eviction = self._offload

    def blocks_for(self, num_tokens: int) -> int:
        """Number of blocks for `num_tokens` tokens, the last possibly partial."""
        return -(-num_tokens // self.block_size)

    def peak_blocks(self, num_tokens: int, max_chunk: int) -> int:
        """Peak number of blocks of a request of `num_tokens` tokens, computed `max_chunk` tokens at a time."""
        num_blocks = self.blocks_for(num_tokens)
        if self.window is None:
            return num_blocks
        return min(num_blocks, self.blocks_for(self.window - 1 + max_chunk) + 1)

    def num_reserved(self, request: Request, num_tokens: int) -> int:
        """Number of tokens a request reserves space for when it needs `num_tokens`."""
        return max(num_tokens, request.num_prompt_tokens + request.max_new_tokens - 1) if self.reserve else num_tokens

    def lookup(self, request: Request) -> Lookup:
        """Find cached blocks for the start of a request.

        The last token is always computed, since its logits are needed: at most ⌊(n − 1) / block size⌋ blocks hit.
        """
        limit = (request.num_tokens - 1) // self.block_size
        found = [self._where(block_hash) for block_hash in request.hashes[:limit]]
        hits = self._first_run(found) if self.window is None else self._last_run(found)
        return Lookup(tuple(hits), self._explain(request, len(hits), limit))

    @staticmethod
    def _first_run(found: list[int | bytes | None]) -> list[int | bytes | None]:
        """Blocks up to the first miss: every layer reads everything."""
        return found[: found.index(None)] if None in found else found

    def _last_run(self, found: list[int | bytes | None]) -> list[int | bytes | None]:
        """Blocks up to the last run that fills the window, or else the run at the start; earlier ones aren't read.

        Searches from the right, as vLLM does for sliding windows.
        """
        assert self.window is not None
        num_read = max(1, self.blocks_for(self.window - 1))
        length = 0
        for index in reversed(range(len(found))):
            length = length + 1 if found[index] is not None else 0
            if length == num_read:
                return [None] * index + found[index : index + length]
        return found[:length]

    def _where(self, block_hash: bytes) -> int | bytes | None:
        """The pool block of a prefix, the hash itself if it is in the host tier, or None."""
        block_ids = self.pool.find((block_hash,), 1)
        return block_ids[0] if block_ids else block_hash if self.offload and block_hash in self.host else None

    def announce(self, request: Request, lookup: Lookup) -> None:
        self._emit(
            PrefixLookedUp(
                request_id=request.request_id,
                num_tokens=request.num_tokens,
                num_hit_tokens=len(lookup.found) * self.block_size,
                hit_block_ids=lookup.block_ids,
                reason=lookup.reason,
                num_host_tokens=sum(isinstance(item, bytes) for item in lookup.found) * self.block_size,
            )
        )

    def fits(self, request: Request, num_tokens: int, lookup: Lookup | None = None) -> bool:
        """Whether the pool has enough blocks for the first `num_tokens` tokens of a request.

        Free blocks that hit count too: using them shortens the free queue.
        """
        return self.shortage(request, self.blocks_for(self.num_reserved(request, num_tokens)), lookup) <= 0

    def shortage(self, request: Request, num_blocks: int, lookup: Lookup | None = None) -> int:
        """Free blocks missing for a request to hold `num_blocks`; a negative number is the surplus."""
        found = lookup.found if lookup else ()
        hits = [item for item in found if isinstance(item, int)]
        num_fetched = sum(isinstance(item, bytes) for item in found)
        num_new = max(0, num_blocks - len(request.block_table) - len(found)) + num_fetched
        num_copied = self._shared_index(request) is not None
        num_free_hits = sum(self.pool.ref_counts[block_id] == 0 for block_id in hits)
        return num_new + num_copied + num_free_hits - self.pool.num_free

    def allocate(
        self, request: Request, num_tokens: int, *, code: Literal["prompt", "decode"], lookup: Lookup | None = None
    ) -> bool:
        """Allocate for the first `num_tokens` tokens: window release, hits, copy-on-write, new blocks, registration.

        Returns False if the pool has too few free blocks; then only blocks outside the window have been released.
        """
        self.leave_window(request)
        if not self.fits(request, num_tokens, lookup):
            return False
        self._copy_on_write(request)
        if lookup and lookup.found:
            self._take(request, lookup.found)
        self._grow(request, self.num_reserved(request, num_tokens), code)
        self._register(request, min(num_tokens, request.num_tokens) // self.block_size)
        return True

    def fork(self, parent: Request, child: Request) -> bool:
        """Share the parent's blocks for the common tokens with a fork. False if blocks that it reads are gone."""
        num_computed = min(parent.num_computed, child.num_tokens - 1)
        num_blocks = self.blocks_for(num_computed)
        table = parent.block_table[:num_blocks]
        read = table[self._window_start(num_computed) // self.block_size :]
        if not read or read[-1] is None or (None in read and self.window is not None):
            return False  # nothing is computed, or the parent released blocks the fork reads
        self.pool.fork([block_id for block_id in table if block_id is not None])
        child.block_table = table
        child.num_computed = num_computed
        child.window_start = parent.window_start
        child.num_cached_blocks = min(parent.num_cached_blocks, num_computed // self.block_size)
        self._emit(
            RequestForked(
                request_id=child.request_id,
                parent_id=parent.request_id,
                block_ids=tuple(table),
                num_computed=num_computed,
                window_start=child.window_start,
            )
        )
        return True

    def swap_out(self, request: Request) -> None:
        """Copy the written part of a request's blocks to the host tier, and release all of its blocks.

        Check `HostTier.has_capacity` first.
        """
        written = request.block_table[: self.blocks_for(request.num_computed)]
        held = [(index, block_id) for index, block_id in enumerate(written) if block_id is not None]
        block_ids = [block_id for _, block_id in held]
        host_ids = self.host.swap_out(request.request_id, len(held))
        num_bytes, copy_us = self._moves.store_blocks(block_ids, host_ids)
        self._emit(
            BlocksSwappedOut(
                request_id=request.request_id,
                logical_indices=tuple(index for index, _ in held),
                block_ids=tuple(block_ids),
                host_ids=host_ids,
                num_bytes=num_bytes,
                copy_us=copy_us,
            )
        )
        request.swapped_indices = [index for index, _ in held]
        self.release(request, "swapped")

    def swap_in(self, request: Request) -> None:
        """Copy the blocks of a swapped request back to the pool. Check `num_needed_again` first."""
        reason = AllocationReason(code="swap_in", num_tokens=request.num_computed, num_blocks_held=0)
        request.block_table = [None] * request.swapped_indices[0]
        for index in request.swapped_indices:
            request.block_table.append(self.pool.allocate(request.request_id, index, reason))
        block_ids = [block_id for block_id in request.block_table if block_id is not None]
        host_ids = self.host.swap_in(request.request_id)
        num_bytes, copy_us = self._moves.load_blocks(host_ids, block_ids)
        self._emit(
            BlocksSwappedIn(
                request_id=request.request_id,
                logical_indices=tuple(request.swapped_indices),
                block_ids=tuple(block_ids),
                host_ids=host_ids,
                num_bytes=num_bytes,
                copy_us=copy_us,
            )
        )
        request.num_cached_blocks = request.swapped_indices[0]
        request.swapped_indices = []
        self._register(request, request.num_computed // self.block_size)

    def num_needed_again(self, request: Request, num_tokens: int) -> int:
        """Number of blocks a swapped request needs to continue to `num_tokens` tokens."""
        gone = request.swapped_indices[0]
        return self.blocks_for(num_tokens) - gone

    def release(
        self, request: Request, code: Literal["finished", "cancelled", "failed", "preempted", "swapped", "no_cache"]
    ) -> None:
        """Release all blocks of a request, the tail of its table first."""
        self._release(request, range(len(request.block_table)), ReleaseReason(code=code))
        request.block_table = []
        request.num_cached_blocks = 0

    def release_emptied(self, request: Request, indices: Sequence[int]) -> None:
        """Release blocks in which no layer or head keeps an entry, the tail of the table first."""
        held = [index for index in indices if request.block_table[index] is not None]
        if held:
            self._release(request, held, ReleaseReason(code="forgotten"))

    def forget_unwritten(self, request: Request, num_written: int) -> None:
        """Discard the prefixes of blocks registered for tokens from `num_written` on."""
        first = num_written // self.block_size
        block_ids = [
            block_id for block_id in request.block_table[first : request.num_cached_blocks] if block_id is not None
        ]
        if block_ids:
            self.pool.forget(block_ids, "unwritten")

    def _register(self, request: Request, num_full_blocks: int) -> None:
        if not self.pool.prefix_cache:
            return
        for index in range(request.num_cached_blocks, num_full_blocks):
            self._register_block(request, index)
        request.num_cached_blocks = max(request.num_cached_blocks, num_full_blocks)

    def _register_block(self, request: Request, index: int) -> None:
        block_id = request.block_table[index]
        if block_id is None:
            return
        first = index * self.block_size
        self.pool.register(
            request.request_id,
            index,
            block_id,
            request.hashes[index],
            request.hashes[index - 1] if index else None,
            request.token_ids[first : first + self.block_size],
            request.extra_keys,
        )

    @property
    def _moves(self) -> Mover:
        assert self.mover is not None, "copies need a mover"
        return self.mover

    def _grow(self, request: Request, num_tokens: int, code: Literal["prompt", "decode"]) -> None:
        reason = AllocationReason(code=code, num_tokens=num_tokens, num_blocks_held=len(request.block_table))
        for logical_index in range(len(request.block_table), self.blocks_for(num_tokens)):
            request.block_table.append(self.pool.allocate(request.request_id, logical_index, reason))

    def _shared_index(self, request: Request) -> int | None:
        """The logical block that the request writes to next, if it is held and shared."""
        index = request.num_computed // self.block_size
        if index >= len(request.block_table):
            return None
        block_id = request.block_table[index]
        return index if block_id is not None and self.pool.ref_counts[block_id] > 1 else None

    def _copy_on_write(self, request: Request) -> None:
        """Copy the block that is written to next if others use it too.

        A fork holds a full block of its parent in part. If the fork is the only user left, the block isn't copied, but
        its prefix is discarded, since it is overwritten.
        """
        index = self._shared_index(request)
        if index is None:
            self._take_over(request)
            return
        source = request.block_table[index]
        assert source is not None
        num_tokens = request.num_computed - index * self.block_size
        request.block_table[index] = self.pool.copy(
            request.request_id, index, source, num_tokens, self._moves.copy_block
        )

    def _take_over(self, request: Request) -> None:
        index = request.num_computed // self.block_size
        block_id = request.block_table[index] if index < len(request.block_table) else None
        if block_id is not None and self.pool.hashes[block_id] is not None:
            self.pool.forget([block_id], "overwritten")

    def _take(self, request: Request, found: Sequence[int | bytes | None]) -> None:
        """Take the hits: first those in the pool, so that they can't be reused, then fetch those in the host tier."""
        host_ids = {item: self.host.take_out(item) for item in found if isinstance(item, bytes)}
        request.block_table = [item if isinstance(item, int) else None for item in found]
        for index, item in enumerate(found):
            if isinstance(item, int):
                self.pool.share(request.request_id, index, item)
        for index, item in enumerate(found):
            if isinstance(item, bytes):
                request.block_table[index] = self._fetch(request, index, item, host_ids[item])
                self._register_block(request, index)
        request.num_cached_blocks = len(found)

    def _fetch(self, request: Request, index: int, block_hash: bytes, host_id: int) -> int:
        num_tokens = (index + 1) * self.block_size
        reason = AllocationReason(code="fetch", num_tokens=num_tokens, num_blocks_held=index)
        block_id = self.pool.allocate(request.request_id, index, reason)
        num_bytes, copy_us = self._moves.load_blocks([host_id], [block_id])
        self.host.give_back(host_id)
        self._emit(
            BlockFetched(
                request_id=request.request_id,
                logical_index=index,
                block_id=block_id,
                host_id=host_id,
                hash=block_hash.hex(),
                num_bytes=num_bytes,
                copy_us=copy_us,
            )
        )
        return block_id

    def _offload(self, block_id: int, block_hash: bytes) -> None:
        """Copy a prefix whose last copy in the pool is about to be evicted to the host tier."""
        if len(self.pool.cached[block_hash]) > 1:
            return
        host_id = self.host.keep(block_hash, self.pool.step)
        if host_id is None:
            return
        num_bytes, copy_us = self._moves.store_blocks([block_id], [host_id])
        self._emit(
            BlockOffloaded(
                block_id=block_id, host_id=host_id, hash=block_hash.hex(), num_bytes=num_bytes, copy_us=copy_us
            )
        )

    def _window_start(self, num_computed: int) -> int:
        """First position that the next token, or a later one, reads."""
        return 0 if self.window is None else max(0, num_computed - self.window + 1)

    def leave_window(self, request: Request) -> None:
        """Release the blocks of a request that no layer reads any more."""
        start = self._window_start(request.num_computed)
        num_gone = start // self.block_size
        gone = [
            index for index in range(min(num_gone, len(request.block_table))) if request.block_table[index] is not None
        ]
        if gone:
            request.window_start = start
            self._release(request, gone, ReleaseReason(code="window", window_start=start))

    def _release(self, request: Request, indices: range | list[int], reason: ReleaseReason) -> None:
        held = [
            (index, block_id) for index in reversed(indices) if (block_id := request.block_table[index]) is not None
        ]
        for index, _ in held:
            request.block_table[index] = None
        self.pool.release(request.request_id, [block_id for _, block_id in held], [index for index, _ in held], reason)

    def _explain(self, request: Request, num_hits: int, limit: int) -> LookupReason:
        if not self.pool.prefix_cache:
            return LookupReason(code="disabled")
        if limit == 0:
            return LookupReason(code="shorter_than_block")
        return self.pool.memory.explain(
            request.token_ids, request.hashes, num_hits, limit, self.block_size, request.extra_keys
        )
