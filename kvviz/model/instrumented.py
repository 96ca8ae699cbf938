"""An instrumented model: connected to kvviz, measured, and checked against its plain forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from kvviz.config import EngineConfig
from kvviz.engine.runner import Segment
from kvviz.errors import KvvizError, ModelError
from kvviz.model.attention import AttentionDoor, Observation
from kvviz.model.forward import ModelRunner
from kvviz.model.geometry import LayerGeometry, ModelGeometry
from kvviz.model.loading import LoadedModel
from kvviz.model.paged_cache import SegmentPlan, StepPlan

NUM_CHECK_TOKENS = 24
CHECK_BLOCK_SIZE = 4
#: Maximum difference of logits, as a share of their range.
MAX_DIFFERENCE = {torch.float64: 1e-3, torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 5e-2}


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """Result of the self-check: the largest difference of logits, and the range of the plain ones."""

    num_tokens: int
    max_difference: float
    range: float


class InstrumentedModel:
    """A transformers model that uses kvviz's cache and attention until `close`.

    Raises `ModelError` if the model isn't supported, or if its logits through kvviz differ from its own by more than
    `MAX_DIFFERENCE`.
    """

    def __init__(self, model: PreTrainedModel, *, name: str, fingerprint: str) -> None:
        self.model = model
        self.name = name
        self.fingerprint = fingerprint
        self.door = AttentionDoor(model)
        token_ids = _check_tokens(model)
        want = _own_logits(model, token_ids)
        self.door.open()
        try:
            self.geometry = _measure(self.door, token_ids)
            self.self_check = self._check(token_ids, want)
        except KvvizError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise ModelError(
                f"{type(model).__name__} needs more from its cache than K and V, such as a recurrent state or an "
                f"index ({type(error).__name__}: {_first_line(error)}); choose another model.",
                code="not_supported",
            ) from error

    @classmethod
    def of(cls, loaded: LoadedModel) -> InstrumentedModel:
        return cls(loaded.model, name=loaded.name, fingerprint=loaded.fingerprint)

    def close(self) -> None:
        self.door.close()

    def _check(self, token_ids: list[int], want: torch.Tensor) -> SelfCheck:
        """Compare two chunks and one decode through shuffled blocks with the plain forward pass, at all positions."""
        num_blocks = -(-NUM_CHECK_TOKENS // CHECK_BLOCK_SIZE)
        config = EngineConfig(num_blocks=num_blocks, block_size=CHECK_BLOCK_SIZE)
        runner = ModelRunner(self.door, self.geometry, config, fingerprint="", keep_logits=True)
        runner.capture = False
        table = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(0)).tolist()
        got: list[torch.Tensor] = []
        for start, stop in ((0, 13), (13, NUM_CHECK_TOKENS - 1), (NUM_CHECK_TOKENS - 1, NUM_CHECK_TOKENS)):
            runner.run(0, [_segment(token_ids, start, stop, table)])
            assert runner.logits is not None
            got.append(runner.logits.double())
        difference = (torch.cat(got) - want).abs().max().item()
        value_range = (want.max() - want.min()).item()
        check = SelfCheck(NUM_CHECK_TOKENS, difference, value_range)
        limit = MAX_DIFFERENCE.get(next(self.model.parameters()).dtype, 1e-3)
        if not difference <= limit * value_range:
            raise ModelError(
                f"The logits of {type(self.model).__name__} change with a paged cache: they differ by "
                f"{difference:.2g}, and {limit * value_range:.2g} is allowed ({_explain(self.model)}); choose another "
                "model.",
                code="self_check",
                max_difference=difference,
                range=value_range,
            )
        return check


def _check_tokens(model: PreTrainedModel) -> list[int]:
    vocabulary = int(model.config.get_text_config().vocab_size)
    generator = torch.Generator().manual_seed(0)
    low = min(3, vocabulary - 1)
    return torch.randint(low, vocabulary, (NUM_CHECK_TOKENS,), generator=generator).tolist()


@torch.inference_mode()
def _own_logits(model: PreTrainedModel, token_ids: list[int]) -> torch.Tensor:
    """Logits [n, vocabulary] of the unmodified model, float64."""
    try:
        logits: torch.Tensor = model(input_ids=torch.tensor([token_ids]), use_cache=False).logits[0]
    except Exception as error:
        raise ModelError(
            f"{type(model).__name__} doesn't run on text tokens alone ({type(error).__name__}: {_first_line(error)}); "
            "choose a causal language model.",
            code="not_supported",
        ) from error
    return logits.double()


def _segment(token_ids: list[int], start: int, stop: int, table: list[int]) -> Segment:
    slots = [table[p // CHECK_BLOCK_SIZE] * CHECK_BLOCK_SIZE + p % CHECK_BLOCK_SIZE for p in range(start, stop)]
    return Segment(
        request_id=0,
        token_ids=token_ids[start:stop],
        start=start,
        slots=slots,
        block_table=table,
        length=stop,
        sampling=None,
    )


class _ProbeCache(Cache):
    """Records the shapes that `update` receives and returns the entries unchanged."""

    def __init__(self, plan: StepPlan) -> None:
        super().__init__(layer_class_to_replicate=DynamicLayer)
        self.plan = plan
        self.shapes: list[tuple[int, torch.Size, torch.Size]] = []

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.shapes.append((layer_idx, key_states.shape, value_states.shape))
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0


@torch.inference_mode()
def _measure(door: AttentionDoor, token_ids: list[int]) -> ModelGeometry:
    """Measure the geometry in one pass over a few tokens."""
    num_new = 2
    nowhere = torch.zeros(num_new, dtype=torch.long)
    plan = StepPlan(nowhere, nowhere, nowhere, [SegmentPlan(0, num_new, 0, num_new, 0)])
    probe = _ProbeCache(plan)
    door.begin(probe, capture_rows=False, observing=True)
    door.model(
        input_ids=torch.tensor([token_ids[:num_new]]),
        position_ids=torch.arange(num_new)[None],
        cache=probe,
        use_cache=True,
    )
    observations = door.capture.observations
    if not observations or not probe.shapes:
        raise ModelError(
            f"{type(door.model).__name__} caches no K and V that kvviz can observe ({len(probe.shapes)} cache calls, "
            f"{len(observations)} attention calls); choose another model.",
            code="no_attention_interface",
        )
    stored = {layer_idx: (key, value) for layer_idx, key, value in probe.shapes}
    if len(stored) != len(probe.shapes) or not set(stored) <= set(range(len(observations))):
        raise ModelError(
            f"{type(door.model).__name__} writes {len(probe.shapes)} caches in {len(observations)} attention layers, "
            "which kvviz doesn't support; choose another model.",
            code="not_supported",
        )
    layers = tuple(
        _layer(index, observation, stored.get(index), door) for index, observation in enumerate(observations)
    )
    return ModelGeometry(layers=layers, element_bytes=next(door.model.parameters()).element_size())


def _layer(
    index: int, seen: Observation, stored: tuple[torch.Size, torch.Size] | None, door: AttentionDoor
) -> LayerGeometry:
    key_shape = (stored[0][1], stored[0][3]) if stored else (0, 0)
    value_shape = (stored[1][1], stored[1][3]) if stored else (0, 0)
    latent = stored is not None and key_shape != (seen.key_shape[1], seen.key_shape[3])
    chunk = door.chunk_of(index)
    return LayerGeometry(
        index=index,
        kind="sliding" if seen.window else "chunked" if chunk else "full",
        window=seen.window,
        chunk=chunk,
        cache="none" if stored is None else "latent" if latent else "kv",
        key_shape=key_shape,
        value_shape=value_shape,
        query_heads=seen.query_shape[1],
        kv_heads=key_shape[0] if stored else seen.key_shape[1],
        scaling=seen.scaling,
        softcap=seen.softcap,
        sinks=seen.sinks,
    )


def _explain(model: PreTrainedModel) -> str:
    if not getattr(model.config.get_text_config(), "is_decoder", True):
        return "its attention is bidirectional, so nothing can be cached"
    return "its tokens depend on more than K and V of earlier tokens"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "no details")
