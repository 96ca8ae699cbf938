"""What a live source needs of a model: an engine with its log and frames, driven from one thread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from kvviz.events import SamplingParams
from kvviz.log.frames import FrameSource
from kvviz.sources.controls import RunSettings
from kvviz.sources.lane_source import LaneLog
from kvviz.sources.source import LogView


class LiveModel(Protocol):
    """A model with its engine, tokenizer, log and frames; `kvviz.model.run.ModelRun` is the real one.

    Used from one thread, but for `log` and those frames that have been captured.
    """

    @property
    def log(self) -> LogView:
        """Its events."""
        ...

    @property
    def frames(self) -> FrameSource:
        """Its tensors."""
        ...

    @property
    def lanes(self) -> tuple[LaneLog, ...]:
        """Of a comparison, the lanes after the first."""
        ...

    @property
    def has_work(self) -> bool:
        """Whether a step would compute anything."""
        ...

    @property
    def num_steps(self) -> int:
        """Steps that have run."""
        ...

    def header(self) -> dict[str, Any]:
        """The header of docs/wire.md."""
        ...

    def add_prompt(
        self,
        prompt: str,
        *,
        template: bool | None = None,
        max_new_tokens: int = 64,
        sampling: SamplingParams | None = None,
        salt: str | None = None,
        continues: int | None = None,
        priority: int = 0,
        num_samples: int = 1,
        needle: bool = False,
    ) -> int:
        """Put a prompt in the waiting line; the answer is its request id."""
        ...

    def fork(self, request_id: int, position: int, token_id: int | None, max_new_tokens: int | None) -> int:
        """Branch off a request; the answer is the branch's id."""
        ...

    def set_priority(self, request_id: int, priority: int) -> None:
        """Give an unfinished request another priority."""
        ...

    def step(self) -> bool:
        """Run one step; False when there is no work."""
        ...

    def cancel(self, request_id: int) -> None:
        """End a request."""
        ...

    def reset_prefix_cache(self) -> bool:
        """Forget every cached prefix; False while a block is in use."""
        ...

    def snapshot(self) -> Callable[[Path], None]:
        """What has happened up to now, as something that writes itself to a `.kvviz` file in any thread."""
        ...

    def close(self) -> None:
        """Let go of the pool."""
        ...


class OpenModel(Protocol):
    """Makes model sessions with a new log each."""

    def __call__(self, settings: RunSettings, scenario: str | None = None) -> LiveModel:
        """A session with these settings, or one that plays a scenario. Raises `KvvizError` when they do not do."""
        ...
