"""Layer patterns: which layers have full attention, which a window, and which a state instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from kvviz.calculator.fields import MAX_LAYERS, Fields, whole
from kvviz.errors import ModelError
from kvviz.messages import shown

#: `both`: attention and a state in one layer. `none`: neither.
Role = Literal["full", "sliding", "chunked", "state", "both", "both_sliding", "none"]

_ROLES: dict[str, Role] = {
    "full_attention": "full",
    "attention": "full",
    "full": "full",
    "global": "full",
    "global_attention": "full",
    "indexed_attention": "full",
    "deepseek_sparse_attention": "full",
    "minimax_m3_sparse": "full",
    "*": "full",
    "G": "full",
    "sliding_attention": "sliding",
    "sliding_window": "sliding",
    "sliding": "sliding",
    "local": "sliding",
    "local_attention": "sliding",
    "L": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "state",
    "linear": "state",
    "mamba": "state",
    "mamba2": "state",
    "recurrent": "state",
    "conv": "state",
    "M": "state",
    "hybrid": "both",
    "hybrid_sliding": "both_sliding",
    "moe": "none",
    "mlp": "none",
    "sparse": "none",
    "dense": "none",
    "-": "none",
    "E": "none",
}
#: Model types whose config must name the attention layers.
_MIXED = frozenset({"bamba", "jamba", "lfm2", "lfm2_moe"})
#: Model types with a state in every layer and no attention.
_STATES_ONLY = ("mamba", "mamba2", "falcon_mamba", "rwkv", "rwkv6", "rwkv7", "xlstm")
#: Model types with both in every layer.
_BOTH = ("falcon_h1",)
#: Patterns that a config may omit, as (period, index): in each period, the layer at that index has full attention and
#: the others have a window. Source: configuration classes of transformers 5.24.
_PERIODS = {
    "gemma2": (2, 1),
    "gemma3": (6, 5),
    "gemma3_text": (6, 5),
    "gemma3n": (5, 4),
    "gemma3n_text": (5, 4),
    "gemma4_text": (6, 5),
    "cohere2": (4, 3),
    "gpt_oss": (2, 1),
    "olmo3": (4, 3),
    "exaone4": (4, 3),
    "afmoe": (4, 3),
    "cwm": (4, 0),
    "granite_swa": (4, 0),
    "granitemoe_swa": (4, 0),
}
#: Windows in tokens that a config may omit, from the same source.
DEFAULT_WINDOWS = {
    "mistral": 4_096,
    "gemma2": 4_096,
    "gemma3": 4_096,
    "gemma3_text": 4_096,
    "gemma3n": 512,
    "gemma3n_text": 512,
    "gemma4_text": 512,
    "cohere2": 4_096,
    "gpt_oss": 128,
    "olmo3": 4_096,
    "cwm": 8_192,
}
#: Attention layers in each layer that the config counts. Source: transformers 5.24.
_ATTENTIONS = {"longcat_flash": 2}
_LINEAR_INTERVALS = {"qwen3_next": 4, "qwen3_5_text": 4, "qwen3_5_moe_text": 4, "qwen3_5": 4, "qwen3_5_moe": 4}
WINDOW_NAMES = ("sliding_window", "sliding_window_size", "attention_window_size")
LAYER_NAMES = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_decoder_layers",
    "decoder_layers",
    "num_transformer_layers",
)


def roles_of(fields: Fields) -> list[Role]:
    """The role of each layer. Raises `ModelError` for a missing number of layers or an unknown layer type."""
    words = _words(fields)
    is_counted_by_list = words is not None and (fields.model_type == "nemotron_h" or not fields.get(*LAYER_NAMES))
    num_layers = len(words) if words is not None and is_counted_by_list else _num_layers(fields)
    if num_layers > MAX_LAYERS:
        raise ModelError(
            f"The config must have at most {MAX_LAYERS:,} layers (got {num_layers:,}); use a model's unmodified "
            "config.json.",
            code="bad_config",
            field="num_hidden_layers",
        )
    if words is not None:
        if len(words) < num_layers:
            raise ModelError(
                f"The config has {num_layers:,} layers, but types for only {len(words):,}; add the others.",
                code="bad_config",
                field="layer_types",
            )
        roles = [_role(word, index) for index, word in enumerate(words[:num_layers])]
        if fields.model_type == "recurrent_gemma":  # it calls windowed attention just attention
            roles = ["sliding" if role == "full" else role for role in roles]
        return roles
    for rule in (_by_halves, _by_states, _by_chunks, _by_windows):
        is_full = rule(fields, num_layers)
        if is_full is not None:
            return is_full
    return ["full"] * num_layers


def _num_layers(fields: Fields) -> int:
    attentions = _ATTENTIONS.get(fields.model_type, 1)
    if attentions > 1 and (num_layers := fields.number("num_layers")):  # num_hidden_layers counts attention layers
        return num_layers * attentions
    return fields.need(*LAYER_NAMES)


def _role(word: Any, index: int) -> Role:
    role = _ROLES.get(word) if isinstance(word, str) else None
    if role is None:
        raise ModelError(
            f"Layer {index} of the config has the unknown type {shown(word)}; use a custom geometry.",
            code="bad_config",
            field="layer_types",
        )
    return role


def _words(fields: Fields) -> Sequence[Any] | None:
    words = fields.items("layer_types", "layers_block_type")
    if words is None and (letters := fields.get("hybrid_override_pattern")) is not None:
        words = list(letters[: MAX_LAYERS + 1]) if isinstance(letters, str) else fields.items("hybrid_override_pattern")
    if words is None and (pattern_of_types := fields.items("block_types", "_block_types")):
        words = (pattern_of_types * MAX_LAYERS)[: fields.need(*LAYER_NAMES)]
    if words is None and (numbers := fields.items("hybrid_layer_pattern")) is not None:
        words = ["sliding" if number else "full" for number in numbers]
    if words is None and (numbers := fields.items("attn_type_list")) is not None:
        words = ["full" if number else "linear" for number in numbers]
    return words


def _by_halves(fields: Fields, num_layers: int) -> list[Role] | None:
    """Phi-4 Flash: states and windows in turn, then one layer with full attention, whose cache all others share.

    Source: the model's published code (SambaY, arXiv:2507.06607).
    """
    if fields.model_type != "phi4flash":
        return None
    period, half = fields.number("mb_per_layer") or 2, num_layers // 2
    roles: list[Role] = []
    for index in range(num_layers):
        is_state = index % period == 0
        if index <= half + 1:
            roles.append("state" if is_state else "sliding" if index < half else "full")
        else:
            roles.append("none")
    return roles


def _by_states(fields: Fields, num_layers: int) -> list[Role] | None:
    if fields.model_type in _STATES_ONLY:
        return ["state"] * num_layers
    if fields.model_type in _BOTH:
        return ["both"] * num_layers
    has_attention: Callable[[int], bool]
    linear = fields.part("linear_attn_config")
    if (from_one := linear.items("full_attn_layers")) is not None:
        has_attention = {whole(index, "full_attn_layers") - 1 for index in from_one}.__contains__
    elif (indices := fields.items("full_attn_idxs", "attn_layer_indices")) is not None:
        has_attention = {whole(index, "full_attn_idxs", 0) for index in indices}.__contains__
    elif period := fields.number("attn_layer_period"):
        offset = whole(fields.get("attn_layer_offset") or 0, "attn_layer_offset", 0)
        has_attention = lambda index: index % period == offset  # noqa: E731
    elif interval := (
        fields.number("full_attention_interval", "layer_group_size") or _LINEAR_INTERVALS.get(fields.model_type)
    ):
        has_attention = lambda index: (index + 1) % interval == 0  # noqa: E731
    elif fields.model_type in _MIXED:
        raise ModelError(
            f"Only some layers of a {fields.model_type} model have attention, and the config doesn't say which; use a "
            "model's unmodified config.json.",
            code="bad_config",
            field="layer_types",
        )
    else:
        return None
    return ["full" if has_attention(index) else "state" for index in range(num_layers)]


def _by_chunks(fields: Fields, num_layers: int) -> list[Role] | None:
    """Llama 4: layers without rotary positions have full attention, the others attend to their own chunk."""
    if not fields.number("attention_chunk_size"):
        return None
    rotary = fields.items("no_rope_layers")
    if not rotary and not fields.model_type.startswith("llama4"):
        return ["chunked"] * num_layers
    if not rotary:
        interval = fields.number("no_rope_layer_interval") or 4
        rotary = [(index + 1) % interval != 0 for index in range(num_layers)]
    if len(rotary) < num_layers or any(flag not in (0, 1) for flag in rotary):
        raise ModelError(
            f"no_rope_layers in the config must have 0 or 1 for each of the {num_layers:,} layers; use a model's "
            "unmodified config.json.",
            code="bad_config",
            field="no_rope_layers",
        )
    return ["chunked" if rotary[index] else "full" for index in range(num_layers)]


def _by_windows(fields: Fields, num_layers: int) -> list[Role] | None:
    if window_of(fields) is None:
        return None
    if first := fields.get("max_window_layers"):
        first = whole(first, "max_window_layers", 0)
        return ["sliding" if index >= first else "full" for index in range(num_layers)]
    letters = fields.get("sliding_window_pattern", "_sliding_window_pattern")
    if isinstance(letters, str) and letters:
        return [_role(letters[index % len(letters)], index) for index in range(num_layers)]
    period, full_index = _PERIODS.get(fields.model_type, (0, 0))
    given = fields.number("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
    if given:
        period, full_index = given, (given - 1 if full_index or not period else 0)
    if not period:
        return ["sliding"] * num_layers
    return ["full" if index % period == full_index else "sliding" for index in range(num_layers)]


def window_of(fields: Fields) -> int | None:
    """The window of a sliding layer in tokens, including the current one; None without a window or if it is off."""
    needs_switch = fields.model_type.startswith(("qwen2", "qwen3", "smollm3"))
    if not fields.flag("use_sliding_window", default=not needs_switch):
        return None
    if any(name in fields.values for name in WINDOW_NAMES):
        value = fields.get(*WINDOW_NAMES)
        return None if not value or value == -1 else whole(value, "sliding_window")
    return DEFAULT_WINDOWS.get(fields.model_type)
