"""The event log: append-only, dense, encoded once. Readers are cursors, without a queue between log and reader."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import orjson

from kvviz.events import Event
from kvviz.log.world import World

#: Maximum number of records before the oldest are folded into a checkpoint.
MAX_RECORDS = 100_000


class EventLog:
    """Stamps events with `seq` and `t_us` and stores them as encoded records.

    Beyond `max_records`, the oldest tenth is folded into a checkpoint: a world as of `first_seq` - 1. `num_blocks` and
    `block_size` describe the pool for that fold. Append from one thread; read from any.
    """

    def __init__(self, num_blocks: int = 1, block_size: int = 1, *, max_records: int = MAX_RECORDS) -> None:
        self.log_id = uuid.uuid4().hex
        self.max_records = max_records
        self._view: tuple[int, list[bytes]] = (
            0,
            [],
        )  # first seq and records, replaced together for readers in other threads
        self._base = World(num_blocks, block_size)
        self._began = time.perf_counter_ns()
        self._listeners: list[Callable[[], object]] = []

    @property
    def first_seq(self) -> int:
        """`seq` of the oldest record kept."""
        return self._view[0]

    @property
    def head_seq(self) -> int:
        """`seq` of the newest record, or -1 if there is none."""
        first, records = self._view
        return first + len(records) - 1

    def append(self, event: Event) -> int:
        t_us = (time.perf_counter_ns() - self._began) // 1_000
        seq = self.head_seq + 1
        self._view[1].append(orjson.dumps([seq, t_us, event]))
        if len(self._view[1]) > self.max_records:
            self._fold(max(1, self.max_records // 10))
        for listener in tuple(self._listeners):
            listener()
        return seq

    def encoded(self, after: int, limit: int = 1_000) -> list[bytes]:
        """Up to `limit` JSON records with `seq` > `after`, starting at `first_seq` if `after` is older."""
        first, records = self._view
        start = max(0, after + 1 - first)
        return records[start : start + limit]

    def records(self, after: int = -1) -> list[list[Any]]:
        return [orjson.loads(line) for line in self.encoded(after, len(self._view[1]))]

    def checkpoint(self) -> dict[str, Any] | None:
        """The world as of `first_seq` - 1, or None while the log still starts at 0."""
        return self._base.to_json() if self.first_seq else None

    def subscribe(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call `listener` after every append, in the appending thread. Returns a function that unsubscribes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _fold(self, count: int) -> None:
        first, records = self._view
        base = World.from_json(self._base.to_json())
        for line in records[:count]:
            base.apply(orjson.loads(line))
        self._base, self._view = base, (first + count, records[count:])
