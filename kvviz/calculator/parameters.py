"""Parameter counts, given or estimated from the config, and the fraction that a step reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvviz.calculator.fields import MAX_LAYERS, MAX_NUMBER, Fields
from kvviz.calculator.layers import Geometry, LayerGroup
from kvviz.calculator.patterns import LAYER_NAMES
from kvviz.calculator.shapes import HIDDEN_NAMES

_EXPERT_NAMES = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_ACTIVE_NAMES = (
    "num_experts_per_tok",
    "experts_per_token",
    "num_experts_per_token",
    "top_k_experts",
    "moe_top_k",
    "moe_topk",
    "moe_k",
)
_EXPERT_WIDTHS = ("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
_SHARED_NAMES = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
_SHARED_WIDTHS = ("shared_expert_intermediate_size", "share_expert_dim")
_STEP_NAMES = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq")
#: Model types whose feed-forward layers have two matrices. All others have three (gated).
_PLAIN = (
    "gpt2",
    "opt",
    "gpt_neox",
    "gpt_neo",
    "gptj",
    "bloom",
    "mpt",
    "falcon",
    "gpt_bigcode",
    "phi",
    "codegen",
    "starcoder2",
)
#: Model types that share input and output embeddings unless the config says otherwise.
_TIED = (*_PLAIN, "gemma", "gemma2", "gemma3_text", "cohere", "cohere2", "smollm3")
_UNTIED = ("gpt_neox", "gptj", "phi", "codegen")
_INNER_NAMES = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff")
#: Model types whose feed-forward layers are four times as wide as the model unless the config says otherwise.
_FOURFOLD = ("gpt2", "gpt_neo", "gptj", "bloom", "gpt_bigcode", "codegen", "falcon")
#: A field with such a name describes a feed-forward layer.
_FEED_FORWARD = re.compile("expert|moe|ffn|mlp|intermediate|inner|feed_?forward|hidden_dim|router|dense|sparse|_ff$")
#: Fields of feed-forward layers that are read here, or that don't change the parameter count.
_UNDERSTOOD = frozenset(
    (
        *_EXPERT_NAMES,
        *_ACTIVE_NAMES,
        *_EXPERT_WIDTHS,
        *_SHARED_NAMES,
        *_SHARED_WIDTHS,
        *_STEP_NAMES,
        *_INNER_NAMES,
        "routed_expert_hidden_size",
        "moe_layers_enum",
        "mlp_layer_types",
        "mlp_only_layers",
        "expert_layer_period",
        "expert_layer_offset",
        "first_k_dense_replace",
        "intermediate_size_mlp",
        "moe_layers",
        "num_expert_group",
        "moe_layer_num_skipped",
        "expert_capacity",
        "chunk_size_feed_forward",
    )
)


#: Fields that the estimate reads as sizes.
_SIZES = frozenset(
    (
        *_EXPERT_NAMES,
        *_ACTIVE_NAMES,
        *_EXPERT_WIDTHS,
        *_SHARED_NAMES,
        *_SHARED_WIDTHS,
        *_INNER_NAMES,
        *HIDDEN_NAMES,
        "vocab_size",
    )
)


class _Unread(Exception):
    """A field with a value that isn't understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameter counts. `experts`: all routed experts together. A token uses the fraction `share` of them.

    Every step reads all other parameters.
    """

    total: int
    experts: int = 0
    share: float = 1.0


def parameters_of(config: Mapping[str, Any], total: int) -> Parameters:
    """The parameters of a model, `total` of them. Experts that aren't understood count as read by every step."""
    fields = Fields(config)
    try:
        experts = _experts(fields)
    except _Unread:
        experts = 0
    if not 0 < experts < total:
        return Parameters(total=total)
    return Parameters(total=total, experts=experts, share=_size(fields, *_ACTIVE_NAMES) / _size(fields, *_EXPERT_NAMES))


def unread_fields(config: Mapping[str, Any]) -> list[str]:
    """The fields that the estimate needs and can't use, or doesn't understand: names, in order of the config."""
    fields = Fields(config)
    return [
        name
        for name, value in fields.values.items()
        if (_FEED_FORWARD.search(name) and name not in _UNDERSTOOD and _is_size(value))
        or (name in _SIZES and not _is_readable(fields, name))
    ]


def _is_readable(fields: Fields, name: str) -> bool:
    try:
        _size(fields, name)
    except _Unread:
        return False
    return True


def _is_size(value: Any) -> bool:
    """Whether a value may be a size: a switch, a factor, a word, 0 and null are not."""
    return bool(value) and not isinstance(value, bool | float | str)


