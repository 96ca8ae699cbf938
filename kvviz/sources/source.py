"""The common interface of live engines and recordings, on which sessions are built."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from kvviz.errors import KvvizError
from kvviz.log.packs import FrameSource
from kvviz.sources.controls import EngineCommand

T = TypeVar("T")


class LogView(Protocol):
    """The read interface of an event log. Thread-safe.

    Records are consecutive from `first_seq` to `head_seq`. Older ones are folded into `checkpoint()`.
    """

    @property
    def log_id(self) -> str: ...

    @property
    def first_seq(self) -> int:
        """`seq` of the oldest record in the log."""

    @property
    def head_seq(self) -> int:
        """`seq` of the newest record; -1 if there is none."""

    def encoded(self, after: int, limit: int) -> list[bytes]:
        """At most `limit` records with `seq` above `after`, each as encoded JSON."""

    def checkpoint(self) -> dict[str, Any] | None:
        """The folded world just before `first_seq`; None if the log begins at 0."""

    def subscribe(self, callback: Callable[[], object], /) -> Callable[[], None]:
        """Call `callback`, from any thread, after each append. Returns a function that unsubscribes."""


@dataclass(frozen=True, slots=True)
class Run:
    """One log with its header and frames. Immutable: a new log is a new run."""

    log: LogView
    header: dict[str, Any]
    frames: FrameSource


@dataclass(frozen=True, slots=True)
class PlayState:
    """Whether an engine plays, and whether it is idle (has no work).

    `rate` is in steps per second; None: as fast as possible.
    """

    playing: bool = False
    rate: float | None = 1.0
    idle: bool = True

    def as_json(self) -> dict[str, Any]:
        return {"playing": self.playing, "rate": self.rate, "idle": self.idle}


class Source(Protocol):
    """A source of events.

    The session sets `on_change`. The source calls it, from any thread, when `run`, `play`, `num_steps`, `failure` or
    the log changes.
    """

    on_change: Callable[[], None]

    @property
    def kind(self) -> Literal["live", "recording"]:
        """Whether there is an engine to control."""

    @property
    def run(self) -> Run: ...

    @property
    def play(self) -> PlayState:
        """Whether and how fast the engine is playing."""

    @property
    def num_steps(self) -> int:
        """The last step to push, with complete records and frames; 0: push nothing."""

    @property
    def failure(self) -> tuple[int, KvvizError] | None:
        """The number of failures outside of commands, and the last one."""

    def execute(self, command: EngineCommand) -> Future[Any]:
        """Execute a command. The future returns its result, or raises a `KvvizError`."""

    def read(self, work: Callable[[], T]) -> Future[T]:
        """Call `work` while the engine keeps running. It must only read captured data."""

    def between_steps(self, work: Callable[[], T]) -> Future[T]:
        """Call `work` while no step runs, so it can read the pool."""

    def save(self, spare: Path) -> Future[Path]:
        """The log as a `.kvviz` file: written to `spare`, or an existing file."""

    def close(self) -> None:
        """Stop permanently. Idempotent."""
