"""Parameter counts, given or estimated from the config, and the fraction that a step reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvviz.calculator.fields import MAX_LAYERS, Fields
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
)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameter counts. `experts`: all routed experts together. A token uses the fraction `share` of them.

    Every step reads all other parameters.
    """

    total: int
    experts: int = 0
    share: float = 1.0


def parameters_of(config: Mapping[str, Any], total: int) -> Parameters:
    """The parameters of a model, `total` of them. Raises `ModelError` for invalid fields."""
    fields = Fields(config)
    experts = experts_of(fields)
    if experts is None or not 0 < experts < total:
        return Parameters(total=total)
    count, active = fields.need(*_EXPERT_NAMES), fields.need(*_ACTIVE_NAMES)
    return Parameters(total=total, experts=experts, share=active / count)


def experts_of(fields: Fields) -> int | None:
    """The parameters of all routed experts, or None without experts. Raises `ModelError` for invalid fields."""
    count, active = fields.number(*_EXPERT_NAMES), fields.number(*_ACTIVE_NAMES)
    width = fields.number("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
    hidden = fields.number("routed_expert_hidden_size") or fields.number(*HIDDEN_NAMES)
    if not (count and active and width and hidden) or active >= count:
        return None
    return expert_layers(fields) * count * 3 * hidden * width


def expert_layers(fields: Fields) -> int:
    """The number of layers with routed experts. Raises `ModelError` for invalid fields."""
    num_layers = fields.number(*LAYER_NAMES) or 0
    listed = fields.get("moe_layers_enum")
    if isinstance(listed, str):
        return min(num_layers, listed.count(",") + 1)
    if period := fields.number("expert_layer_period"):
        offset = fields.get("expert_layer_offset") or 0
        return sum(index % period == offset for index in range(min(num_layers, MAX_LAYERS)))
    dense = fields.get("first_k_dense_replace") or 0
    step = fields.number("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq") or 1
    only_dense = len(fields.items("mlp_only_layers") or ())
    return max(0, (num_layers - (dense if isinstance(dense, int) else 0)) // step - only_dense)


def estimated_parameters(config: Mapping[str, Any], geometry: Geometry) -> int | None:
    """The text model's parameters, within a few percent; None if the config isn't of an ordinary decoder.

    Raises `ModelError` for invalid fields.
    """
    fields = Fields(config)
    hidden, vocabulary = fields.number(*HIDDEN_NAMES), fields.number("vocab_size")
    if not hidden or not vocabulary or not geometry.groups or geometry.cached_layers != geometry.num_layers:
        return None
    if geometry.state is not None or fields.get("num_kv_shared_layers", "block_configs"):
        return None
    inner = fields.number(*_INNER_NAMES) or 4 * hidden
    matrices = 2 if fields.model_type in _PLAIN else 3
    tied = fields.flag("tie_word_embeddings", fields.model_type in _TIED and fields.model_type not in _UNTIED)
    with_experts = expert_layers(fields) if experts_of(fields) else 0
    dense = geometry.num_layers - with_experts
    attention = sum(group.layers * _attention(fields, group, hidden) for group in geometry.groups)
    return (
        vocabulary * hidden * (1 if tied else 2)
        + attention
        + dense * matrices * hidden * inner
        + (experts_of(fields) or 0)
        + with_experts * _beside_experts(fields, hidden)
    )


def _attention(fields: Fields, group: LayerGroup, hidden: int) -> int:
    """Parameters of one layer's attention: Q, K, V and output. A latent has down- and up-projections instead."""
    if group.uncompressed is None:
        out = group.query_heads * group.v_dim
        return hidden * (group.query_heads * group.k_dim + group.kv_heads * (group.k_dim + group.v_dim) + out)
    heads, key, value = group.uncompressed
    rank = fields.number("q_lora_rank")
    query = rank * (hidden + heads * key) if rank else hidden * heads * key
    made = hidden * (group.k_dim + group.v_dim)
    return query + made + group.k_dim * heads * (key - group.v_dim + value) + heads * value * hidden


def _beside_experts(fields: Fields, hidden: int) -> int:
    """Parameters of one layer's router and shared experts."""
    count = fields.number("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts") or 0
    shared = fields.number("n_shared_experts", "num_shared_experts") or 0
    width = fields.number("shared_expert_intermediate_size", "share_expert_dim")
    width = width or shared * (fields.number("moe_intermediate_size") or 0)
    if fields.model_type in ("llama4_text", "gemma4_text"):  # a dense feed-forward besides the experts
        width = fields.number("intermediate_size") or 0
    return hidden * count + 3 * hidden * width
