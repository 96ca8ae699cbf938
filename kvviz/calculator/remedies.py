"""Remedies when too little fits: the effect of each change on its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from kvviz.calculator.cache import cache_of
from kvviz.calculator.capacity import Capacity, Machine, capacity
from kvviz.calculator.gpus import CARDS
from kvviz.calculator.layers import Geometry, LayerGroup
from kvviz.calculator.parameters import Parameters
from kvviz.calculator.settings import MAX_GPUS, Settings, find_dtype

#: KV heads of the `gqa` remedy, as in Llama 3.
GQA_HEADS = 8
#: Window of the `window` remedy in tokens, as in Mistral 7B v0.1.
TRIED_WINDOW = 4_096
#: Bytes per second in one direction between the host and one GPU: PCIe 5.0, 16 lanes.
HOST_LINK = 64e9
#: Host memory of the `offload` remedy, unless the settings have one.
TRIED_HOST_BYTES = 256 * 2**30

RemedyName = Literal["gqa", "fp8_cache", "window", "offload", "fp8_weights", "another_card", "more_cards"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One change and its effect.

    - `value`: the new value (KV heads, tokens, the id of a GPU …).
    - `needs_training`: the change makes it another model.
    - `parked`: for `offload`, sequences in host memory, which `max_sequences` includes.
    - `return_s`: for `offload`, seconds to copy one sequence back to the GPUs.

    The other figures are as in `Capacity` and `CacheBytes`.
    """

    name: RemedyName
    value: str | int
    needs_training: bool
    total_bytes: int
    max_sequences: int
    longest_context: int | None
    fits: bool
    tokens_per_s: float | None
    cost_per_million_tokens: float | None
    parked: int = 0
    return_s: float | None = None


def remedies(geometry: Geometry, parameters: Parameters, machine: Machine, settings: Settings) -> list[Remedy]:
    """All changes that apply and help, in a fixed order."""
    now = capacity(geometry, parameters, machine, settings)

    def tried(
        name: RemedyName,
        value: str | int,
        geometry: Geometry = geometry,
        machine: Machine = machine,
        settings: Settings = settings,
    ) -> Remedy:
        return _effect(name, value, geometry, capacity(geometry, parameters, machine, settings), settings)

    found = [tried("gqa", heads, changed) for heads, changed in _gqa(geometry)]
    if find_dtype(settings.dtype).bits > 8:
        found.append(tried("fp8_cache", "fp8", settings=replace(settings, dtype="fp8")))
    if settings.context > TRIED_WINDOW and any(group.window is None for group in geometry.groups):
        windowed = replace(geometry, groups=tuple(_windowed(group) for group in geometry.groups))
        found.append(tried("window", TRIED_WINDOW, windowed))
    found.append(_offload(geometry, now, settings))
    if find_dtype(settings.weights_dtype).bits > 8:
        found.append(tried("fp8_weights", "fp8", settings=replace(settings, weights_dtype="fp8")))
    found += [tried("another_card", card_id, machine=other) for card_id, other in _larger(machine)]
    if 2 * settings.gpus <= MAX_GPUS:
        doubled = replace(settings, gpus=2 * settings.gpus)
        found.append(tried("more_cards", doubled.gpus, settings=doubled))
    return [remedy for remedy in found if _helps(remedy, now)]


def _helps(remedy: Remedy, now: Capacity) -> bool:
    """Whether more or longer sequences fit, or steps can be faster."""
    is_longer = now.longest_context is not None and (
        remedy.longest_context is None or remedy.longest_context > now.longest_context
    )
    return remedy.max_sequences > now.max_sequences or is_longer or (remedy.tokens_per_s or 0) > (now.tokens_per_s or 0)


def _effect(name: RemedyName, value: str | int, geometry: Geometry, result: Capacity, settings: Settings) -> Remedy:
    return Remedy(
        name=name,
        value=value,
        needs_training=name in ("gqa", "window"),
        total_bytes=cache_of(geometry, settings).total_bytes,
        max_sequences=result.max_sequences,
        longest_context=result.longest_context,
        fits=result.fits,
        tokens_per_s=result.tokens_per_s,
        cost_per_million_tokens=result.cost_per_million_tokens,
    )


def _gqa(geometry: Geometry) -> Iterator[tuple[int, Geometry]]:
    """Grouped-query attention instead of one KV head per query head."""
    heads = geometry.groups[0].kv_heads if geometry.groups else 1
    fewer = next((count for count in range(min(GQA_HEADS, heads // 2), 0, -1) if heads % count == 0), None)
    if fewer and all(group.type != "mla_latent" and group.kv_heads == group.query_heads for group in geometry.groups):
        groups = tuple(replace(group, kv_heads=fewer) for group in geometry.groups if group.kv_heads == heads)
        if len(groups) == len(geometry.groups):
            yield fewer, replace(geometry, groups=groups)


def _windowed(group: LayerGroup) -> LayerGroup:
    if group.window is not None and group.window <= TRIED_WINDOW:
        return group
    kind = group.type if group.type == "mla_latent" else "sliding"
    return replace(group, window=TRIED_WINDOW, type=kind)


def _offload(geometry: Geometry, now: Capacity, settings: Settings) -> Remedy:
    """Waiting sequences are parked on the host. A sequence returns over the links of all GPUs at once."""
    host_bytes = settings.host_bytes or TRIED_HOST_BYTES
    kept = _effect("offload", host_bytes, geometry, now, settings)
    size = now.bytes_per_sequence
    parked = host_bytes // size if size and now.weights_fit else 0
    return replace(
        kept,
        max_sequences=now.max_sequences + parked,
        parked=parked,
        return_s=size / (HOST_LINK * settings.gpus) if parked else None,
    )


def _larger(machine: Machine) -> Iterator[tuple[str, Machine]]:
    """The listed GPU with the next larger memory and at least the same bandwidth."""
    slowest = machine.bandwidth or 0.0
    larger = [card for card in CARDS if card.memory_bytes > machine.memory_bytes and card.bandwidth >= slowest]
    if larger:
        card = min(larger, key=lambda each: (each.memory_bytes, -each.bandwidth))
        yield card.card_id, Machine(card.name, card.memory_bytes, card.bandwidth, card.price_per_hour)
