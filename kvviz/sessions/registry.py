"""All sessions of a server: opening, sharing, replacing and closing them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kvviz.errors import KvvizError, MissingError, RequestError
from kvviz.sessions.limits import Limits
from kvviz.sessions.session import Session
from kvviz.sources.controls import AddRequest, Pause
from kvviz.sources.lane_source import LaneSource
from kvviz.sources.library import Entry, Library
from kvviz.sources.live import LiveSource
from kvviz.sources.live_model import RunFactory
from kvviz.sources.loader import Load, Loader, LoadStatus
from kvviz.sources.recorded import RecordedSource
from kvviz.sources.run_settings import RunSettings
from kvviz.sources.source import PlayState
from kvviz.sources.turns import Turns

#: Id of the live session that all pages at `/` share.
LIVE_ID = "live"
#: The lane number after the dot in a lane's id.
_LANE_NUMBER = re.compile(r"[1-9][0-9]?\Z")


class Sessions:
    """All sessions of a server. Everything except the constructor runs on one event loop.

    `load` loads a model in the background. The default session is the first recording until the live one is ready.
    `first_prompt` waits in every new live session, so its first step is a prefill.
    """

    def __init__(
        self, library: Library, limits: Limits, load: Load | None = None, first_prompt: AddRequest | None = None
    ) -> None:
        self.limits = limits
        self.library = library
        self.num_clients = 0
        self.model_status = LoadStatus()
        self.on_model_status: Callable[[LoadStatus], None] = lambda status: None
        self._first_prompt = first_prompt
        #: The open sessions.
        self.by_id: dict[str, Session] = {}
        self._num_opening: Counter[str] = Counter()
        self._live_id: str | None = None
        self._run_factory: RunFactory | None = None
        self._turns = Turns()
        self._open_locks: dict[str, asyncio.Lock] = {}
        self._arrival = asyncio.Event()
        self._loader = Loader(load, self._on_model, self._on_status) if load else None
        self._tasks: list[asyncio.Task[None]] = []
        if self._loader:
            self.model_status = self._loader.status

    async def start(self) -> None:
        """Start loading the model, and closing idle sessions."""
        self.loop = asyncio.get_running_loop()
        self._tasks = [asyncio.create_task(self._tidy_up()), asyncio.create_task(self._open_first())]
        if self._loader:
            self._loader.start()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(session.close() for session in self.by_id.values()), return_exceptions=True)
        self.by_id.clear()
        self.library.close()

    def status(self, session: Session | None) -> dict[str, Any]:
        """The `status` message for clients of `session`, or for a client without one."""
        return {
            "type": "status",
            "play": (session.source.play if session else PlayState()).as_json(),
            "model": {**asdict(self.model_status), "live_session_id": self._live_id},
            "clients": session.num_clients if session else self.num_clients,
        }

    async def find(self, session_id: str | None) -> Session | None:
        """The session with that id, opening a recording if necessary; the default session for None.

        Returns None while the model is loading (for the default session: and if there is no recording). Raises
        `MissingError` for an unknown id, and `RequestError` if the limit of sessions is reached.
        """
        if session_id is None:
            entries = self.library.entries
            session_id = self._live_id or (entries[0].recording_id if entries else None)
            if session_id is None:
                return None
        if session_id in self.by_id:
            return self.by_id[session_id]
        whole_id, dot, number = session_id.rpartition(".")
        if dot and _LANE_NUMBER.match(number):
            return await self._find_lane(session_id, whole_id, int(number))
        if session_id == LIVE_ID and self.model_status.state in ("fetching", "converting", "loading", "ready"):
            return None
        entry = self.library.get(session_id)
        if entry is None:
            raise MissingError(
                f"Session {session_id[:80]!r} doesn't exist or was closed; omit 'session' for the default one.",
                code="no_such_session",
            )
        return await self._open_recording(entry)

    async def _find_lane(self, session_id: str, whole_id: str, index: int) -> Session | None:
        """One lane of a session's comparison, as a session."""
        whole = await self.find(whole_id)
        if whole is None:
            return None
        if not isinstance(whole.source, LiveSource | RecordedSource) or index > len(whole.source.lanes):
            raise MissingError(
                f"Session {whole_id[:80]!r} has no lane {index}; remove the number.",
                code="no_such_session",
            )
        if session_id not in self.by_id:  # another client may have opened it in the meantime
            session = self.by_id[session_id] = Session(session_id, LaneSource(whole.source, index), self.loop)
            whole.follow(session.notify)
        return self.by_id[session_id]

    @property
    def arrival(self) -> asyncio.Event:
        """Set at the next change of the model's status, when `find` may return something else."""
        return self._arrival

    async def list_recordings(self) -> list[dict[str, Any]]:
        listed = []
        for entry in self.library.entries:
            with contextlib.suppress(KvvizError, OSError):
                listed.append(await self._describe(entry))
        return listed

    async def add_recording(self, path: Path) -> dict[str, Any]:
        """Add an uploaded file. Raises `RecordingError` if it can't be read, and deletes it."""
        await self._free_upload_capacity(path.stat().st_size)
        entry = self.library.add(path)
        try:
            await self._open_recording(entry)
        except BaseException:
            self.library.remove(entry.recording_id)
            raise
        return await self._describe(entry)

    async def _describe(self, entry: Entry) -> dict[str, Any]:
        summary = await asyncio.to_thread(self.library.summary, entry)
        return {
            "id": entry.recording_id,
            "title": summary.title,
            "num_steps": summary.num_steps,
            "bytes": summary.num_bytes,
            "session_id": entry.recording_id,
        }

    async def _open_recording(self, entry: Entry) -> Session:
        lock = self._open_locks.setdefault(entry.recording_id, asyncio.Lock())
        async with lock:
            if entry.recording_id not in self.by_id:
                async with self._capacity("recording", self.limits.max_recordings, 0.0):
                    source = await asyncio.to_thread(RecordedSource, entry.path)
                    self.library.note(entry, source.summary)
                    self.by_id[entry.recording_id] = Session(entry.recording_id, source, self.loop)
            return self.by_id[entry.recording_id]

    async def create_live(self) -> Session:
        """Open a separate live session. Raises `RequestError` while the model is loading or the limit is reached."""
        if self._run_factory is None:
            raise RequestError(
                f"A new live session needs the model. {self.model_status.message or 'This server has none.'}",
                code="model_not_ready",
            )
        async with self._capacity("live", self.limits.max_live_sessions, self.limits.replaceable_s):
            source = await asyncio.to_thread(self._open_live, self._run_factory)
            session = Session(f"s-{secrets.token_urlsafe(9)}", source, self.loop)
            self.by_id[session.session_id] = session
            return session

    @contextlib.asynccontextmanager
    async def _capacity(self, kind: str, limit: int, unwatched_s: float) -> AsyncIterator[None]:
        """Capacity for one more session of a kind while the block opens it. Raises `RequestError` if there is none.

        A session that is being opened counts: nothing is awaited between the last check and the count.
        """
        while True:
            alike = [
                session
                for session in self.by_id.values()
                if session.source.kind == kind and not isinstance(session.source, LaneSource)
            ]
            if len(alike) + self._num_opening[kind] < limit:
                break
            now = time.monotonic()
            spare = [
                session
                for session in alike
                if not self._num_clients_of(session)
                and session.session_id != self._live_id
                and now - self._unwatched_since_s(session) >= unwatched_s
            ]
            if not spare:
                raise RequestError(
                    f"The limit of {limit} {kind} sessions is reached; close a page and wait a minute.",
                    code="too_many_sessions",
                    limit=limit,
                )
            await self.end(min(spare, key=self._unwatched_since_s))
        self._num_opening[kind] += 1
        try:
            yield
        finally:
            self._num_opening[kind] -= 1

    async def _free_upload_capacity(self, num_bytes: int) -> None:
        """Remove the oldest uploads without clients until `num_bytes` more fit."""
        limits = self.limits
        while True:
            uploads = [entry for entry in self.library.entries if entry.uploaded]
            total = sum(self.library.num_bytes(entry) for entry in uploads)
            if len(uploads) < limits.max_recordings and total + num_bytes <= limits.max_uploads_bytes:
                return
            spare = next((entry for entry in uploads if not self._is_watched(entry)), None)
            if spare is None:
                raise RequestError(
                    f"{len(uploads)} uploaded recordings ({total:,} B) are in use, which is the limit; close one of "
                    "their pages.",
                    code="too_many_sessions",
                    limit=limits.max_recordings,
                )
            self.library.remove(spare.recording_id)
            if session := self.by_id.get(spare.recording_id):
                await self.end(session)

    def _is_watched(self, entry: Entry) -> bool:
        session = self.by_id.get(entry.recording_id)
        return session is not None and self._num_clients_of(session) > 0

    def _lanes_of(self, session: Session) -> list[Session]:
        return [other for name, other in self.by_id.items() if name.startswith(f"{session.session_id}.")]

    def _num_clients_of(self, session: Session) -> int:
        return sum(one.num_clients for one in (session, *self._lanes_of(session)))

    def _unwatched_since_s(self, session: Session) -> float:
        """The time at which the last client left the session and its lanes."""
        return max(one.unwatched_since_s for one in (session, *self._lanes_of(session)))

    async def end(self, session: Session) -> None:
        self.by_id.pop(session.session_id, None)
        if isinstance(session.source, LaneSource) and (whole := self.by_id.get(session.session_id.rpartition(".")[0])):
            whole.unfollow(session.notify)
        for lane in self._lanes_of(session):
            await self.end(lane)
        await session.close()

    def _open_live(self, run_factory: RunFactory) -> LiveSource:
        source = LiveSource(run_factory, self._turns, RunSettings())
        if self._first_prompt:
            with contextlib.suppress(KvvizError):  # for example, without a tokenizer: the log starts empty
                source.execute(self._first_prompt).result()
        return source

    def _on_model(self, run_factory: RunFactory) -> None:
        """Create the default live session. Called in the loader's thread."""
        source = self._open_live(run_factory)
        self.loop.call_soon_threadsafe(self._adopt, run_factory, source)

    def _adopt(self, run_factory: RunFactory, source: LiveSource) -> None:
        self._run_factory = run_factory
        self._live_id = LIVE_ID
        self.by_id[self._live_id] = Session(self._live_id, source, self.loop)

    def _on_status(self, status: LoadStatus) -> None:
        self.on_model_status(status)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(self._show_status, status)

    def _show_status(self, status: LoadStatus) -> None:
        self.model_status = status
        self._arrival.set()
        self._arrival = asyncio.Event()
        for session in self.by_id.values():
            session.wake_all()

    async def _open_first(self) -> None:
        with contextlib.suppress(KvvizError):
            await self.find(None)

    async def _tidy_up(self) -> None:
        while True:
            await asyncio.sleep(min(30.0, self.limits.idle_s / 2))
            now = time.monotonic()
            for session in list(self.by_id.values()):
                if self._num_clients_of(session) or now - self._unwatched_since_s(session) < self.limits.idle_s:
                    continue
                if session.session_id == self._live_id:
                    session.source.execute(Pause(command="pause"))
                else:
                    await self.end(session)
