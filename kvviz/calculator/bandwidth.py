"""Upper bound on decode speed: the bytes that a step reads, divided by the memory bandwidth.

A step reads all weights once for the whole batch, and every cached entry of each sequence. Writes, activations,
transfers between GPUs and computation aren't counted, so the result is an upper bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvviz.calculator.models import ListedModel
from kvviz.calculator.settings import MAX_BATCH, find_dtype
from kvviz.errors import ConfigError

#: The smallest context of a series, in tokens. Each next one is twice as long.
FIRST_CONTEXT = 128
#: The longest context that searches try, in tokens.
_FAR = 2**50


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """The bytes that one model's decode steps read.

    - `fixed_bytes`: weights that every step reads.
    - `expert_bytes`: weights of all routed experts. A token uses the fraction `expert_share` of them.
    - `layers`: pairs of cache bytes per token and window in tokens (None: no window).
    - `state_bytes`: fixed state per sequence, independent of its length.
    - `max_context`: in tokens.
    """

    model_id: str
    name: str
    fixed_bytes: int
    expert_bytes: int = 0
    expert_share: float = 1.0
    layers: tuple[tuple[int, int | None], ...]
    state_bytes: int = 0
    max_context: int
    source: str
    checked: str | None = None

    @classmethod
    def of_model(cls, model: ListedModel, dtype: str) -> Reads:
        """A listed model with weights and cache in `dtype`.

        Raises `ConfigError` for an unknown dtype or parameter count.
        """
        per_token = model.bytes_per_token(dtype)
        weights = model.parameters
        if weights is None:
            raise ConfigError(f"The parameter count of {model.name} is unknown; choose another model.", setting="model")
        stored = find_dtype(dtype)
        expert_bytes = stored.weight_bytes(weights.experts)
        return cls(
            model_id=model.model_id,
            name=model.name,
            fixed_bytes=stored.weight_bytes(weights.total) - expert_bytes,
            expert_bytes=expert_bytes,
            expert_share=weights.share,
            layers=((per_token, None),),
            max_context=model.max_context,
            source=model.source,
            checked=model.checked,
        )

    @classmethod
    def of_header(cls, header: Mapping[str, Any]) -> Reads | None:
        """The model of a run, from its header (docs/wire.md); None for a run without a model.

        All of its weights count as read, since a header doesn't list experts separately.
        """
        model = header.get("model") or {}
        layers = tuple((each["bytes_per_token"], _reach(each)) for each in model.get("layers", ()))
        if not model.get("weight_bytes") or not sum(per_token for per_token, _ in layers):
            return None
        return cls(
            model_id="run",
            name=model["name"],
            fixed_bytes=model["weight_bytes"],
            layers=layers,
            max_context=model["max_positions"] or 131_072,
            source=f"the weights and cache entries of this run, {model['dtype']}",
        )

    @property
    def stored_bytes(self) -> int:
        return self.fixed_bytes + self.expert_bytes

    @property
    def bytes_per_token(self) -> int:
        """Cache bytes added by one token while no window is full."""
        return sum(per_token for per_token, _ in self.layers)

    def weight_bytes(self, batch: int) -> int:
        """Bytes of weights that a step of `batch` tokens reads.

        An expert used by several tokens is read once. If each token chooses its experts independently and uniformly,
        the expected fraction read is 1 - (1 - share)^batch.
        """
        return self.fixed_bytes + round(self.expert_bytes * (1 - (1 - self.expert_share) ** batch))

    def cache_bytes(self, context: int) -> int:
        """Cache bytes that a step reads for one sequence of `context` cached tokens."""
        read = sum(per_token * (context if reach is None else min(context, reach)) for per_token, reach in self.layers)
        return read + self.state_bytes

    def crossing(self, batch: int) -> int | None:
        """The shortest context, in tokens, at which a step reads at least as many cache bytes as weight bytes.

        None if windows keep the caches smaller at any context.
        """
        weights = self.weight_bytes(batch)
        return self._first(lambda context: batch * self.cache_bytes(context) >= weights)

    def capacity(self, batch: int, memory_bytes: int) -> int | None:
        """The longest context, in tokens, at which all weights and the batch's caches fit in `memory_bytes`.

        0 if the weights alone don't fit; None if every context fits.
        """
        too_long = self._first(lambda context: self.stored_bytes + batch * self.cache_bytes(context) > memory_bytes)
        return None if too_long is None else max(0, too_long - 1)

    def _first(self, holds: Any) -> int | None:
        """The smallest context, from 0 on, for which `holds` is true. Once true, `holds` must stay true."""
        if not holds(_FAR):
            return None
        low, high = 0, _FAR
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if holds(middle) else (middle + 1, high)
        return low


def _reach(layer: Mapping[str, Any]) -> int | None:
    """The maximum number of tokens that a layer reads; None: all."""
    limits = [layer[name] for name in ("window", "chunk") if layer.get(name)]
    return min(limits) if limits else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBound:
    """One decode step at one context: the bytes that it reads, its minimum time and its maximum speed.

    `tokens_per_s` is for the whole batch; each sequence gets 1/batch of it.
    """

    context: int
    weight_bytes: int
    cache_bytes: int
    step_us: float
    tokens_per_s: float


def step_bound(reads: Reads, context: int, batch: int, bandwidth: float) -> StepBound:
    """The bound at `bandwidth` bytes per second. Raises `ConfigError` if `batch` is out of range."""
    if not 1 <= batch <= MAX_BATCH:
        raise ConfigError(
            f"batch must be a whole number from 1 to {MAX_BATCH:,} (got {batch:,}).",
            setting="batch",
            low=1,
            high=MAX_BATCH,
        )
    weights, cache = reads.weight_bytes(batch), batch * reads.cache_bytes(context)
    seconds = (weights + cache) / bandwidth
    return StepBound(
        context=context,
        weight_bytes=weights,
        cache_bytes=cache,
        step_us=seconds * 1e6,
        tokens_per_s=batch / seconds,
    )


def contexts_up_to(limit: int) -> list[int]:
    contexts = []
    context = FIRST_CONTEXT
    while context < limit:
        contexts.append(context)
        context *= 2
    return [*contexts, limit]


def bandwidth_series(reads: Reads, batch: int, bandwidth: float) -> list[StepBound]:
    return [step_bound(reads, context, batch, bandwidth) for context in contexts_up_to(reads.max_context)]
