"""From a `config.json` to a geometry: what its cache is made of, or why it has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvviz.calculator.fields import Fields, printable, whole
from kvviz.calculator.known import KNOWN_TYPES
from kvviz.calculator.layers import Geometry, grouped, kind_of
from kvviz.calculator.patterns import DEFAULT_WINDOWS, WINDOW_NAMES, roles_of
from kvviz.calculator.refusals import refuse_without_cache
from kvviz.calculator.shapes import is_shared, layers_of
from kvviz.calculator.states import state_of
from kvviz.errors import ModelError
from kvviz.messages import clipped

_CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length", "n_ctx")
#: Contexts that a file may leave out. Source: configuration classes of transformers 5.24.
_DEFAULT_CONTEXTS = {"falcon": 2_048}
#: Where the context is that an ALiBi model was trained with, which is no limit.
_WITHOUT_LIMIT = ("bloom",)
#: Sizes that enter the cache; of those that are left out, a warning tells.
_SIZES = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "head_dim")
#: Layers of image tokens, which add nothing for a token of text.
_CROSS_NAME = "cross_attention_layers"


def geometry_of_config(config: Mapping[str, Any], name: str | None = None) -> Geometry:
    """The geometry of a model by its config (as parsed from `config.json`), under `name` or its own.

    Raises `ModelError`: for a missing or senseless field, and, with the `kind` in its details, for a model that has no
    cache of one entry a token (encoders, encoder-decoders, compressed-sparse attention).
    """
    fields = Fields(config)
    refuse_without_cache(fields)
    roles = roles_of(fields)
    cross = {whole(index, _CROSS_NAME, 0) for index in fields.items(_CROSS_NAME) or ()}
    own = ["full" if index in cross else role for index, role in enumerate(roles)]
    roles = ["none" if index in cross else role for index, role in enumerate(roles)]
    groups = grouped(layers_of(fields, roles))
    num_states = sum(role in ("state", "both", "both_sliding") for role in roles)
    state = state_of(fields, num_states) if num_states else None
    if not groups and not num_states:
        raise ModelError("No layer of this config keeps K and V; give the config of a decoder.", code="bad_config")
    max_context = fields.number(*_CONTEXT_NAMES) or _DEFAULT_CONTEXTS.get(fields.model_type)
    if fields.model_type in _WITHOUT_LIMIT:
        max_context = None
    return Geometry(
        name=printable(name) or _own_name(config) or fields.model_type or "this config",
        model_type=fields.model_type,
        kind=_kind(fields, own, groups, state, max_context, num_states),
        groups=groups,
        num_layers=len(roles),
        state=state,
        indexer=_indexer(fields, roles),
        max_context=max_context,
        warnings=tuple(_warnings(fields, groups, num_states, state is None, bool(cross))),
    )


def _kind(fields: Fields, roles: Any, groups: Any, state: Any, max_context: int | None, num_states: int) -> Any:
    if num_states and state is None:  # of a size that is not told
        return "hybrid_linear" if groups else "ssm"
    return kind_of(
        groups,
        max_context=max_context,
        state=state,
        is_parallel=any(role in ("both", "both_sliding") for role in roles),
        is_shared=is_shared(fields),
        is_uneven="block_configs" in fields or "none" in roles,
    )


def _own_name(config: Mapping[str, Any]) -> str:
    return printable(config.get("_name_or_path")) or printable(config.get("name"))


def _indexer(fields: Fields, roles: Any) -> tuple[int, int] | None:
    """The keys by which sparse attention chooses what to read: one head a layer, beside the latent."""
    dim = fields.number("index_head_dim")
    if not dim or not fields.number("kv_lora_rank"):
        return None
    types = fields.items("indexer_types")
    layers = [index for index, role in enumerate(roles) if role == "full"]
    if types is not None:
        layers = [index for index in layers if index < len(types) and types[index] == "full"]
    return (len(layers), dim) if layers else None


def _warnings(fields: Fields, groups: Any, num_states: int, is_unsized: bool, has_cross: bool) -> list[str]:
    warnings = []
    kind = clipped(fields.model_type) if fields.model_type else ""
    if fields.model_type not in KNOWN_TYPES:
        read = "; ".join(
            f"{group.layers} layers, {group.kv_heads} KV heads, K {group.k_dim} and V {group.v_dim} wide"
            for group in groups
        )
        subject = f"The model type {kind} is not known here" if kind else "The config names no model_type"
        warnings.append(f"{subject}; by its ordinary fields this was assumed: {read or 'no layer with K and V'}.")
    is_default = fields.model_type in DEFAULT_WINDOWS and not any(name in fields.values for name in WINDOW_NAMES)
    if is_default and any(group.type == "sliding" for group in groups):
        window = DEFAULT_WINDOWS[fields.model_type]
        warnings.append(f"The config names no sliding_window; {window:,}, the default of {kind}, was taken.")
    taken = [name for name in _SIZES if name in fields.left_out]
    if taken and any(group.type != "mla_latent" for group in groups):
        sizes = ", ".join(f"{name} {fields.left_out[name]:,}" for name in taken)
        warnings.append(f"The config leaves sizes to its class; the defaults of {kind} were taken: {sizes}.")
    if num_states and is_unsized:
        warnings.append(f"{num_states} layers keep a fixed state whose size this config does not tell; it is left out.")
    if has_cross:
        warnings.append("Layers that attend to an image keep its K and V as well; they are not counted.")
    return warnings
