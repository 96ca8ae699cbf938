"""Traces that can be read several times: from a file, which stays there, or from memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from kvviz.errors import TraceError
from kvviz.traces.batches import Batch, Ints, Numbering, Numbers, batches_of, order_of
from kvviz.traces.lines import DEFAULT_BLOCK_SIZE, Faults, LineReader, open_trace

MAX_REFERENCES = 2**31 - 2


class Trace(Protocol):
    """Requests in batches, the same each time it is read. `block_size` (tokens) is right once the first batch came."""

    @property
    def block_size(self) -> int:
        """Tokens of a block."""

    def __iter__(self) -> Iterator[Batch]:
        """Read it from the start."""


class TraceFile:
    """A trace in a file, `.jsonl` or gzip. `faults` are those of the first reading.

    `on_bytes` gets how much of the file has been read, after each line. When `stop()` is true the reading ends early,
    with what has come so far, and `is_partial` is true. `name` is what errors call it, by default the path.
    """

    def __init__(
        self,
        path: Path,
        block_size: int = DEFAULT_BLOCK_SIZE,
        *,
        name: str | None = None,
        on_bytes: Callable[[int], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.path = path
        self.name = str(path) if name is None else name
        self.faults = Faults()
        self.is_partial = False
        self._reader = LineReader(block_size)  # checks the block size, too
        self._default = block_size
        self._numbering = Numbering()
        self._on_bytes, self._stop = on_bytes, stop
        self._num_readings = 0

    @property
    def block_size(self) -> int:
        return self._reader.block_size

    def __iter__(self) -> Iterator[Batch]:
        """Read it from the start. Raises `TraceError`."""
        self._reader = LineReader(self._default, on_bytes=self._on_bytes, stop=self._stop)
        if not self._num_readings:
            self.faults = self._reader.faults
        self._num_readings += 1
        with open_trace(self.path, self.name) as file:
            yield from batches_of(self._reader.read(file, self.name), self._numbering)
        self.is_partial = self._reader.is_stopped


@dataclass(frozen=True, slots=True, eq=False)
class StoredTrace:
    """All batches of a trace in memory, and for each of its R references the next one of the same block.

    `next_use` int32 [R]: its number among all references, R when there is none.
    """

    batches: tuple[Batch, ...]
    next_use: Numbers
    num_blocks: int
    block_size: int

    @classmethod
    def of(cls, trace: Trace, max_references: int = MAX_REFERENCES) -> StoredTrace:
        """Read it into memory. Raises `TraceError` when there are more references, and as the trace does."""
        kept, num_references = [], 0
        for batch in trace:
            num_references += len(batch.blocks)
            if num_references > max_references:
                raise TraceError(
                    f"A trace may have {max_references:,} references to blocks here, but this one has more; "
                    "use its beginning only.",
                    code="too_large",
                )
            kept.append(batch)
        num_blocks = 1 + max((int(batch.blocks.max(initial=-1)) for batch in kept), default=-1)
        next_use = np.empty(num_references, np.int32)
        seen = np.full(num_blocks, num_references, np.int64)  # by block: where it is used next
        for batch in reversed(kept):
            first = batch.first_reference
            next_use[first : first + len(batch.blocks)] = _next_in(batch.blocks, first, seen)
        return cls(tuple(kept), next_use, num_blocks, trace.block_size)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)


def _next_in(blocks: Numbers, first: int, seen: Ints) -> Ints:
    """Next use of each reference; `seen` is that behind these references, and then that before them."""
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
