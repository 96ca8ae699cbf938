"""A recording as a source: records and frames, without commands."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

import orjson

from kvviz.errors import KvvizError, RequestError
from kvviz.log.recording import Recording
from kvviz.sources.controls import EngineCommand
from kvviz.sources.lane_source import LaneLog
from kvviz.sources.library import Summary
from kvviz.sources.source import PlayState, Run

T = TypeVar("T")


class RecordedLog:
    """The records of a file. `log_id` is a hash of them, so a page can reconnect after a restart."""

    first_seq = 0

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = [_canonical(number, line) for number, line in enumerate(lines)]
        digest = hashlib.blake2b(digest_size=16)
        for line in self._lines:
            digest.update(line)
        self.log_id = digest.hexdigest()

    @property
    def head_seq(self) -> int:
        return len(self._lines) - 1

    def encoded(self, after: int, limit: int) -> list[bytes]:
        start = max(0, after + 1)
        return self._lines[start : start + limit]

    def checkpoint(self) -> dict[str, Any] | None:
        return None

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        return lambda: None


class RecordedSource:
    """An open, validated `.kvviz` file. Raises `RecordingError` if it can't be read."""

    kind: Literal["live", "recording"] = "recording"
    play = PlayState()
    num_steps = 0
    failure: tuple[int, KvvizError] | None = None

    def __init__(self, path: Path) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self.path = path
        self._recording = Recording.open(path)
        self.run = Run(RecordedLog(self._recording.lines), self._recording.header, self._recording)
        self.lanes = tuple(LaneLog(Run(RecordedLog(lane.lines), lane.header, lane)) for lane in self._recording.lanes)
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kvviz-recording")

    @property
    def summary(self) -> Summary:
        return Summary.of(self._recording, self.path)

    def execute(self, command: EngineCommand) -> Future[Any]:
        refused: Future[Any] = Future()
        refused.set_exception(
            RequestError(
                f"A recording doesn't support '{command.command}'; open the live session instead.",
                code="recording",
            )
        )
        return refused

    def read(self, work: Callable[[], T]) -> Future[T]:
        return self._reader.submit(work)

    between_steps = read

    def save(self, spare: Path) -> Future[Path]:
        done: Future[Path] = Future()
        done.set_result(self.path)
        return done

    def close(self) -> None:
        self._reader.shutdown(wait=True, cancel_futures=True)
        self._recording.close()


def _canonical(number: int, line: bytes) -> bytes:
    """The line, or an equivalent one that starts with `[number,` as in a live log."""
    if line.startswith(b"[%d," % number):
        return line
    _, t_us, event = orjson.loads(line)
    return orjson.dumps([number, t_us, event])
