"""A session: one source with its clients."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from kvviz.errors import MissingError
from kvviz.sources.source import Run, Source

T = TypeVar("T")

#: Number of values cached for clients that request the same soon.
NUM_RECENT = 16


class Recent(Generic[T]):
    """The most recent values, by key."""

    def __init__(self) -> None:
        self._values: dict[tuple[Any, ...], T] = {}

    def get(self, key: tuple[Any, ...]) -> T | None:
        return self._values.get(key)

    def put(self, key: tuple[Any, ...], value: T) -> None:
        self._values[key] = value
        if len(self._values) > NUM_RECENT:
            del self._values[next(iter(self._values))]


class Session:
    """One source with its clients.

    `batches` caches encoded messages that clients share.
    """

    def __init__(self, session_id: str, source: Source, loop: asyncio.AbstractEventLoop) -> None:
        self.session_id = session_id
        self.source = source
        self.closed = False
        self.unwatched_since_s = time.monotonic()
        self._loop = loop
        self._watchers: dict[object, Callable[[], None]] = {}
        self._followers: tuple[Callable[[], None], ...] = ()
        self._wake_is_due = False
        self.batches: Recent[Any] = Recent()
        self._packs: Recent[asyncio.Future[bytes]] = Recent()
        source.on_change = self.notify

    @property
    def num_clients(self) -> int:
        return len(self._watchers)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` on the event loop after each change. Returns a function that ends this."""
        key = object()
        self._watchers[key] = wake
        self.wake_all()

        def leave() -> None:
            if self._watchers.pop(key, None) is not None and not self._watchers:
                self.unwatched_since_s = time.monotonic()
            self.wake_all()

        return leave

    def follow(self, notify: Callable[[], None]) -> None:
        """Call `notify` after every change, until `unfollow`."""
        self._followers = (*self._followers, notify)

    def unfollow(self, notify: Callable[[], None]) -> None:
        self._followers = tuple(follower for follower in self._followers if follower != notify)

    def notify(self) -> None:
        """Wake the clients after a change. Thread-safe; several calls cause a single wake."""
        for follower in self._followers:
            follower()
        if not self._wake_is_due:
            self._wake_is_due = True
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self.wake_all)

    def wake_all(self) -> None:
        self._wake_is_due = False
        for wake in tuple(self._watchers.values()):
            wake()

    async def read(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self.source.read(work))

    async def between_steps(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self.source.between_steps(work))

    def touch(self) -> None:
        self.unwatched_since_s = time.monotonic()

    async def file(self, spare: Path) -> Path:
        """A recording of the session: the file that it plays, or a new one written to `spare`."""
        return await asyncio.wrap_future(self.source.save(spare))

    async def step_pack(self, run: Run, step: int, layer: int, columns: int, request_id: int | None = None) -> bytes:
        """The pack to push after a step, created once for all clients with the same subscription.

        It is for `request_id` if that request took part in the step, else for the first request of the batch.
        """
        key = (run.log.log_id, step, layer, columns, request_id)
        pack = self._packs.get(key)
        if pack is None:
            pack = asyncio.ensure_future(self.read(lambda: run.frames.pack_step(step, layer, columns, request_id)))
            self._packs.put(key, pack)
        try:
            return await asyncio.shield(pack)
        except MissingError as error:
            if request_id is None or error.code != "not_in_step":
                raise
        return await self.step_pack(run, step, layer, columns)

    async def close(self) -> None:
        self.closed = True
        self.wake_all()
        await asyncio.to_thread(self.source.close)
