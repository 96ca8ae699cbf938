"""How many weights a model has, which of them are experts', and which a step reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvviz.calculator.fields import MAX_LAYERS, Fields
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Numbers of weights. `experts`: those of all routed experts together, of which a token uses the share `share`.

    All others are read in every step.
    """

    total: int
    experts: int = 0
    share: float = 1.0


def parameters_of(config: Mapping[str, Any], total: int) -> Parameters:
    """The weights of a model with so many parameters in `total`. Raises `ModelError` for senseless fields."""
    fields = Fields(config)
    experts = experts_of(fields)
    if experts is None or not 0 < experts < total:
        return Parameters(total=total)
    count, active = fields.need(*_EXPERT_NAMES), fields.need(*_ACTIVE_NAMES)
    return Parameters(total=total, experts=experts, share=active / count)


def experts_of(fields: Fields) -> int | None:
    """Parameters of all routed experts, or None where there are none. Raises `ModelError` for senseless fields."""
    count, active = fields.number(*_EXPERT_NAMES), fields.number(*_ACTIVE_NAMES)
    width = fields.number("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
    hidden = fields.number("routed_expert_hidden_size") or fields.number(*HIDDEN_NAMES)
    if not (count and active and width and hidden) or active >= count:
        return None
    return expert_layers(fields) * count * 3 * hidden * width


def expert_layers(fields: Fields) -> int:
    """Layers with routed experts. Raises `ModelError` for senseless fields."""
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
