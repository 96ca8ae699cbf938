"""A geometry out of numbers that a person typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvviz.calculator.fields import MAX_LAYERS, printable
from kvviz.calculator.layers import Geometry, LayerGroup, grouped, kind_of
from kvviz.calculator.settings import MAX_CONTEXT
from kvviz.config import check_range
from kvviz.errors import ConfigError
from kvviz.messages import clipped, shown

MAX_HEADS = 65_536
MAX_DIM = 65_536
#: Every number by its limits; those of `_NEEDED` must be there.
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


def geometry_of_numbers(numbers: Mapping[str, Any], name: str | None = None) -> Geometry:
    """`layers`, `kv_heads` and `head_dim`, or `latent_dim` and `rotary_dim` in place of the last two.

    May also have `v_head_dim` (else as `head_dim`), `query_heads` (else as many as KV heads), `window` in tokens for
    `windowed_layers` of the layers (else for all), and `max_context`. What is None counts as absent. Raises
    `ConfigError` for a number that is missing, outside its limits, or not known.
    """
    given = {key: value for key, value in numbers.items() if value is not None}
    for key, value in given.items():
        if key not in _LIMITS:
            raise ConfigError(
                f"The geometry has no {shown(str(key))}; its numbers are {', '.join(_LIMITS)}.",
                setting=clipped(str(key)),
            )
        check_range(key, value, 1, _LIMITS[key])
    is_latent = "latent_dim" in given
    for key in ("layers", "latent_dim", "rotary_dim") if is_latent else ("layers", "kv_heads", "head_dim"):
        if key not in given:
            raise ConfigError(f"The geometry lacks {key}; type it.", setting=key)
    layers, window = given["layers"], given.get("window")
    windowed = given.get("windowed_layers", layers if window is not None else 0)
    if windowed > layers or (windowed and window is None):
        raise ConfigError(
            f"{windowed:,} windowed layers need a window and at least as many layers, but the layers are {layers:,} "
            f"and the window is {shown(window)}; change one of them.",
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
        name=printable(name) or "typed geometry",
        model_type="",
        kind=kind_of(groups, max_context=max_context),
        groups=groups,
        num_layers=layers,
        max_context=max_context,
    )
