"""What fits on a machine: sequences, tokens and the longest context, with bounds on speed and cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from kvviz.calculator.bandwidth import Reads, step_bound
from kvviz.calculator.cache import entry_bytes, indexer_bytes, rounded
from kvviz.calculator.layers import Geometry, LayerGroup
from kvviz.calculator.parameters import Parameters
from kvviz.calculator.settings import MAX_CONTEXT, Settings, find_dtype


@dataclass(frozen=True, slots=True)
class Machine:
    """GPUs of one kind. All values are per GPU.

    `bandwidth` is in bytes per second, `price_per_hour` in US dollars; None: unknown.
    """

    name: str
    memory_bytes: int
    bandwidth: float | None = None
    price_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What `gpus` GPUs hold together. Byte counts are totals over all GPUs, including copies of KV heads.

    - `kv_budget_bytes`: usable memory minus weights and overhead. Negative if these alone don't fit.
    - `bytes_per_sequence`: cache of one sequence in whole blocks.
    - `shared_prefix_bytes`: the common prefix, stored once. `bytes_per_further_sequence`: added to it by each sequence.
    - `batch_bytes`: the whole batch, with the prefix stored once.
    - `kv_heads_per_gpu`, `copies`: for the group with the fewest KV heads.
    - `max_sequences`: at the given context. `tokens`: in all of these sequences.
    - `longest_context`: at the given batch, in tokens. 0: not even one token fits; None: any context up to the limit
      fits.
    - `fits`: whether the batch fits.
    - `tokens_per_s`, `step_us`, `cost_per_million_tokens` (US dollars): bounds for the batch from memory reads alone.
      None if the batch doesn't fit or an input is unknown.
    """

    usable_bytes: int
    weight_bytes: int
    overhead_bytes: int
    kv_budget_bytes: int
    bytes_per_sequence: int
    bytes_per_further_sequence: int
    shared_prefix_bytes: int
    fixed_state_bytes: int
    batch_bytes: int
    kv_heads_per_gpu: int
    copies: int
    max_sequences: int
    max_sequences_without_prefix: int
    tokens: int
    longest_context: int | None
    fits: bool
    weights_fit: bool
    step_us: float | None = None
    tokens_per_s: float | None = None
    cost_per_million_tokens: float | None = None


