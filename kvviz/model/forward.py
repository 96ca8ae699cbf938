"""The model runner: one forward pass per step, over one flat batch with explicit positions."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from kvviz.config import EngineConfig
from kvviz.engine.runner import Forgotten, Sample, Segment, StepResult
from kvviz.events import SamplingParams
from kvviz.model.attention import AttentionDoor, Capture
from kvviz.model.geometry import ModelGeometry
from kvviz.model.paged_cache import PagedCache, StepPlan
from kvviz.model.sampler import Sampler
from kvviz.model.storage import Storage


@dataclass(slots=True)
class StepCapture:
    """A captured step for a frame store: its segments, the captured tensors and the cache they were written to."""

    step: int
    segments: Sequence[Segment]
    capture: Capture
    cache: PagedCache


class ModelRunner:
    """Runs an instrumented model over its own pool; implements `kvviz.engine.Runner`.

    - `on_step` is called with a `StepCapture` after each pass, unless `capture` is off.
    - `keep_logits`: store the logits of all tokens of the step in `logits` [n, vocabulary]; otherwise only the logits
      needed for sampling are computed.
    - `storage` (None: as the model caches them): how entries are stored; `geometry` is what attention then reads.
    - `forced` [request]: the token that the request's next sample must be.
    - `sampled` [request]: the logits from which the last step sampled.
    """

    def __init__(
        self,
        door: AttentionDoor,
        geometry: ModelGeometry,
        config: EngineConfig,
        *,
        fingerprint: str,
        on_step: Callable[[StepCapture], None] | None = None,
        keep_logits: bool = False,
        storage: Storage | None = None,
    ) -> None:
        self.model: PreTrainedModel = door.model
        self.door = door
        self.geometry = geometry
        self.storage = storage or Storage()
        self.capture = True
        self.forced: dict[int, int] = {}
        self.sampled: dict[int, torch.Tensor] = {}
        self.logits: torch.Tensor | None = None
        self.sampler = Sampler(config.seed, config.num_candidates)
        parameter = next(self.model.parameters())
        self.cache = self.storage.cache(geometry, config, parameter.dtype, parameter.device)
        self.forgetting_mask = self.storage.forgetting_mask(config.block_size)
        self.on_step = on_step
        self._keep_logits = keep_logits
        self._picks_logits = "logits_to_keep" in inspect.signature(self.model.forward).parameters
        self._keys = (
            f"weights:{fingerprint}",
            f"dtype:{str(parameter.dtype).removeprefix('torch.')}",
            f"codec:{self.storage.codec_key}",
            f"windows:{'/'.join(str(layer.window or layer.chunk or 0) for layer in geometry.layers)}",
        )

    @property
    def window(self) -> int | None:
        return self.geometry.window

    @property
    def cache_keys(self) -> tuple[str, ...]:
        return self._keys

    @property
    def max_positions(self) -> int | None:
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return int(limit) if limit else None

    @property
    def vocab_size(self) -> int | None:
        weight = self.model.get_input_embeddings().weight
        assert isinstance(weight, torch.Tensor)
        return weight.shape[0]

    def run(self, step: int, segments: Sequence[Segment]) -> StepResult:
        wanted = [segment.sampling is not None for segment in segments]
        self.sampled = {}
        plan = StepPlan.of(segments, self.cache.block_size)
        self.cache.begin(plan)
        if self.forgetting_mask:
            self.forgetting_mask.begin(segments)
        self.door.begin(
            self.cache, capture_rows=self.capture, window=self.storage.window, forgetting=self.forgetting_mask
        )
        began, ended, logits = self._forward(segments)
        forgotten: dict[int, Forgotten] = {}
        if self.forgetting_mask:
            forgotten = self.forgetting_mask.settle(plan.segments, self._kv_heads)
            ended = time.perf_counter_ns()
        samples: list[Sample | None] = [None] * len(segments)
        for index, (segment, row) in enumerate(zip(segments, logits, strict=True)):
            if wanted[index] and segment.sampling is not None:
                samples[index] = self._sample(segment.request_id, row, segment.sampling)
        if self.capture and self.on_step:
            self.on_step(StepCapture(step, segments, self.door.capture, self.cache))
        return StepResult(
            samples=samples,
            layers=self.cache.written_layers,
            layer_us=[(at - began) // 1_000 for at in self.cache.written_ns],
            read_us=[(at - began) // 1_000 for at in self.door.capture.read_ns],
            forward_us=(ended - began) // 1_000,
            forgotten=forgotten,
        )

    def _sample(self, request_id: int, logits: torch.Tensor, params: SamplingParams) -> Sample:
        self.sampled[request_id] = logits
        token_id = self.forced.pop(request_id, None)
        if token_id is None:
            return self.sampler.sample(request_id, logits, params)
        own = self.sampler.sample(request_id, logits, SamplingParams())
        return Sample(token_id=token_id, candidates=own.candidates, code="forced", num_considered=1)

    @property
    def _kv_heads(self) -> dict[int, int]:
        return {layer.index: layer.key_shape[0] for layer in self.geometry.stored_layers}

    def copy_block(self, source: int, target: int) -> tuple[int, int]:
        return self._timed(lambda: self.cache.copy_block(source, target))

    def store_blocks(self, block_ids: Sequence[int], host_ids: Sequence[int]) -> tuple[int, int]:
        return self._timed(lambda: self.cache.store_blocks(block_ids, host_ids))

    def load_blocks(self, host_ids: Sequence[int], block_ids: Sequence[int]) -> tuple[int, int]:
        return self._timed(lambda: self.cache.load_blocks(host_ids, block_ids))

    @staticmethod
    def _timed(move: Callable[[], int]) -> tuple[int, int]:
        began = time.perf_counter_ns()
        num_bytes = move()
        return num_bytes, (time.perf_counter_ns() - began) // 1_000

    def fork(self, parent_id: int, request_id: int) -> None:
        self.cache.fork(parent_id, request_id)
        if self.forgetting_mask:
            self.forgetting_mask.fork(parent_id, request_id)

    def forget(self, request_id: int) -> None:
        self.sampler.forget(request_id)
        self.cache.forget(request_id)
        if self.forgetting_mask:
            self.forgetting_mask.forget(request_id)
        self.forced.pop(request_id, None)

    @torch.inference_mode()
    def _forward(self, segments: Sequence[Segment]) -> tuple[int, int, list[torch.Tensor]]:
        """Start and end of the model's forward pass, in ns; logits [vocabulary] of each segment's last new token."""
        ids = torch.tensor([[token_id for segment in segments for token_id in segment.token_ids]])
        positions = torch.tensor([[p for segment in segments for p in range(segment.start, segment.length)]])
        ends = torch.tensor([len(segment.token_ids) for segment in segments]).cumsum(0) - 1
        pick: dict[str, Any] = {"logits_to_keep": ends} if self._picks_logits and not self._keep_logits else {}
        began = time.perf_counter_ns()
        output = self.model(input_ids=ids, position_ids=positions, cache=self.cache, use_cache=True, **pick)
        ended = time.perf_counter_ns()
        logits: torch.Tensor = output.logits[0]
        if self._keep_logits:
            self.logits = logits
        return began, ended, list(logits if pick else logits[ends])
