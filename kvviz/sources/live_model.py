"""What a live source needs of a model: an engine with its log and frames, driven from one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kvviz.log.frames import FrameSource
from kvviz.model.prompt import PromptRequest
from kvviz.sources.run_settings import RunSettings
from kvviz.sources.source import LogView


class Player(Protocol):
    """What is stepped: a model, or the script that plays it."""

    @property
    def has_work(self) -> bool: ...

    def step(self) -> bool:
        """Run one step; False when there is no work."""


class LaneRun(Protocol):
    """The log and frames of one lane; `num_settled` of its steps are over, frames included."""

    @property
    def log(self) -> LogView: ...

    @property
    def frames(self) -> FrameSource: ...

    @property
    def num_settled(self) -> int: ...


class LiveModel(Player, Protocol):
    """A `kvviz.model.run.ModelRun` or a `kvviz.comparison.comparison.Comparison`, whose `runs` are its lanes.

    Used from one thread, but for logs and those frames that have been captured.
    """

    @property
    def runs(self) -> Sequence[LaneRun]: ...

    @property
    def script(self) -> Player | None: ...

    @property
    def live_header(self) -> Mapping[str, Any]:
        """Fields of the header that a recording does without."""

    @property
    def num_steps(self) -> int: ...

    def header(self, index: int = 0) -> dict[str, Any]:
        """The header of a lane's log, see docs/wire.md."""

    def add_prompt(self, asked: PromptRequest) -> int:
        """Put a prompt in the waiting line; the answer is its request id."""

    def fork(self, request_id: int, position: int, token_id: int | None, max_new_tokens: int | None) -> int:
        """Branch off a request; the answer is the branch's id."""

    def set_priority(self, request_id: int, priority: int) -> None: ...

    def cancel(self, request_id: int) -> None: ...

    def reset_prefix_cache(self) -> bool:
        """Forget every cached prefix; False while a block is in use."""

    def snapshot(self) -> Callable[[Path], None]:
        """What has happened up to now, as something that writes itself to a `.kvviz` file in any thread."""


class RunFactory(Protocol):
    """Makes runs of a model with a new log each."""

    def __call__(self, settings: RunSettings, scenario: str | None = None) -> LiveModel:
        """A run with these settings, or one that plays a scenario. Raises `KvvizError` when they do not do."""