def heads_per_gpu(kv_heads: int, gpus: int) -> int:
    """KV heads per GPU, rounded up. With more GPUs than heads, each GPU has a copy of one head."""
    return -(-kv_heads // gpus)


def usable_bytes(machine: Machine, gpus: int, utilisation: float) -> int:
    """The usable memory of all GPUs, rounded down."""
    return int(machine.memory_bytes * gpus * Fraction(str(utilisation)))


def capacity(geometry: Geometry, parameters: Parameters, machine: Machine, settings: Settings) -> Capacity:
    """What fits with these settings. Raises `ConfigError` for an unknown dtype.

    The arithmetic is in docs/memory.md.
    """
    weights = find_dtype(settings.weights_dtype, "weights_dtype").weight_bytes(parameters.total)
    usable = usable_bytes(machine, settings.gpus, settings.utilisation)
    overhead = settings.overhead_bytes * settings.gpus
    budget = usable - weights - overhead
    store = _Store(geometry, settings)
    once, further = store.shared(settings.context)
    whole = store.sequence(settings.context)
    alone = max(0, budget) // whole if whole else 0
    with_prefix = max(0, budget - once) // further if further else 0
    fits = (with_prefix if settings.prefix else alone) >= settings.batch
    step_us = tokens_per_s = cost = None
    if fits and machine.bandwidth is not None:
        reads = reads_of(geometry, parameters, settings)
        bound = step_bound(reads, settings.context, settings.batch, machine.bandwidth * settings.gpus)
        step_us, tokens_per_s = bound.step_us, bound.tokens_per_s
        if machine.price_per_hour is not None:
            cost = machine.price_per_hour * settings.gpus / (tokens_per_s * 3_600) * 1e6
    sequences = with_prefix if settings.prefix else alone
    fewest = min((group.kv_heads for group in geometry.groups), default=1)
    return Capacity(
        usable_bytes=usable,
        weight_bytes=weights,
        overhead_bytes=overhead,
        kv_budget_bytes=budget,
        bytes_per_sequence=whole,
        bytes_per_further_sequence=further,
        shared_prefix_bytes=once,
        fixed_state_bytes=store.state,
        batch_bytes=store.batch(settings.context, settings.batch),
        kv_heads_per_gpu=heads_per_gpu(fewest, settings.gpus),
        copies=max(1, settings.gpus // fewest),
        max_sequences=sequences,
        max_sequences_without_prefix=alone,
        tokens=sequences * settings.context,
        longest_context=_longest(store, budget, settings),
        fits=fits,
        weights_fit=budget >= 0,
        step_us=step_us,
        tokens_per_s=tokens_per_s,
        cost_per_million_tokens=cost,
    )


def stored_bytes(geometry: Geometry, settings: Settings, contexts: Iterable[int], batches: Iterable[int]) -> list[int]:
    """Bytes stored on all GPUs together, for each pair of a context and a number of sequences.

    Counts whole blocks, copies of KV heads, fixed state and indexer keys. The shared prefix counts once.
    """
    store = _Store(geometry, settings)
    return [store.batch(context, batch) for context, batch in zip(contexts, batches, strict=True)]


def reads_of(geometry: Geometry, parameters: Parameters, settings: Settings) -> Reads:
    """The bytes that a decode step reads on all GPUs together."""
    store = _Store(geometry, settings)
    stored = find_dtype(settings.weights_dtype, "weights_dtype")
    experts = stored.weight_bytes(parameters.experts)
    layers = [(per_token, group.window) for group, per_token in store.groups]
    if store.indexer:
        layers.append((store.indexer, None))
    return Reads(
        model_id="",
        name=geometry.name,
        fixed_bytes=stored.weight_bytes(parameters.total) - experts,
        expert_bytes=experts,
        expert_share=parameters.share,
        layers=tuple(layers),
        state_bytes=store.state,
        max_context=geometry.max_context or settings.context,
        source="",
    )


class _Store:
    """The size of stored sequences on all GPUs together, in whole blocks."""

    def __init__(self, geometry: Geometry, settings: Settings) -> None:
        dtype = find_dtype(settings.dtype)
        self.block_size, self.prefix = settings.block_size, settings.prefix
        self.groups = [(group, settings.gpus * self._per_card(group, settings)) for group in geometry.groups]
        self.indexer = settings.gpus * indexer_bytes(geometry, dtype, settings.group_size)
        self.state = geometry.state.num_bytes if geometry.state else 0

    @staticmethod
    def _per_card(group: LayerGroup, settings: Settings) -> int:
        """Bytes per token on one GPU. A latent has a single head, so every GPU stores it."""
        heads = heads_per_gpu(group.kv_heads, settings.gpus)
        return group.layers * entry_bytes(group, find_dtype(settings.dtype), settings.group_size, heads=heads)

    def sequence(self, context: int) -> int:
        """Bytes of a single sequence, including its fixed state."""
        kept = sum(per_token * rounded(group.kept(context), self.block_size) for group, per_token in self.groups)
        return kept + self.indexer * rounded(context, self.block_size) + self.state

    def shared(self, context: int) -> tuple[int, int]:
        """Bytes of the common prefix, stored once, and the bytes that each sequence adds.

        Only whole blocks are shared. A windowed layer keeps the end of the prefix for later sequences; a sequence
        shares only the part within its own window.
        """
        prefix = min(self.prefix, context) // self.block_size * self.block_size
        once = own = 0
        for group, per_token in [*self.groups, (None, self.indexer)]:
            kept = group.kept(context) if group else context
            in_common = max(0, prefix - (context - kept)) // self.block_size * self.block_size
            once += per_token * (rounded(group.kept(prefix), self.block_size) if group else prefix)
            own += per_token * (rounded(kept, self.block_size) - in_common)
        return once, own + self.state

    def batch(self, context: int, batch: int) -> int:
        if not self.prefix:
            return batch * self.sequence(context)
        once, own = self.shared(context)
        return once + batch * own


def _longest(store: _Store, budget: int, settings: Settings) -> int | None:
    """The longest context at which the batch fits. A longer context never takes fewer bytes."""
    if store.batch(MAX_CONTEXT, settings.batch) <= budget:
        return None
    low, high = 0, MAX_CONTEXT
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if store.batch(middle, settings.batch) <= budget else (low, middle)
    return low
