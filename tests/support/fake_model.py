"""A live model without weights: the real engine and log over a runner that only counts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from kvviz.config import EngineConfig
from kvviz.engine.engine import Engine
from kvviz.engine.runner import Sample, Segment, StepResult
from kvviz.engine.text import TokenText
from kvviz.errors import MissingError, RequestError
from kvviz.experiments.scenarios import find_scenario
from kvviz.log.event_log import EventLog
from kvviz.log.frames import Norms, StepFrame, not_in_step
from kvviz.log.packs import FrameSource
from kvviz.log.recording_writer import write_recording
from kvviz.model.prompt import PromptRequest
from kvviz.sources.live_model import LiveModel, RunFactory
from kvviz.sources.loader import Progress
from kvviz.sources.run_settings import RunSettings
from tests.support.page_logs import FakeRunner

NUM_LAYERS = 4
POISON = 99_999


class CountingRunner(FakeRunner):
    """The next token is the last one plus one. Checks that no two forwards overlap; a poisoned token makes it fail."""

    cache_keys = ("fake",)
    max_positions = 4_096
    vocab_size = None
    busy = threading.Lock()

    def __init__(self, forward_s: float) -> None:
        super().__init__(NUM_LAYERS)
        self.forward_s = forward_s
        self.ran: dict[int, list[int]] = {}

    def run(self, step: int, segments: Sequence[Segment]) -> StepResult:
        assert self.busy.acquire(blocking=False), "two forwards at once"
        try:
            time.sleep(self.forward_s)
            if any(POISON in segment.token_ids for segment in segments):
                raise RuntimeError("poisoned")
            self.ran[step] = [segment.request_id for segment in segments]
            return super().run(step, segments)
        finally:
            self.busy.release()

    def sample(self, segment: Segment) -> Sample:
        token_id = segment.token_ids[-1] + 1
        return Sample(token_id=token_id, candidates=[(token_id, 1.0)], code="greedy", num_considered=1)


class FakeFrames(FrameSource):
    """Packs that hold their own question as JSON, for steps that have run."""

    def __init__(self, model: FakeModel) -> None:
        self._model = model
        self.num_packed = 0

    def step_frame(self, step: int) -> StepFrame:
        raise MissingError("A fake has no tensors.", code="not_captured")

    def norms(self, request_id: int) -> list[Norms]:
        return []

    def entry(self, request_id: int, position: int, layer: int, write_seq: int) -> tuple[np.ndarray, np.ndarray]:
        raise MissingError("A fake has no tensors.", code="not_captured")

    def _pack(self, **question: Any) -> bytes:
        self.num_packed += 1
        text = json.dumps({**question, "log_id": self._model.log.log_id}).encode()
        text += b" " * (-len(text) % 4)
        return len(text).to_bytes(4, "little") + text + bytes(64)

    def _request(self, step: int, request_id: int | None) -> int:
        ran = self._model.runner.ran.get(step)
        if ran is None:
            raise MissingError(f"There is no step {step}.", code="no_such_step")
        if request_id is not None and request_id not in ran:
            raise not_in_step(step, request_id, ran)
        return ran[0] if request_id is None else request_id

    def pack_step(self, step: int, layer: int, columns: int, request_id: int | None = None) -> bytes:
        request_id = self._request(step, request_id)
        return self._pack(kind="step", step=step, layer=layer, columns=columns, request_id=request_id)

    def pack_norms(self, request_id: int) -> bytes:
        return self._pack(kind="norms", request_id=request_id)

    def pack_heads(self, step: int, layer: int, request_id: int | None = None) -> bytes:
        return self._pack(kind="heads", step=step, layer=layer, request_id=self._request(step, request_id))

    def pack_entry(self, request_id: int, position: int, layer: int, write_seq: int) -> bytes:
        if write_seq == 0:
            raise MissingError("That entry is gone since step 3.", code="gone", since_step=3)
        return self._pack(kind="entry", request_id=request_id, position=position, layer=layer, write_seq=write_seq)

    def pack_triangle(
        self, step: int, layer: int, head: int, columns: int = 512, request_id: int | None = None
    ) -> bytes:
        return self._pack(kind="triangle", step=step, layer=layer, head=head, request_id=request_id)

    def pack_scores(self, step: int, layer: int, position: int, request_id: int | None = None) -> bytes:
        return self._pack(kind="scores", step=step, layer=layer, position=position, request_id=request_id)


class FakeModel:
    """A `LiveModel` whose tokens are the characters' codes, modulo 256."""

    script = None
    num_settled = 0
    live_header: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        settings: RunSettings,
        *,
        runner: FakeRunner | None = None,
        text: TokenText | None = None,
        forward_s: float = 0.0,
        max_records: int = 100_000,
    ) -> None:
        given = settings.model_dump(exclude_none=True, exclude={"pool_bytes", "capture"})
        self.config = EngineConfig(**given)
        self.log = EventLog(self.config.num_blocks, self.config.block_size, max_records=max_records)
        self.runner: Any = runner or CountingRunner(forward_s)
        self.engine = Engine(self.config, self.runner, self.log.append, text)
        self.frames: FrameSource = FakeFrames(self)
        self.threads: set[str] = set()

    @property
    def has_work(self) -> bool:
        return self.engine.has_work

    @property
    def num_steps(self) -> int:
        return self.engine.num_steps

    @property
    def runs(self) -> list[FakeModel]:
        return [self]

    def header(self, index: int = 0) -> dict[str, Any]:
        return {
            "format": 1,
            "source": "live",
            "title": "A fake",
            "capabilities": ["frames", "commands"],
            "model": {"name": "fake", "num_layers": NUM_LAYERS, "layers": []},
            "pool": {
                "num_blocks": self.config.num_blocks,
                "block_size": self.config.block_size,
                "bytes_per_token": 64,
            },
        }

    def add_prompt(self, asked: PromptRequest) -> int:
        token_ids = [POISON] if asked.prompt == "poison" else [ord(character) % 256 for character in asked.prompt]
        if asked.continues is not None and asked.continues >= self.engine.num_requests:
            raise RequestError(f"There is no request {asked.continues} to continue.", code="no_request")
        return self.add_tokens(token_ids, asked)

    def add_tokens(self, token_ids: Sequence[int], asked: PromptRequest) -> int:
        return self.engine.add_request(
            token_ids,
            max_new_tokens=asked.max_new_tokens,
            sampling=asked.sampling,
            salt=asked.salt,
            prompt=asked.prompt,
            template=bool(asked.template),
            continues=asked.continues,
            priority=asked.priority,
            num_samples=asked.num_samples,
        )

    def fork(self, request_id: int, position: int, token_id: int | None, max_new_tokens: int | None) -> int:
        return self.engine.fork(request_id, position, token_id, max_new_tokens=max_new_tokens)

    def set_priority(self, request_id: int, priority: int) -> None:
        self.engine.reprioritise(request_id, priority)

    def step(self) -> bool:
        self.threads.add(threading.current_thread().name)
        return self.engine.step()

    def cancel(self, request_id: int) -> None:
        self.engine.cancel(request_id)

    def reset_prefix_cache(self) -> bool:
        return self.engine.reset_prefix_cache()

    def snapshot(self) -> Callable[[Path], None]:
        lines = self.log.encoded(-1, 10**9)
        return lambda path: write_recording(path, self.header(), lines)


def fake_load(forward_s: float = 0.0, delay_s: float = 0.0, max_records: int = 100_000) -> Any:
    """What `create_app` takes as `load`."""

    def load(progress: Progress) -> RunFactory:
        for percent in range(0, 100, 20):
            progress("loading", percent / 100, f"{percent} %")
            time.sleep(delay_s / 5)

        def open_model(settings: RunSettings, scenario: str | None = None) -> LiveModel:
            if scenario is not None:
                find_scenario(scenario)
            return FakeModel(settings, forward_s=forward_s, max_records=max_records)

        return open_model

    return load
