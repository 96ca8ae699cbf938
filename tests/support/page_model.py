"""A live model for tests of the page: the real engine and server, a runner without weights, made-up tensors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kvviz.engine.runner import Segment, StepResult
from kvviz.errors import MissingError
from kvviz.log.frames import Norms, StepFrame, not_in_step
from kvviz.log.packs import FrameSource, quantise_rows
from kvviz.log.recording_writer import write_recording
from kvviz.model.prompt import PromptRequest
from kvviz.sources.live import LiveModel, RunFactory
from kvviz.sources.loader import Progress
from kvviz.sources.run_settings import RunSettings
from tests.support.fake_model import FakeModel
from tests.support.page_logs import FakeRunner, WordText, header

NUM_LAYERS = 6
NUM_HEADS = 6
CAPABILITIES = ["frames", "entries", "triangle", "commands"]


class NotingRunner(FakeRunner):
    """Notes what it ran, for the frames, and takes `forward_s` for a step."""

    def __init__(self, num_layers: int, forward_s: float) -> None:
        super().__init__(num_layers)
        self.forward_s = forward_s
        self.ran: dict[int, dict[int, Segment]] = {}

    def run(self, step: int, segments: Sequence[Segment]) -> StepResult:
        time.sleep(self.forward_s)
        if segments:
            self.ran[step] = {segment.request_id: segment for segment in segments}
        return super().run(step, segments)


class MadeUpFrames(FrameSource):
    """Tensors from a seeded generator, shaped as the steps; an entry is gone when its slot was written again."""

    def __init__(self, model: PageModel) -> None:
        self._model = model
        self.log_id = model.log.log_id

    def step_frame(self, step: int, request_id: int | None = None) -> StepFrame:
        ran = self._model.runner.ran.get(step)
        if ran is None:
            raise MissingError(f"There is no step {step}.", code="no_such_step")
        if request_id is not None and request_id not in ran:
            raise not_in_step(step, request_id, ran)
        segment = next(iter(ran.values())) if request_id is None else ran[request_id]
        random = np.random.default_rng([step, segment.request_id])
        num_layers = self._model.runner.num_layers
        weights = random.random((num_layers, NUM_HEADS, segment.length)) ** 8
        weights[..., 0] += weights.sum(axis=-1)
        heads, scale = quantise_rows(weights / weights.sum(axis=-1, keepdims=True))
        num_new = segment.length - segment.start
        norms = random.uniform(2, 9, (2, num_layers, num_new)).astype(np.float16)
        return StepFrame(
            step=step,
            request_id=segment.request_id,
            start=segment.start,
            num_new=num_new,
            num_tokens=segment.length,
            heads=heads,
            heads_scale=scale,
            key_norm=norms[0],
            value_norm=norms[1],
        )

    def norms(self, request_id: int) -> list[Norms]:
        ran = self._model.runner.ran
        return [self.step_frame(step, request_id).norms for step, parts in list(ran.items()) if request_id in parts]

    def entry(self, request_id: int, position: int, layer: int, write_seq: int) -> tuple[np.ndarray, np.ndarray]:
        writes: dict[int, tuple[int, int]] = {}
        slot, step = -1, 0
        for seq, _, event in self._model.log.records():
            if event["type"] == "step_started":
                step = event["step"]
            if event["type"] == "kv_written":
                for place, written in zip(event["positions"], event["slots"], strict=True):
                    writes[written] = (seq, step)
                    if seq == write_seq and place == position:
                        slot = written
        if slot < 0:
            raise MissingError("There is no such entry.", code="no_such_entry")
        if writes[slot][0] != write_seq:
            since = writes[slot][1]
            raise MissingError(f"That entry is gone since step {since}.", code="gone", since_step=since)
        key, value = np.random.default_rng([request_id, position, layer]).normal(size=(2, 2, 8))
        return key, value

    def triangle(self, step: int, layer: int, head: int, request_id: int | None = None) -> tuple[int, np.ndarray]:
        frame = self.step_frame(step, request_id)
        weights = np.random.default_rng([step, layer, head]).random((frame.num_new, frame.num_tokens))
        for query in range(frame.num_new):
            weights[query, frame.start + query + 1 :] = 0
        return frame.start, weights / weights.sum(axis=-1, keepdims=True)

    def scores(self, step: int, layer: int, position: int, request_id: int | None = None) -> dict[str, np.ndarray]:
        dot = np.random.default_rng([step, layer, position]).normal(size=NUM_HEADS)
        return {"dot": dot, "scaled": dot * 0.35, "weight": np.full(NUM_HEADS, 0.1)}


class PageModel(FakeModel):
    """A `LiveModel` with a token per character; `template` puts special tokens around the prompt."""

    def __init__(self, settings: RunSettings, *, forward_s: float = 0.0, num_layers: int = NUM_LAYERS) -> None:
        super().__init__(settings, runner=NotingRunner(num_layers, forward_s), text=WordText())
        self.frames = MadeUpFrames(self)
        self._histories: dict[int, list[int]] = {}

    def header(self, index: int = 0) -> dict[str, Any]:
        made = header(self.config, self.runner.num_layers)
        made["model"]["has_template"] = True
        return {**made, "capabilities": CAPABILITIES, "title": "A live test"}

    def add_prompt(self, asked: PromptRequest) -> int:
        words = [20 + ord(character) % 900 for character in asked.prompt]
        turn = [6, *words, 6] if asked.template else words
        token_ids = self._histories.get(-1 if asked.continues is None else asked.continues, []) + turn
        request_id = self.add_tokens(token_ids, asked)
        self._histories[request_id] = token_ids
        return request_id

    def snapshot(self) -> Callable[[Path], None]:
        lines = self.log.encoded(-1, 10**9)
        return lambda path: write_recording(path, {**self.header(), "capabilities": []}, lines)


def page_load(forward_s: float = 0.0, gate: threading.Event | None = None, num_layers: int = NUM_LAYERS) -> Any:
    """What `create_app` takes as `load`; it is at 43 % until `gate` is set."""

    def load(progress: Progress) -> RunFactory:
        progress("loading", 0.43, "Loading")
        if gate:
            gate.wait(60)

        def open_model(settings: RunSettings, scenario: str | None = None) -> LiveModel:
            return PageModel(settings, forward_s=forward_s, num_layers=num_layers)

        return open_model

    return load
