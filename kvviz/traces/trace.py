"""Traces that can be read repeatedly, from a file or from memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from kvviz.errors import TraceError
from kvviz.traces.batches import Batch, Ints, Numbering, Numbers, batches_of, order_of
from kvviz.traces.lines import Faults, LineReader, open_trace

MAX_REFERENCES = 2**31 - 2


class Trace(Protocol):
    """Requests in batches, the same on every reading. `block_size` (tokens) is valid after the first batch."""

    @property
    def block_size(self) -> int:
        """Tokens per block."""

    def __iter__(self) -> Iterator[Batch]:
        """Read the trace from the start."""


class TraceFile:
    """A trace in a `.jsonl` or gzip file. `faults` are the bad lines of the first reading.

    `block_size`: in tokens; None: as the trace says or implies. `block_size_note` says if it is inferred or a misfit.

    `on_bytes` is called with the number of bytes read after each line. Reading ends early when `stop()` returns true;
    `is_partial` is then true. Errors call the file `name`, by default its path.
    """

    def __init__(
        self,
        path: Path,
        block_size: int | None = None,
        *,
        name: str | None = None,
        on_bytes: Callable[[int], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.path = path
        self.name = str(path) if name is None else name
        self.faults = Faults()
        self.is_partial = False
        self._reader = LineReader(block_size)  # also checks the block size
        self._default = block_size
        self._numbering = Numbering()
        self._on_bytes, self._stop = on_bytes, stop
        self._num_readings = 0

    @property
    def block_size(self) -> int:
        return self._reader.block_size

    @property
    def block_size_note(self) -> str | None:
        return self._reader.block_size_note

    def __iter__(self) -> Iterator[Batch]:
        """Read the trace from the start. Raises `TraceError`."""
        self._reader = LineReader(self._default, on_bytes=self._on_bytes, stop=self._stop)
        if not self._num_readings:
            self.faults = self._reader.faults
        self._num_readings += 1
        with open_trace(self.path, self.name) as file:
            yield from batches_of(self._reader.read(file, self.name), self._numbering)
        self.is_partial = self._reader.is_stopped


@dataclass(frozen=True, slots=True, eq=False)
class StoredTrace:
    """All batches of a trace in memory, with the next reference to the same block for each of its R references.

    `next_use` int32 [R]: number of that reference among all references, or R if there is none.
    """

    batches: tuple[Batch, ...]
    next_use: Numbers
    num_blocks: int
    block_size: int

    @classmethod
    def of(cls, trace: Trace, max_references: int = MAX_REFERENCES) -> StoredTrace:
        """Read a trace into memory. Raises `TraceError` if it has too many references, and as the trace does."""
        kept, num_references = [], 0
        for batch in trace:
            num_references += len(batch.blocks)
            if num_references > max_references:
                raise TraceError(
                    f"The trace has more than {max_references:,} block references; use only the start of it.",
                    code="too_large",
                )
            kept.append(batch)
        num_blocks = 1 + max((int(batch.blocks.max(initial=-1)) for batch in kept), default=-1)
        next_use = np.empty(num_references, np.int32)
        seen = np.full(num_blocks, num_references, np.int64)  # by block: its next use
        for batch in reversed(kept):
            first = batch.first_reference
            next_use[first : first + len(batch.blocks)] = _next_in(batch.blocks, first, seen)
        return cls(tuple(kept), next_use, num_blocks, trace.block_size)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)


def _next_in(blocks: Numbers, first: int, seen: Ints) -> Ints:
    """Next use of each reference. `seen` is the next use after these references, and is updated to that before them."""
    order = order_of(blocks)
    sorted_blocks = blocks[order]
    following = np.empty(len(blocks), np.int64)
    is_same = sorted_blocks[1:] == sorted_blocks[:-1]
    following[order[:-1]] = np.where(is_same, order[1:] + first, seen[sorted_blocks[:-1]])
    if len(order):
        following[order[-1]] = seen[sorted_blocks[-1]]
        begins = np.concatenate([[True], ~is_same])
        seen[sorted_blocks[begins]] = order[begins] + first
    return following
