"""The free queue: unused blocks in the order of their reuse.

It is a doubly linked list over block ids, so that a prefix hit removes a block from the middle in O(1). The structure
and its operations follow vLLM's `FreeKVCacheBlockQueue`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class FreeQueue:
    """Block ids from the head (reused next) to the tail. `capacity` is the largest id plus one."""

    def __init__(self, block_ids: Iterable[int], capacity: int) -> None:
        self._end = capacity  # sentinel: its `next` is the head, its `previous` the tail
        self._next = [-1] * (capacity + 1)
        self._previous = [-1] * (capacity + 1)
        self._next[self._end] = self._previous[self._end] = self._end
        self._length = 0
        self.append_n(block_ids)

    def __len__(self) -> int:
        return self._length

    def __contains__(self, block_id: int) -> bool:
        return self._next[block_id] != -1

    def __iter__(self) -> Iterator[int]:
        block_id = self._next[self._end]
        while block_id != self._end:
            yield block_id
            block_id = self._next[block_id]

    @property
    def first(self) -> int:
        """The head. Raises `ValueError` if the queue is empty."""
        if not self._length:
            raise ValueError("No free blocks available")
        return self._next[self._end]

    def head(self, count: int) -> list[int]:
        """The first `count` block ids, or fewer if the queue is shorter."""
        block_ids: list[int] = []
        for block_id in self:
            if len(block_ids) == count:
                break
            block_ids.append(block_id)
        return block_ids

    def position(self, block_id: int) -> int:
        """Place of a block in the queue, 0 at the head. Raises `ValueError` if it is not in the queue."""
        for index, other in enumerate(self):
            if other == block_id:
                return index
        raise ValueError(f"block {block_id} is not in the free queue")

    def popleft(self) -> int:
        """Pop the head. Raises `ValueError` if the queue is empty."""
        block_id = self.first
        self.remove(block_id)
        return block_id

    def popleft_n(self, count: int) -> list[int]:
        """Pop the first `count` blocks. Raises `ValueError` if there are fewer."""
        if count > self._length:
            raise ValueError("No free blocks available")
        return [self.popleft() for _ in range(count)]

    def remove(self, block_id: int) -> None:
        """Remove a block from anywhere in the queue. Raises `ValueError` if it is not in the queue."""
        if block_id not in self:
            raise ValueError(f"block {block_id} is not in the free queue")
        before, after = self._previous[block_id], self._next[block_id]
        self._next[before], self._previous[after] = after, before
        self._next[block_id] = self._previous[block_id] = -1
        self._length -= 1

    def append_n(self, block_ids: Iterable[int]) -> None:
        for block_id in block_ids:
            self._insert_before(self._end, block_id)

    def prepend_n(self, block_ids: Iterable[int]) -> None:
        """Insert blocks at the head as one batch; the first of them becomes the head."""
        first = self._next[self._end]
        for block_id in block_ids:
            self._insert_before(first, block_id)

    def insert(self, place: int, block_id: int) -> None:
        """Insert a block behind the first `place` blocks, or at the tail if there are fewer."""
        after = next((other for index, other in enumerate(self) if index == place), self._end)
        self._insert_before(after, block_id)

    def _insert_before(self, after: int, block_id: int) -> None:
        if block_id in self:
            raise ValueError(f"block {block_id} is already in the free queue")
        before = self._previous[after]
        self._next[before] = self._previous[after] = block_id
        self._previous[block_id], self._next[block_id] = before, after
        self._length += 1
