"""The attention door: an attention function registered with transformers that splits each step by sequence.

Each sequence gets its own causal (windowed, chunked) mask and the model's own attention, including soft caps, sinks,
scaling and grouped heads. The function is registered in `AttentionInterface` only, so transformers provides no mask and
ours is the only one.

There is one exact optimisation. If the model's eager attention is identical, instruction by instruction, to Llama's, it
is computed without repeating KV heads, in tiles of queries, and with the single queries of several sequences batched.

Dimension key: H query heads · h KV heads · g = H / h · n new tokens · T tokens read by one sequence · P tokens read for
all sequences · S sequences · d head dimension.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface, PreTrainedModel
from transformers.models.llama import modeling_llama

from kvviz.errors import ModelError
from kvviz.model.attention_kernels import batched_attention, grouped_attention, hidden_keys
from kvviz.model.paged_cache import SegmentPlan, StepPlan

_numbers = itertools.count(1)


@dataclass(slots=True)
class Observation:
    """A layer's attention call, from which the model's geometry is derived."""

    module: torch.nn.Module
    query_shape: tuple[int, ...]
    key_shape: tuple[int, ...]
    scaling: float | None
    window: int | None
    softcap: float | None
    sinks: bool


@dataclass(slots=True)
class Capture:
    """Captured data of one forward pass, by layer.

    `rows[i][s]`: weights of the last query of sequence s in layer i, [H, T] over the tokens it read. `queries[i]`:
    queries of all new tokens, [H, n, d]. `read_ns[i]`: when the layer's attention finished.
    """

    rows: list[list[torch.Tensor]] = field(default_factory=list)
    queries: list[torch.Tensor] = field(default_factory=list)
    read_ns: list[int] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)


class Planned(Protocol):
    """A cache with the plan of the current forward pass."""

    plan: StepPlan


class Forgetting(Protocol):
    """The entries kept of each sequence, and a sink for the attention they received."""

    @property
    def num_watched(self) -> int:
        """How many of a sequence's last queries to watch; -1: all."""

    def gone(self, layer: int, segment: SegmentPlan) -> torch.Tensor | None:
        """Which of the entries read are forgotten, [h, T]; None if there are none."""

    def shifts(self, layer: int, segment: SegmentPlan) -> torch.Tensor | None:
        """Number of positions by which to rotate each key read, [T]; None if there are none."""

    def turn(self, keys: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
        """Rotate keys [..., T, d] by `shifts` [T] positions."""

    def watch(self, layer: int, segment: SegmentPlan, sums: torch.Tensor) -> None:
        """Receive the weights of the watched queries, summed over them: [H, T]."""


class _DoubleSoftmax(TorchFunctionMode):
    """Computes softmax of float64 in float64, like sdpa; the models' eager functions cast down to float32."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.nn.functional.softmax and args and args[0].dtype == torch.float64:
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


class AttentionDoor:
    """A registered attention function for one model. `open` installs it, `close` restores the model's own.

    Raises `ModelError` if the model doesn't support attention functions.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.name = f"kvviz_{next(_numbers)}"
        self.own_implementation: str = model.config._attn_implementation
        self.capture_rows = True
        self.observing = False
        self.capture = Capture()
        self._cache: Planned | None = None
        self._forgetting: Forgetting | None = None
        self._most_window: int | None = None
        self._layer = 0
        self._grouped: dict[type, bool] = {}
        config = model.config.get_text_config()  # read once, since config lookups are slow
        self._kinds: tuple[str, ...] = tuple(getattr(config, "layer_types", None) or ())
        self._sliding_window = _optional_int(getattr(config, "sliding_window", None))
        self._chunk_size = _optional_int(getattr(config, "attention_chunk_size", None))

    def open(self) -> None:
        AttentionInterface.register(self.name, self.attend)
        self.model.set_attn_implementation(self.name)
        if self.model.config._attn_implementation != self.name:
            raise ModelError(
                f"{type(self.model).__name__} has no attention interface, so its attention can't be observed; "
                "choose another model.",
                code="no_attention_interface",
            )

    def close(self) -> None:
        if self.model.config._attn_implementation == self.name:
            self.model.set_attn_implementation(self.own_implementation)
        AttentionInterface._global_mapping.pop(self.name, None)

    def begin(
        self,
        cache: Planned,
        *,
        capture_rows: bool,
        observing: bool = False,
        window: int | None = None,
        forgetting: Forgetting | None = None,
    ) -> None:
        """Prepare for one forward pass over `cache`, whose plan is set. `observing` also records each layer's call.

        `window` limits how far any layer sees. `forgetting` hides forgotten entries.
        """
        self._cache = cache
        self._most_window = window
        self._forgetting = forgetting
        self._layer = 0
        self.observing = observing
        self.capture_rows = capture_rows
        self.capture = Capture()

    def attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """Compute the step's attention: query [1, H, n, d], key and value [1, h, P, d] → [1, n, H, d]."""
        cache = self._cache
        assert cache is not None, "call begin() before a forward pass"
        if self.observing:
            self._observe(module, query, key, scaling, kwargs)
        window = self._window(kwargs)
        even = cache.plan.even
        if even and self._forgetting is None and scaling is not None and self._can_group(module, query, key):
            output, weights = batched_attention(query, key, value, even, window, scaling)
            lengths = [segment.num_tokens for segment in cache.plan.segments]
            return self._done(query, output, [row[:, :length] for row, length in zip(weights, lengths, strict=True)])
        outputs: list[torch.Tensor] = []
        rows: list[torch.Tensor] = []
        query_at = 0
        for segment in cache.plan.segments:
            output, row = self._attend_one(
                module,
                query[:, :, query_at : query_at + segment.num_new],
                key[:, :, segment.read_at : segment.read_at + segment.num_tokens],
                value[:, :, segment.read_at : segment.read_at + segment.num_tokens],
                segment,
                window,
                scaling,
                kwargs,
            )
            outputs.append(output)
            rows.append(row)
            query_at += segment.num_new
        return self._done(query, outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1), rows)

    def _done(self, query: torch.Tensor, output: torch.Tensor, rows: list[torch.Tensor]) -> tuple[torch.Tensor, None]:
        """Store the captured data of a layer and return its output."""
        if self.capture_rows:
            self.capture.rows.append(rows)
            self.capture.queries.append(query[0])
        self._layer += 1
        self.capture.read_ns.append(time.perf_counter_ns())
        return output, None

    def _attend_one(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        segment: SegmentPlan,
        window: int | None,
        scaling: float | None,
        kwargs: dict[str, Any],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        gone = sums = None
        if self._forgetting is not None:
            gone = self._forgetting.gone(self._layer, segment)
            shifts = self._forgetting.shifts(self._layer, segment)
            if shifts is not None:
                key = self._forgetting.turn(key, shifts)
        if scaling is not None and self._can_group(module, query, key):
            watched = self._num_watched(segment)
            if watched:
                sums = torch.zeros(query.shape[1], segment.num_tokens, dtype=torch.float32)
            output, row = grouped_attention(query, key, value, window, scaling, segment.positions, gone, sums, watched)
            self._watch(segment, sums)
            return output, row
        key, value = _as_the_model_groups(module, query, key, value)
        mask = self._mask(segment, window, query, gone)
        arguments = {**kwargs, "scaling": scaling, "dropout": 0.0}
        eager = _eager_of(module)
        if query.dtype == torch.float64 and self.own_implementation == "sdpa":
            with _DoubleSoftmax():
                output, weights = eager(module, query, key, value, mask, **arguments)
        else:
            output, weights = eager(module, query, key, value, mask, **arguments)
        weights = weights[0, :, :, : segment.num_tokens]
        if watched := self._num_watched(segment):
            self._watch(segment, weights[:, -watched:].sum(1, dtype=torch.float32))
        return output, weights[:, -1]

    def _num_watched(self, segment: SegmentPlan) -> int:
        if self._forgetting is None:
            return 0
        wanted = self._forgetting.num_watched
        return segment.num_new if wanted < 0 else min(wanted, segment.num_new)

    def _watch(self, segment: SegmentPlan, sums: torch.Tensor | None) -> None:
        if self._forgetting is not None:
            self._forgetting.watch(self._layer, segment, torch.zeros(0) if sums is None else sums)

    def _mask(
        self, segment: SegmentPlan, window: int | None, query: torch.Tensor, gone: torch.Tensor | None
    ) -> torch.Tensor:
        """Additive mask [1, 1 or H, n, T]: causal, limited to window and chunk, hiding forgotten entries."""
        hidden = hidden_keys(segment.num_new, segment.num_tokens, window, segment.positions)
        chunk = self.chunk_of(self._layer)
        if chunk:
            asks = torch.arange(segment.start, segment.start + segment.num_new)[:, None]
            is_read = torch.arange(segment.read_start, segment.read_start + segment.num_tokens)[None]
            hidden |= (is_read if segment.positions is None else segment.positions[None]) // chunk != asks // chunk
        hidden = hidden[None]
        if gone is not None:
            hidden = hidden | gone.repeat_interleave(query.shape[1] // len(gone), 0)[:, None]
        mask = torch.zeros(hidden.shape, dtype=query.dtype)
        return mask.masked_fill(hidden, torch.finfo(query.dtype).min)[None]

    def chunk_of(self, layer: int) -> int | None:
        """Chunk length of a chunked-attention layer, or None for other layers."""
        return self._chunk_size if self._kind(layer) == "chunked_attention" else None

    def _kind(self, layer: int) -> str:
        return self._kinds[layer] if layer < len(self._kinds) else ""

    def _window(self, kwargs: dict[str, Any]) -> int | None:
        """The layer's own window or the overall limit, whichever is smaller."""
        own = self._own_window(kwargs)
        return min((window for window in (own, self._most_window) if window), default=None)

    def _own_window(self, kwargs: dict[str, Any]) -> int | None:
        """The layer's own window: the one passed, or else the one in the config."""
        if "sliding_window" in kwargs:
            window = kwargs["sliding_window"]
            return int(window) if window else None
        return self._sliding_window if self._kind(self._layer) == "sliding_attention" else None

    def _observe(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        scaling: float | None,
        kwargs: dict[str, Any],
    ) -> None:
        self.capture.observations.append(
            Observation(
                module,
                tuple(query.shape),
                tuple(key.shape),
                scaling,
                self._window(kwargs),
                kwargs.get("softcap"),
                kwargs.get("s_aux") is not None or getattr(module, "sinks", None) is not None,
            )
        )

    def _can_group(self, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor) -> bool:
        kind = type(module)
        if kind not in self._grouped:
            self._grouped[kind] = _same_code(_eager_of(module), modeling_llama.eager_attention_forward)
        return self._grouped[kind] and self.chunk_of(self._layer) is None and query.shape[1] % key.shape[1] == 0


def _as_the_model_groups(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values with the heads that the module repeats itself, if the cache stores a different number."""
    group = getattr(module, "num_key_value_groups", None)
    wanted = query.shape[1] // group if isinstance(group, int) else key.shape[1]
    if key.shape[1] in (wanted, 1):
        return key.expand(-1, wanted, -1, -1), value.expand(-1, wanted, -1, -1)
    return key[:, :: key.shape[1] // wanted], value[:, :: value.shape[1] // wanted]


def _eager_of(module: torch.nn.Module) -> Callable[..., Any]:
    """The eager attention function defined in the model's own file."""
    for kind in type(module).__mro__:
        module_of_kind = sys.modules.get(kind.__module__)
        function: Callable[..., Any] | None = getattr(module_of_kind, "eager_attention_forward", None)
        if function is not None:
            return function
    raise ModelError(
        f"{type(module).__name__} has no eager attention function; choose another model.",
        code="no_attention_interface",
    )


def _optional_int(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and value else None


def _same_code(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether two functions have the same instructions, constants and names."""
    a, b = one.__code__, other.__code__
    return (a.co_code, a.co_consts[1:], a.co_names, a.co_varnames) == (
        b.co_code,
        b.co_consts[1:],
        b.co_names,
        b.co_varnames,
    )
