"""A lane: one cache variant, such as `int4,recent=16` or `mqa+window=64`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvviz.comparison.allocation import ALLOCATIONS, Allocation
from kvviz.config import EngineConfig
from kvviz.errors import ConfigError
from kvviz.messages import shown
from kvviz.model.choices import Choice
from kvviz.model.codecs import CODECS, Calibrated, Codec
from kvviz.model.codecs.floats import AsComputed
from kvviz.model.forgetting import POLICIES, ForgettingPolicy
from kvviz.model.geometry import LayerGeometry, ModelGeometry
from kvviz.model.storage import Storage

#: Maximum number of lanes, including the reference.
MAX_LANES = 4
MAX_SPEC_LENGTH = 120
#: The lane that all others are compared with: the model's own cache.
REFERENCE = "gqa"

_REGISTRIES = (CODECS, POLICIES, ALLOCATIONS)
_NUMBER = re.compile(r"-?[0-9]+\Z")


@dataclass(frozen=True, slots=True)
class Lane:
    """The parts of a lane: at most one codec and one policy, and any number of allocations."""

    spec: str
    parts: tuple[Choice, ...]

    @property
    def codec(self) -> Codec | None:
        return next((part for part in self.parts if isinstance(part, Codec)), None)

    @property
    def policy(self) -> ForgettingPolicy | None:
        return next((part for part in self.parts if isinstance(part, ForgettingPolicy)), None)

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        return tuple(part for part in self.parts if isinstance(part, Allocation))

    @property
    def is_reference(self) -> bool:
        return [part.name for part in self.parts] == [REFERENCE]

    def config(self, config: EngineConfig) -> EngineConfig:
        """The engine's config for this lane. Raises `ConfigError` if allocations conflict."""
        settings: dict[str, Any] = {}
        for allocation in self.allocations:
            for name, value in allocation.settings(config).items():
                if settings.setdefault(name, value) != value:
                    raise ConfigError(
                        f"The lane {self.spec} sets {name} to both {settings[name]} and {value}; remove one.",
                        setting=name,
                    )
        if self.policy is not None and self.policy.window_size is None:
            settings["prefix_cache"] = False  # a hit's attention in earlier requests is unknown
            if self.policy.whole_prompt:
                settings["chunked_prefill"] = False
        return replace(config, **settings)

    def storage(self, model: Calibrated, block_size: int) -> tuple[Storage, ModelGeometry]:
        """How the runner stores entries, and the geometry that attention then reads.

        Raises `ConfigError` or `ModelError` if the lane doesn't support the model.
        """
        codec, policy = self.codec, self.policy
        growing = any(allocation.growing for allocation in self.allocations)
        if codec is None and growing:
            codec = AsComputed()
        if codec is not None and codec.name == REFERENCE and not growing:
            codec = None
        geometry = model.geometry
        if codec is not None:
            codec.prepare(model, block_size)
            geometry = _as_decoded(geometry, codec, block_size)
        if policy is not None and policy.window_size is None:
            _check_forgetting(geometry, policy)
        if policy is not None and policy.window_size is not None:
            geometry = _windowed(geometry, policy.window_size)
        storage = Storage(
            codec=codec,
            policy=policy,
            rotation=model.rotation() if policy is not None and policy.reindexed else None,
            growing=growing,
            base=model.geometry,
        )
        return storage, geometry

    def describe(self) -> dict[str, Any]:
        """The lane in a header, without measurements."""
        return {
            "name": self.spec,
            "spec": self.spec,
            "title": " + ".join(part.title for part in self.parts),
            "family": self.parts[0].family,
            "about": " ".join(part.about for part in self.parts),
            "exact": all(part.exact for part in self.parts),
            "options": {name: value for part in self.parts for name, value in part.chosen.items()},
        }


def lane_choices() -> list[dict[str, Any]]:
    return [choice.describe() for registry in _REGISTRIES for choice in registry.values()]


def parse_lanes(specs: Sequence[str]) -> tuple[Lane, ...]:
    """The lanes of a comparison, the reference first. It is added if `specs` lacks it. Raises `ConfigError`."""
    if not 1 <= len(specs) <= 2 * MAX_LANES:  # don't parse far too many
        raise _wrong_number(len(specs))
    lanes = [parse_lane(spec) for spec in specs]
    names = [lane.spec for lane in lanes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"The lane {twice} is listed twice; remove one.", setting="lanes")
    others = [lane for lane in lanes if not lane.is_reference]
    reference = next((lane for lane in lanes if lane.is_reference), None) or parse_lane(REFERENCE)
    if 1 + len(others) > MAX_LANES:
        raise _wrong_number(1 + len(others))
    return (reference, *others)


