"""The interface of a live source to its model: an engine with a log and frames, used from one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kvviz.log.packs import FrameSource
from kvviz.model.prompt import PromptRequest
from kvviz.sources.run_settings import RunSettings
from kvviz.sources.source import LogView


class Player(Protocol):
    """Anything that runs in steps: a model, or a script that controls one."""

    @property
    def has_work(self) -> bool: ...

    def step(self) -> bool:
        """Run one step; False when there is no work."""


class LiveLane(Protocol):
    """The log and frames of one lane. The first `num_settled` steps are complete, including their frames."""

    @property
    def log(self) -> LogView: ...

    @property
    def frames(self) -> FrameSource: ...

    @property
    def num_settled(self) -> int: ...


class LiveModel(Player, Protocol):
    """A `kvviz.model.run.ModelRun`, or a `kvviz.comparison.comparison.Comparison`, whose `runs` are its lanes.

    Used from one thread, except for logs and captured frames.
    """

    @property
    def runs(self) -> Sequence[LiveLane]: ...

    @property
    def script(self) -> Player | None: ...

    @property
    def live_header(self) -> Mapping[str, Any]:
        """Header fields that recordings don't have."""

    @property
    def num_steps(self) -> int: ...

    def header(self, index: int = 0) -> dict[str, Any]:
        """The header of a lane's log, see docs/wire.md."""

    def add_prompt(self, asked: PromptRequest) -> int:
        """Add a prompt to the waiting queue; returns its request id."""

    def fork(self, request_id: int, position: int, token_id: int | None, max_new_tokens: int | None) -> int:
        """Fork a request; returns the fork's id."""

    def set_priority(self, request_id: int, priority: int) -> None: ...

    def cancel(self, request_id: int) -> None: ...

    def reset_prefix_cache(self) -> bool:
        """Discard all cached prefixes; False if a block is in use."""

    def snapshot(self) -> Callable[[Path], None]:
        """The log up to now, as a function that writes it to a `.kvviz` file from any thread."""


class RunFactory(Protocol):
    """Creates runs of one model, each with a new log."""

    def __call__(self, settings: RunSettings, scenario: str | None = None) -> LiveModel:
        """A run with these settings, or one that plays a scenario. Raises `KvvizError` if they are invalid."""
