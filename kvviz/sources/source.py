"""The interface that a live engine and a recorded file share, and that a session is built on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from kvviz.errors import KvvizError
from kvviz.log.frames import FrameSource
from kvviz.sources.controls import EngineCommand

T = TypeVar("T")


class LogView(Protocol):
    """What a reader needs of an event log. Safe to call from any thread.

    Records are dense from `first_seq` to `head_seq`; older ones are folded into `checkpoint()`.
    """

    @property
    def log_id(self) -> str: ...

    @property
    def first_seq(self) -> int:
        """`seq` of the oldest record that is kept."""

    @property
    def head_seq(self) -> int:
        """`seq` of the newest record, -1 when there is none."""

    def encoded(self, after: int, limit: int) -> list[bytes]:
        """At most `limit` records with `seq` above `after`, each one as encoded JSON."""

    def checkpoint(self) -> dict[str, Any] | None:
        """The folded world just before `first_seq`; None when the log begins at 0."""

    def subscribe(self, callback: Callable[[], object], /) -> Callable[[], None]:
        """Call `callback`, from any thread, after each append; the answer ends it."""


@dataclass(frozen=True, slots=True)
class Run:
    """One log with its header and frames. A source begins a new run when it begins a new log; runs never change."""

    log: LogView
    header: dict[str, Any]
    frames: FrameSource


@dataclass(frozen=True, slots=True)
class PlayState:
    """Whether an engine runs by itself, at what `rate` (steps per second, None: as fast as it can), and has no work."""

    playing: bool = False
    rate: float | None = 1.0
    idle: bool = True

    def as_json(self) -> dict[str, Any]:
        return {"playing": self.playing, "rate": self.rate, "idle": self.idle}


class Source(Protocol):
    """Something that events come from.

    `on_change` is set by its session and called from any thread when `run`, `play`, `num_steps`, `failure` or the log
    has changed.
    """

    on_change: Callable[[], None]

    @property
    def kind(self) -> Literal["live", "recording"]:
        """Whether an engine listens."""

    @property
    def run(self) -> Run: ...

    @property
    def play(self) -> PlayState:
        """Whether and how fast the engine runs by itself."""

    @property
    def num_steps(self) -> int:
        """The last step whose records and frames are complete and that should be pushed; 0: push nothing."""

    @property
    def failure(self) -> tuple[int, KvvizError] | None:
        """The last thing that went wrong by itself, with how many there have been."""

    def execute(self, command: EngineCommand) -> Future[Any]:
        """Carry out a command; the future gives its result or raises a `KvvizError`."""

    def read(self, work: Callable[[], T]) -> Future[T]:
        """Call `work`, which reads only what has been captured, while the engine goes on."""

    def between_steps(self, work: Callable[[], T]) -> Future[T]:
        """Call `work` while no step runs, so that it sees the pool at rest."""

    def save(self, spare: Path) -> Future[Path]:
        """The log as a `.kvviz` file: written to `spare`, or a file that exists anyway."""

    def close(self) -> None:
        """Stop for good. May be called twice."""
