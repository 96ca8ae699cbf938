"""Pool slots: which write each of them holds, so that a past step never shows present tensors."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from kvviz.errors import MissingError
from kvviz.events import (
    BlockAllocated,
    BlockCopied,
    BlockFetched,
    BlockOffloaded,
    BlocksSwappedIn,
    BlocksSwappedOut,
    Event,
    KvWritten,
    StepStarted,
)

#: Maximum number of writes remembered; older ones are discarded.
MAX_WRITES = 100_000


@dataclass(frozen=True, slots=True)
class Write:
    """One `kv_written` event: its request, first position and slots."""

    request_id: int
    start: int
    slots: np.ndarray
    step: int


class Slots:
    """Folds events into `slot_seq` [slots]: the `write_seq` of each slot's entry, -1 while its block is empty.

    Entries keep their `write_seq` when their block is copied, or moves to the host tier and back.
    """

    def __init__(self, num_blocks: int, block_size: int, *, max_writes: int = MAX_WRITES) -> None:
        self.block_size = block_size
        self.slot_seq = np.full(num_blocks * block_size, -1, dtype=np.int64)
        self._slot_position = np.full(num_blocks * block_size, -1, dtype=np.int64)
        self._host: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.step = 0
        self._max_writes = max_writes
        self._writes: dict[int, Write] = {}
        self._order: deque[int] = deque()
        self._taken: list[list[tuple[int, int]]] = [[] for _ in range(num_blocks)]  # per block: (seq, step)

    def apply(self, seq: int, event: Event) -> None:
        """Fold one event with its `seq`."""
        if isinstance(event, KvWritten):
            slots = np.array(event.slots, dtype=np.int64)
            self.slot_seq[slots] = seq
            self._slot_position[slots] = event.positions
            self._writes[seq] = Write(event.request_id, event.positions[0], slots, self.step)
            self._order.append(seq)
            if len(self._order) > self._max_writes:
                del self._writes[self._order.popleft()]
        elif isinstance(event, BlockAllocated):
            self._take(event.block_id, seq)
        elif isinstance(event, BlockCopied):
            self._take(event.block_id, seq)
            source, target = self._slots(event.from_block_id), self._slots(event.block_id)
            for array in (self.slot_seq, self._slot_position):
                array[target][: event.num_tokens] = array[source][: event.num_tokens]
        elif isinstance(event, BlocksSwappedOut):
            for block_id, host_id in zip(event.block_ids, event.host_ids, strict=True):
                self._store(block_id, host_id)
        elif isinstance(event, BlockOffloaded):
            self._store(event.block_id, event.host_id)
        elif isinstance(event, BlocksSwappedIn):
            for block_id, host_id in zip(event.block_ids, event.host_ids, strict=True):
                self._load(host_id, block_id)
        elif isinstance(event, BlockFetched):
            self._load(event.host_id, event.block_id)
        elif isinstance(event, StepStarted):
            self.step = event.step

    def _slots(self, block_id: int) -> slice:
        return slice(block_id * self.block_size, (block_id + 1) * self.block_size)

    def _take(self, block_id: int, seq: int) -> None:
        """Mark an allocated block as empty."""
        self.slot_seq[self._slots(block_id)] = -1
        oldest = self._order[0] if self._order else 0
        kept = [taken for taken in self._taken[block_id] if taken[0] > oldest]
        self._taken[block_id] = [*kept, (seq, self.step)]  # a new list: another thread may be reading this one

    def _store(self, block_id: int, host_id: int) -> None:
        slots = self._slots(block_id)
        self._host[host_id] = self.slot_seq[slots].copy(), self._slot_position[slots].copy()

    def _load(self, host_id: int, block_id: int) -> None:
        slots = self._slots(block_id)
        self.slot_seq[slots], self._slot_position[slots] = self._host.pop(host_id)

    def holds(self, slots: np.ndarray | int, seqs: np.ndarray | int, positions: np.ndarray | int) -> bool:
        """Whether every slot holds the entry that the given write stored for its position."""
        same = (self.slot_seq[slots] == seqs) & (self._slot_position[slots] == positions)
        return bool(np.all(same))

    def slot_of(self, request_id: int, position: int, write_seq: int) -> int:
        """The slot where that write stored the position, if the entry is still there.

        Raises `MissingError`: `no_such_entry` for an unknown write, `gone` with `since_step` if its block was
        allocated again.
        """
        write = self._writes.get(write_seq)
        if write is None or write.request_id != request_id or not 0 <= position - write.start < len(write.slots):
            raise MissingError(
                f"Record {write_seq} wrote no entry of request {request_id} at position {position}; use the seq of the "
                "kv_written record that wrote it.",
                code="no_such_entry",
            )
        slot = int(write.slots[position - write.start])
        if not self.holds(slot, write_seq, position):
            elsewhere = np.flatnonzero((self.slot_seq == write_seq) & (self._slot_position == position))
            if len(elsewhere):
                return int(elsewhere[0])
            step = next((step for seq, step in self._taken[slot // self.block_size] if seq > write_seq), self.step)
            raise MissingError(
                f"This entry has been gone since step {step}; its block was allocated again.",
                code="gone",
                since_step=step,
            )
        return slot