def _wrong_number(num_lanes: int) -> ConfigError:
    return ConfigError(
        f"A comparison must have 1–{MAX_LANES} lanes, including the reference {REFERENCE} (got {num_lanes}).",
        setting="lanes",
        low=1,
        high=MAX_LANES,
    )


def parse_lane(spec: str) -> Lane:
    """Parse a lane such as `int8`, `window=64`, `sinks=64,start=4` or `int4+no-prefix`.

    Raises `ConfigError`.
    """
    if not isinstance(spec, str) or not spec.strip() or len(spec) > MAX_SPEC_LENGTH:
        raise ConfigError(f"A lane must be short text such as int8 or window=64 (got {shown(spec)}).", setting="lanes")
    spec = "".join(spec.split())
    parts = tuple(_parse_part(text) for text in spec.split("+"))
    for kind, what in ((Codec, "codecs"), (ForgettingPolicy, "policies")):
        several = [part.name for part in parts if isinstance(part, kind)]
        if len(several) > 1:
            raise ConfigError(
                f"The lane {spec} has {len(several)} {what} ({', '.join(several)}), but may have only "
                "one; remove the others.",
                setting="lanes",
            )
    return Lane(spec, parts)


def _parse_part(text: str) -> Choice:
    name, *rest = re.split("[=,]", text, maxsplit=1) if text else [""]
    registry = next((registry for registry in _REGISTRIES if name in registry), None)
    if registry is None:
        known = ", ".join(name for registry in _REGISTRIES for name in registry)
        raise ConfigError(f"Unknown lane {shown(name)}; choose one of {known}.", setting="lanes")
    choice = registry[name]
    given: dict[str, int] = {}
    pairs = rest[0].split(",") if rest else []
    for index, pair in enumerate(pairs):
        key, separator, value = pair.partition("=")
        if index == 0 and text[len(name)] == "=" and not separator:
            key, value = choice.value or "", key
            if not key:
                raise ConfigError(f"The lane {name} takes no number (got {shown(pair)}); remove it.", setting=name)
        if not _NUMBER.match(value):
            raise ConfigError(
                f"The lane {name} expects a whole number in {shown(pair)}; use option=number.",
                setting=name,
            )
        if key in given:
            raise ConfigError(f"The lane {name} sets the option {shown(key)} twice; remove one.", setting=name)
        given[key] = int(value)
    return choice(**given)


def _as_decoded(geometry: ModelGeometry, codec: Codec, block_size: int) -> ModelGeometry:
    """The geometry of a codec's decoded entries, measured on zeros."""
    import torch

    def decoded(layer: LayerGeometry) -> LayerGeometry:
        if layer.cache == "none":
            return layer
        parts = tuple(torch.zeros(1, *part.shape, dtype=part.dtype) for part in codec.parts(layer, block_size))
        keys, values = codec.decode(layer.index, parts, torch.arange(block_size)[None])
        shapes = (keys.shape[1], keys.shape[3]), (values.shape[1], values.shape[3])
        if shapes == (layer.key_shape, layer.value_shape):
            return layer
        return replace(layer, key_shape=shapes[0], value_shape=shapes[1], kv_heads=keys.shape[1])

    return replace(geometry, layers=tuple(decoded(layer) for layer in geometry.layers))


def _windowed(geometry: ModelGeometry, window: int) -> ModelGeometry:
    """The geometry with every layer limited to a window of `window` tokens."""
    layers = (replace(layer, kind="sliding", window=min(layer.window or window, window)) for layer in geometry.layers)
    return replace(geometry, layers=tuple(layers))


def _check_forgetting(geometry: ModelGeometry, policy: ForgettingPolicy) -> None:
    odd = next((layer for layer in geometry.layers if layer.cache != "kv"), None)
    if odd is not None:
        what = "caches latents" if odd.cache == "latent" else "reads the entries of another layer"
        raise ConfigError(
            f"The lane {policy.name} drops keys and values per head, but layer {odd.index} of this model {what}; "
            "choose a sliding window, or another model.",
            setting=policy.name,
        )