def _size(fields: Fields, *names: str) -> int:
    """The first of these fields that is present, as a size; 0 if there is none.

    A list with the same size for each layer is that size. Raises `_Unread` for anything else.
    """
    value = fields.get(*names)
    if isinstance(value, list | tuple) and value and all(each == value[0] for each in value):
        value = value[0]
    if value is None or value is False:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise _Unread
    if not 0 <= value <= MAX_NUMBER:
        raise _Unread
    return int(value)


def _experts(fields: Fields) -> int:
    """The parameters of all routed experts; 0 without experts."""
    count, active = _size(fields, *_EXPERT_NAMES), _size(fields, *_ACTIVE_NAMES)
    if not count:
        return 0
    width = _size(fields, *_EXPERT_WIDTHS)
    hidden = _size(fields, "routed_expert_hidden_size") or _size(fields, *HIDDEN_NAMES)
    if not (active and width and hidden):
        raise _Unread
    return 0 if active >= count else _expert_layers(fields) * count * 3 * hidden * width


def _expert_layers(fields: Fields) -> int:
    """The number of layers with routed experts."""
    num_layers = _size(fields, *LAYER_NAMES)
    listed = fields.get("moe_layers_enum")
    if isinstance(listed, str):
        return min(num_layers, listed.count(",") + 1)
    if isinstance(words := fields.get("mlp_layer_types"), list | tuple):
        return sum(word == "sparse" for word in words[:num_layers])
    if period := _size(fields, "expert_layer_period"):
        offset = _size(fields, "expert_layer_offset")
        return sum(index % period == offset for index in range(min(num_layers, MAX_LAYERS)))
    only_dense = fields.get("mlp_only_layers") or ()
    if not isinstance(only_dense, list | tuple):
        raise _Unread
    dense, step = _size(fields, "first_k_dense_replace"), _size(fields, *_STEP_NAMES) or 1
    return max(0, (num_layers - dense) // step - len(only_dense))


def estimated_parameters(config: Mapping[str, Any], geometry: Geometry) -> int | None:
    """The text model's parameters, within a few percent; None for a config that isn't understood whole.

    Only decoders with attention and a feed-forward layer in each layer are estimated.
    """
    fields = Fields(config)
    if not geometry.groups or geometry.cached_layers != geometry.num_layers or geometry.state is not None:
        return None
    if fields.get("num_kv_shared_layers", "block_configs") or unread_fields(config):
        return None
    try:
        return _estimate(fields, geometry)
    except _Unread:
        return None


def _estimate(fields: Fields, geometry: Geometry) -> int:
    hidden, vocabulary = _size(fields, *HIDDEN_NAMES), _size(fields, "vocab_size")
    inner = _size(fields, *_INNER_NAMES)
    if not inner and fields.model_type in _FOURFOLD:
        inner = 4 * hidden
    experts = _experts(fields)
    with_experts = _expert_layers(fields) if experts else 0
    dense = geometry.num_layers - with_experts
    if not hidden or not vocabulary or (dense and not inner):
        raise _Unread
    matrices = 2 if fields.model_type in _PLAIN else 3
    tied = fields.get("tie_word_embeddings")
    if not isinstance(tied, bool):
        tied = fields.model_type in _TIED and fields.model_type not in _UNTIED
    attention = sum(group.layers * _attention(fields, group, hidden) for group in geometry.groups)
    return (
        vocabulary * hidden * (1 if tied else 2)
        + attention
        + dense * matrices * hidden * inner
        + experts
        + with_experts * _beside_experts(fields, hidden)
    )


def _attention(fields: Fields, group: LayerGroup, hidden: int) -> int:
    """Parameters of one layer's attention: Q, K, V and output. A latent has down- and up-projections instead."""
    if group.uncompressed is None:
        out = group.query_heads * group.v_dim
        return hidden * (group.query_heads * group.k_dim + group.kv_heads * (group.k_dim + group.v_dim) + out)
    heads, key, value = group.uncompressed
    rank = _size(fields, "q_lora_rank")
    query = rank * (hidden + heads * key) if rank else hidden * heads * key
    made = hidden * (group.k_dim + group.v_dim)
    return query + made + group.k_dim * heads * (key - group.v_dim + value) + heads * value * hidden


def _beside_experts(fields: Fields, hidden: int) -> int:
    """Parameters of one layer's router and shared experts."""
    width = _size(fields, *_SHARED_WIDTHS) or _size(fields, *_SHARED_NAMES) * _size(fields, "moe_intermediate_size")
    if fields.model_type in ("llama4_text", "gemma4_text"):  # a dense feed-forward besides the experts
        width = _size(fields, "intermediate_size")
    return hidden * _size(fields, *_EXPERT_NAMES) + 3 * hidden * width
