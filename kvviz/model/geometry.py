"""The geometry of a model's cache, measured on a forward pass instead of derived from the config."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGeometry:
    """One attention layer.

    `key_shape` and `value_shape` are the (heads, dimension) that `Cache.update` receives for one token; for latent
    attention, the latent and the shared rotary part. `cache` is `none` for a layer that reads another layer's entries.
    `window`: how many tokens back the layer sees, including the current one, or None. `chunk`: the layer sees only
    its own chunk of that many tokens. `scaling`, `softcap` and `sinks` are the model's own.
    """

    index: int
    kind: Literal["full", "sliding", "chunked"]
    window: int | None
    chunk: int | None
    cache: Literal["kv", "latent", "none"]
    key_shape: tuple[int, int]
    value_shape: tuple[int, int]
    query_heads: int
    kv_heads: int
    scaling: float | None
    softcap: float | None
    sinks: bool

    def values_per_token(self) -> int:
        if self.cache == "none":
            return 0
        return self.key_shape[0] * self.key_shape[1] + self.value_shape[0] * self.value_shape[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGeometry:
    """All attention layers of a model, in execution order."""

    layers: tuple[LayerGeometry, ...]
    element_bytes: int

    @property
    def stored_layers(self) -> tuple[LayerGeometry, ...]:
        return tuple(layer for layer in self.layers if layer.cache != "none")

    @property
    def bytes_per_token(self) -> int:
        return self.element_bytes * sum(layer.values_per_token() for layer in self.layers)

    @property
    def window(self) -> int | None:
        """How far back the farthest-reading layer sees if every layer has a sliding window, else None."""
        windows = [layer.window for layer in self.layers]
        return max(window for window in windows if window) if windows and all(windows) else None

    def describe_layers(self) -> list[dict[str, Any]]:
        return [
            {**asdict(layer), "bytes_per_token": self.element_bytes * layer.values_per_token()} for layer in self.layers
        ]
