"""Block tables: which blocks hold a request's tokens, found in the prefix cache or taken from the pool.

`BlockTables.allocate` follows vLLM V1's `KVCacheManager.allocate_slots`: it succeeds as a whole or changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kvviz.engine.blocks import BlockPool
from kvviz.engine.requests import Request
from kvviz.events import AllocationReason, Event, LookupReason, PrefixLookedUp, ReleaseReason


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a prefix lookup found: blocks, first to last, and why not more."""

    block_ids: tuple[int, ...]
    reason: LookupReason


class BlockTables:
    """Gives blocks to requests and takes them back.

    `window`: how many tokens back the farthest-reading layer sees when every layer has a window, else None.
    """

    def __init__(
        self, pool: BlockPool, block_size: int, emit: Callable[[Event], object], *, window: int | None = None
    ) -> None:
        self.pool = pool
        self.block_size = block_size
        self.window = window
        self._emit = emit

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` tokens fill, the last one perhaps in part."""
        return -(-num_tokens // self.block_size)

    def peak_blocks(self, num_tokens: int, max_chunk: int) -> int:
        """Most blocks that a request of `num_tokens` tokens holds at once when it is computed `max_chunk` at a time."""
        num_blocks = self.blocks_for(num_tokens)
        if self.window is None:
            return num_blocks
        return min(num_blocks, self.blocks_for(self.window - 1 + max_chunk) + 1)

    def lookup(self, request: Request) -> Lookup:
        """Cached blocks that hold the beginning of a request's tokens.

        The last token is always computed, since its logits are needed: at most ⌊(n − 1) / block size⌋ blocks hit.
        """
        limit = (request.num_tokens - 1) // self.block_size
        block_ids = self.pool.find(request.hashes, limit)
        return Lookup(tuple(block_ids), self._explain(request, len(block_ids), limit))

    def announce(self, request: Request, lookup: Lookup) -> None:
        """Emit what a lookup found."""
        self._emit(
            PrefixLookedUp(
                request_id=request.request_id,
                num_tokens=request.num_tokens,
                num_hit_tokens=len(lookup.block_ids) * self.block_size,
                hit_block_ids=lookup.block_ids,
                reason=lookup.reason,
            )
        )

    def fits(self, request: Request, num_tokens: int, hits: tuple[int, ...] = ()) -> bool:
        """Whether the pool can give a request the blocks for its first `num_tokens` tokens.

        Hits that are free count too: taking them shortens the free queue. Those out of the window go back at once.
        """
        num_held = len(request.block_table) + len(hits)
        return self._have_room(self.blocks_for(num_tokens) - num_held, self._readable(hits))

    def admits(self, request: Request, max_chunk: int, hits: tuple[int, ...]) -> bool:
        """Whether the pool has the most blocks that a waiting request's known tokens will take at once."""
        readable = self._readable(hits)
        return self._have_room(self.peak_blocks(request.num_tokens, max_chunk) - len(readable), readable)

    def allocate(
        self, request: Request, num_tokens: int, *, code: Literal["prompt", "decode"], hits: tuple[int, ...] = ()
    ) -> bool:
        """Make room for the first `num_tokens` tokens: window release, hits, new blocks, registration of full ones.

        False when the pool has too few free blocks; then only blocks out of the window have been released.
        """
        self._release_window(request)
        if not self.fits(request, num_tokens, hits):
            return False
        for block_id in hits:
            self.pool.share(request.request_id, len(request.block_table), block_id)
            request.block_table.append(block_id)
        request.num_cached_blocks += len(hits)
        if hits:
            self._release_window(request)
        reason = AllocationReason(code=code, num_tokens=num_tokens, num_blocks_held=len(request.block_table))
        for logical_index in range(len(request.block_table), self.blocks_for(num_tokens)):
            request.block_table.append(self.pool.allocate(request.request_id, logical_index, reason))
        self._register(request, min(num_tokens, request.num_tokens) // self.block_size)
        return True

    def release(self, request: Request, code: Literal["finished", "cancelled", "failed"]) -> None:
        """Take back all blocks of a request, the end of its table first."""
        self._release(request, range(len(request.block_table)), ReleaseReason(code=code))
        request.block_table.clear()

    def forget_unwritten(self, request: Request, num_written: int) -> None:
        """Drop the prefixes of a request's blocks that were registered for tokens from `num_written` on."""
        first = num_written // self.block_size
        block_ids = [
            block_id for block_id in request.block_table[first : request.num_cached_blocks] if block_id is not None
        ]
        if block_ids:
            self.pool.forget(block_ids)

    def _register(self, request: Request, num_full_blocks: int) -> None:
        if not self.pool.prefix_cache:
            return
        for index in range(request.num_cached_blocks, num_full_blocks):
            block_id = request.block_table[index]
            if block_id is not None:
                parent = request.hashes[index - 1] if index else None
                self.pool.register(request.request_id, index, block_id, request.hashes[index], parent)
        request.num_cached_blocks = max(request.num_cached_blocks, num_full_blocks)

    def _have_room(self, num_needed: int, hits: tuple[int, ...]) -> bool:
        num_free_hits = sum(self.pool.ref_counts[block_id] == 0 for block_id in hits)
        return max(0, num_needed) + num_free_hits <= self.pool.num_free

    def _readable(self, hits: tuple[int, ...]) -> tuple[int, ...]:
        """The hits that are still in the window of the token after them."""
        return hits[self._window_start(len(hits) * self.block_size) // self.block_size :]

    def _window_start(self, num_computed: int) -> int:
        """First position that the next token, or any later one, reads."""
        return 0 if self.window is None else max(0, num_computed - self.window + 1)

    def _release_window(self, request: Request) -> None:
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
        if num_hits < limit:
            if not self.pool.cached:
                return LookupReason(code="nothing_cached")
            return LookupReason(code="differs", position=num_hits * self.block_size)
        if self.pool.find(request.hashes[limit:], 1):
            return LookupReason(code="last_token", position=request.num_tokens - 1)
        return LookupReason(code="hit")
