"""One lane of a comparison as a source: its own log and frames, while commands go to the whole comparison."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from kvviz.errors import KvvizError, RequestError
from kvviz.sources.controls import EngineCommand
from kvviz.sources.source import PlayState, Run, Source

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LaneLog:
    """The run of one lane, and the number of its completed steps."""

    run: Run
    num_steps: Callable[[], int] = lambda: 0


class HasLanes(Source, Protocol):
    """A source whose run may be a comparison."""

    @property
    def lanes(self) -> tuple[LaneLog, ...]: ...


class LaneSource:
    """Lane `index` (from 1) of the comparison that `whole` runs; without a comparison, the log of `whole`."""

    def __init__(self, whole: HasLanes, index: int) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._whole = whole
        self._index = index
        self._leave: Callable[[], None] = lambda: None
        self._seen: Run | None = None

    @property
    def kind(self) -> Literal["live", "recording"]:
        return self._whole.kind

    @property
    def _lane(self) -> LaneLog | None:
        lanes = self._whole.lanes
        return lanes[self._index - 1] if self._index <= len(lanes) else None

    @property
    def run(self) -> Run:
        lane = self._lane
        run = lane.run if lane else self._whole.run
        if run is not self._seen:
            self._leave()
            self._seen, self._leave = run, run.log.subscribe(lambda: self.on_change())
        return run

    @property
    def play(self) -> PlayState:
        return self._whole.play

    @property
    def num_steps(self) -> int:
        lane = self._lane
        return lane.num_steps() if lane else self._whole.num_steps

    @property
    def failure(self) -> tuple[int, KvvizError] | None:
        return self._whole.failure

    def execute(self, command: EngineCommand) -> Future[Any]:
        return self._whole.execute(command)

    def read(self, work: Callable[[], T]) -> Future[T]:
        return self._whole.read(work)

    def between_steps(self, work: Callable[[], T]) -> Future[T]:
        return self._whole.between_steps(work)

    def save(self, spare: Path) -> Future[Path]:
        """Raise `RequestError` in the future, since lanes are saved together."""
        refused: Future[Path] = Future()
        refused.set_exception(RequestError("A lane can't be saved on its own; save the whole comparison.", code="lane"))
        return refused

    def close(self) -> None:
        self._leave()
