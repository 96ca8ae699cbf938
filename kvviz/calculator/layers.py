"""Layers as the cache sees them: groups of equal layers, and the geometry of a whole model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from kvviz.calculator.fields import MAX_LAYERS, printable
from kvviz.calculator.settings import MAX_CONTEXT
from kvviz.config import check_range
from kvviz.errors import ConfigError
from kvviz.messages import clipped, shown

Kind = Literal[
    "mha",
    "gqa",
    "mqa",
    "mla",
    "sliding",
    "hybrid_sliding",
    "chunked",
    "shared_kv",
    "per_layer",
    "hybrid_linear",
    "hybrid_ssm",
    "hybrid_parallel",
    "mla_hybrid_linear",
    "ssm",
]
#: Kinds of models that are rejected.
RefusedKind = Literal["compressed_sparse", "encoder_decoder", "encoder_only"]
LayerType = Literal["full", "sliding", "chunked", "mla_latent"]
StateType = Literal["linear", "ssm", "conv"]
MAX_HEADS = 65_536
MAX_DIM = 65_536
#: The maximum of each number of a custom geometry.
_LIMITS = {
    "layers": MAX_LAYERS,
    "kv_heads": MAX_HEADS,
    "head_dim": MAX_DIM,
    "v_head_dim": MAX_DIM,
    "query_heads": MAX_HEADS,
    "window": MAX_CONTEXT,
    "windowed_layers": MAX_LAYERS,
    "latent_dim": MAX_DIM,
    "rotary_dim": MAX_DIM,
    "max_context": MAX_CONTEXT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers that store entries of their own, all of one shape.

    A layer stores `kv_heads` × (`k_dim` + `v_dim`) elements per token. A latent (`mla_latent`) has one head: `k_dim` is
    the width of the latent, `v_dim` that of the shared rotary part.

    - `window`: maximum number of tokens with entries in a layer; None: all.
    - `query_heads`: per layer.
    - `uncompressed`: KV heads, K dimension and V dimension without the latent; None if there is no latent.
    """

    layers: int
    type: LayerType
    kv_heads: int
    k_dim: int
    v_dim: int
    window: int | None
    query_heads: int
    uncompressed: tuple[int, int, int] | None = None

    def kept(self, context: int) -> int:
        """The number of `context` tokens that have entries."""
        return context if self.window is None else min(context, self.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedState:
    """The state that `layers` layers keep per sequence, independent of its length.

    A layer keeps `recurrent` elements, and the last `conv_width` inputs of a short convolution over `conv_channels`
    channels.
    """

    layers: int
    type: StateType
    recurrent: int
    conv_channels: int
    conv_width: int

    @property
    def recurrent_bytes(self) -> int:
        """Bytes of all layers, as 32-bit floats."""
        return 4 * self.layers * self.recurrent

    @property
    def conv_bytes(self) -> int:
        """Bytes of all layers, as 16-bit floats, for the full kernel width. An engine may keep one input fewer."""
        return 2 * self.layers * self.conv_channels * self.conv_width

    @property
    def num_bytes(self) -> int:
        """Bytes per sequence in all layers: recurrence in 32 bits, convolution in 16."""
        return self.recurrent_bytes + self.conv_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """A model as its cache sees it.

    - `groups`: groups of layers, windowed ones first.
    - `num_layers`: all layers, including those without a cache.
    - `indexer`: layers with indexer keys of sparse attention, and elements per token in each; None: no indexer.
    - `max_context`: in tokens; None: no known limit.
    - `warnings`: assumptions that were made.
    """

    name: str
    model_type: str
    kind: Kind
    groups: tuple[LayerGroup, ...]
    num_layers: int
    state: FixedState | None = None
    indexer: tuple[int, int] | None = None
    max_context: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def cached_layers(self) -> int:
        return sum(group.layers for group in self.groups)


def grouped(layers: Iterable[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Merge equal layers into groups: windowed ones first, then in order of appearance."""
    counts: Counter[LayerGroup] = Counter()
    for layer in layers:
        counts[replace(layer, layers=1)] += layer.layers
    groups = [replace(layer, layers=count) for layer, count in counts.items()]
    return tuple(sorted(groups, key=lambda group: group.window is None))


def kind_of(
    groups: tuple[LayerGroup, ...],
    *,
    max_context: int | None,
    state: FixedState | None = None,
    is_parallel: bool = False,
    is_shared: bool = False,
    is_uneven: bool = False,
) -> Kind:
    """Classify a cache by its most distinctive feature: a state, a latent, sharing, windows, or else the heads.

    - `is_parallel`: a layer has both attention and a state.
    - `is_shared`: layers read the entries of other layers.
    - `is_uneven`: some layers have no attention, or other heads than the rest.

    A window as long as the longest context counts as none.
    """
    is_latent = any(group.type == "mla_latent" for group in groups)
    if state is not None:
        if not groups:
            return "ssm"
        if is_latent:
            return "mla_hybrid_linear"
        if is_parallel:
            return "hybrid_parallel"
        return "hybrid_ssm" if state.type == "ssm" else "hybrid_linear"
    if is_latent:
        return "mla"
    if is_shared:
        return "shared_kv"
    binding = [group.window is not None and (max_context is None or group.window < max_context) for group in groups]
    if any(group.type == "chunked" and binds for group, binds in zip(groups, binding, strict=True)):
        return "chunked"
    if any(binding):
        return "sliding" if all(binding) else "hybrid_sliding"
    if is_uneven or len({(group.kv_heads, group.k_dim, group.v_dim) for group in groups}) > 1:
        return "per_layer"
    group = groups[0]
    if group.kv_heads == 1 and group.query_heads > 1:
        return "mqa"
    return "mha" if group.kv_heads >= group.query_heads else "gqa"


def geometry_of_numbers(numbers: Mapping[str, Any], name: str | None = None) -> Geometry:
    """A custom geometry: `layers`, `kv_heads` and `head_dim`, or `layers`, `latent_dim` and `rotary_dim`.

    Optional: `v_head_dim` (default: `head_dim`), `query_heads` (default: `kv_heads`), `window` in tokens for
    `windowed_layers` of the layers (default: all), and `max_context` in tokens. None counts as absent. Raises
    `ConfigError` for a number that is missing, unknown or out of range.
    """
    given = {key: value for key, value in numbers.items() if value is not None}
    for key, value in given.items():
        if key not in _LIMITS:
            raise ConfigError(
                f"Unknown field {shown(str(key))} in the geometry; choose one of {', '.join(_LIMITS)}.",
                setting=clipped(str(key)),
            )
        check_range(key, value, 1, _LIMITS[key])
    is_latent = "latent_dim" in given
    for key in ("layers", "latent_dim", "rotary_dim") if is_latent else ("layers", "kv_heads", "head_dim"):
        if key not in given:
            raise ConfigError(f"The geometry has no {key}; add it.", setting=key)
    layers, window = given["layers"], given.get("window")
    windowed = given.get("windowed_layers", layers if window is not None else 0)
    if windowed > layers or (windowed and window is None):
        raise ConfigError(
            f"{windowed:,} windowed layers need a window and at least {windowed:,} layers (got {layers:,} layers, "
            f"window {shown(window)}); change one of them.",
            setting="windowed_layers",
        )
    kv_heads = 1 if is_latent else given["kv_heads"]
    k_dim = given["latent_dim"] if is_latent else given["head_dim"]
    v_dim = given["rotary_dim"] if is_latent else given.get("v_head_dim", k_dim)
    query_heads = given.get("query_heads", kv_heads)

    def group(count: int, reach: int | None) -> LayerGroup:
        return LayerGroup(
            layers=count,
            type="mla_latent" if is_latent else "full" if reach is None else "sliding",
            kv_heads=kv_heads,
            k_dim=k_dim,
            v_dim=v_dim,
            window=reach,
            query_heads=query_heads,
        )

    groups = grouped([group(count, reach) for count, reach in ((windowed, window), (layers - windowed, None)) if count])
    max_context = given.get("max_context")
    return Geometry(
        name=printable(name) or "custom geometry",
        model_type="",
        kind=kind_of(groups, max_context=max_context),
        groups=groups,
        num_layers=layers,
        max_context=max_context,
    )
