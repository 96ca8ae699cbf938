"""The sizes of a layer's entries and of a fixed state, from the different spellings of configs."""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.calculator.fields import HEAD_DIM_NAMES, Fields, missing, whole
from kvviz.calculator.layers import FixedState, LayerGroup, StateType
from kvviz.calculator.patterns import Role, window_of
from kvviz.errors import ModelError

HEAD_NAMES = (
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_heads",
    "num_query_heads",
    "decoder_attention_heads",
    "num_decoder_attention_heads",
    "attention_heads",
)
KV_HEAD_NAMES = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_kv_heads",
    "n_head_kv",
    "num_attention_groups",
    "num_query_groups",
)
HIDDEN_NAMES = ("hidden_size", "n_embd", "d_model", "dim", "model_dim")
#: Default head dimension of Gemma 4's layers with full attention. Source: transformers 5.24.
GEMMA4_GLOBAL_DIM = 512


def layers_of(fields: Fields, roles: Sequence[Role]) -> list[LayerGroup]:
    """One group of one layer for each layer that stores its own entries, in order. Raises `ModelError`."""
    own = [(index, role) for index, role in enumerate(roles) if role not in ("state", "none")]
    if not own:
        return []
    blocks = fields.items("block_configs")
    if blocks is not None:
        return _by_blocks(fields, blocks, len(roles))
    shared = _shared(fields, len(roles))
    for names in (HEAD_NAMES, KV_HEAD_NAMES):
        _check_length(fields, names, len(roles))
    is_listed = "per_layer_config" in fields or fields.items(*HEAD_NAMES, *KV_HEAD_NAMES, or_number=True) is not None
    by_role = {} if is_listed else {role: _layer(fields, 0, role) for _, role in own}
    return [
        by_role.get(role) or _layer(fields, index, role)
        for index, role in own
        if index not in shared and not _is_without_heads(fields, index)
    ]


def _check_length(fields: Fields, names: Sequence[str], num_layers: int) -> None:
    listed = fields.items(*names, or_number=True)
    if listed is not None and len(listed) < num_layers:
        raise ModelError(
            f"The config has {num_layers:,} layers, but {names[0]} has only {len(listed):,} items; add the others.",
            code="bad_config",
            field=names[0],
        )


def _is_without_heads(fields: Fields, index: int) -> bool:
    """Whether the config lists 0 KV heads for this layer."""
    listed = fields.items(*KV_HEAD_NAMES, or_number=True)
    return listed is not None and index < len(listed) and listed[index] == 0


def _shared(fields: Fields, num_layers: int) -> set[int]:
    modes = fields.items("kv_sharing_modes")
    if modes is not None:
        return {index for index, mode in enumerate(modes) if mode == "reuse"}
    last = fields.get("num_kv_shared_layers")
    if last:
        return set(range(max(0, num_layers - whole(last, "num_kv_shared_layers")), num_layers))
    if fields.flag("use_cla"):
        factor = fields.number("cla_share_factor") or 1
        return {index for index in range(num_layers) if index % factor}
    return set()


def is_shared(fields: Fields) -> bool:
    return bool(_shared(fields, 2**12))


def query_heads_of(fields: Fields, index: int = 0) -> int:
    """Query heads of a layer. Raises `ModelError` if the config has none."""
    listed = fields.items(*HEAD_NAMES, or_number=True)
    if listed:
        return whole(listed[index], "num_query_heads")
    return fields.need(*HEAD_NAMES)


def _kv_heads(fields: Fields, index: int, query_heads: int) -> int:
    """KV heads of a layer. By default, as many as query heads."""
    if "multi_query" in fields and not fields.flag("new_decoder_architecture"):
        return 1 if fields.flag("multi_query") else query_heads
    if fields.flag("multi_query_attention"):
        return fields.number("multi_query_group_num") or 1
    attention = fields.part("attn_config")
    if "kv_n_heads" in attention:
        return attention.number("kv_n_heads") or query_heads
    if attention.get("attn_type") == "multiquery_attention":
        return 1
    listed = fields.items(*KV_HEAD_NAMES, or_number=True)
    if listed:
        return whole(listed[index], "num_kv_heads")
    if fields.model_type == "falcon" and not fields.flag("new_decoder_architecture"):
        return query_heads if "multi_query" in fields else 1
    return query_heads if fields.get(*KV_HEAD_NAMES) is None else fields.need(*KV_HEAD_NAMES)


def head_dim_of(fields: Fields, query_heads: int) -> int:
    """The head dimension: as in the config, else hidden size ÷ query heads. Raises `ModelError`."""
    given = fields.number(*HEAD_DIM_NAMES)
    if given:
        return given
    hidden = fields.number(*HIDDEN_NAMES)
    if hidden is None:
        raise missing(("head_dim", *HIDDEN_NAMES))
    if hidden % query_heads:
        raise ModelError(
            f"The config has no head_dim, and its hidden size {hidden:,} is not a multiple of its {query_heads:,} "
            "heads; add head_dim.",
            code="bad_config",
            field="head_dim",
        )
    return hidden // query_heads


def _layer(fields: Fields, index: int, role: Role) -> LayerGroup:
    fields = fields.at_layer(index)
    query_heads = query_heads_of(fields, index)
    is_sliding = role in ("sliding", "both_sliding")
    window = window_of(fields) if is_sliding else fields.number("attention_chunk_size") if role == "chunked" else None
    if role != "full" and role != "both" and window is None:
        raise missing(("sliding_window",) if is_sliding else ("attention_chunk_size",))
    if rank := fields.number("kv_lora_rank"):
        return _latent(fields, query_heads, rank, window)
    kv_heads, dim = _kv_heads(fields, index, query_heads), 0
    value_dim = fields.number("v_head_dim")
    if is_sliding:
        other = fields.part("attention_other_setting")
        of_window = fields.number("swa_num_key_value_heads") or other.number("num_attention_groups")
        kv_heads = of_window or (2 * kv_heads if fields.model_type == "mimo_v2_flash" else kv_heads)
        dim = fields.number("swa_head_dim") or other.number("head_dim") or 0
        value_dim = fields.number("swa_v_head_dim") or value_dim
    elif fields.model_type.startswith(("gemma4", "diffusion_gemma", "embedding_gemma2")):
        dim = fields.number("global_head_dim") or (0 if "per_layer_config" in fields else GEMMA4_GLOBAL_DIM)
        if fields.flag("attention_k_eq_v"):
            kv_heads = fields.number("num_global_key_value_heads") or kv_heads
    dim = dim or head_dim_of(fields, query_heads)
    return LayerGroup(
        layers=1,
        type="sliding" if is_sliding else "chunked" if role == "chunked" else "full",
        kv_heads=kv_heads,
        k_dim=dim,
        v_dim=value_dim or dim,
        window=window,
        query_heads=query_heads,
    )


def _latent(fields: Fields, query_heads: int, rank: int, window: int | None) -> LayerGroup:
    """Latent attention: one latent and one rotary part per token, from which all heads compute their K and V."""
    rotary = fields.need("qk_rope_head_dim")
    unrotated = fields.number("qk_nope_head_dim")
    value = fields.number("v_head_dim")
    if value is None and fields.model_type == "minicpm3":  # its class divides the hidden size by the heads
        value = fields.need("hidden_size") // query_heads
    return LayerGroup(
        layers=1,
        type="mla_latent",
        kv_heads=1,
        k_dim=rank,
        v_dim=rotary,
        window=window,
        query_heads=query_heads,
        uncompressed=(query_heads, unrotated + rotary, value) if unrotated and value else None,
    )


def _by_blocks(fields: Fields, blocks: Sequence[object], num_layers: int) -> list[LayerGroup]:
    """Configs that describe each block separately (Nemotron NAS): some without attention, each with its own heads."""
    if len(blocks) < num_layers:
        raise ModelError(
            f"The config has {num_layers:,} layers, but describes only {len(blocks):,} blocks; add the others.",
            code="bad_config",
            field="block_configs",
        )
    query_heads = query_heads_of(fields)
    dim = head_dim_of(fields, query_heads)
    layers = []
    for block in blocks[:num_layers]:
        part = Fields({})
        part.values = block if isinstance(block, dict) else {}
        attention = part.part("attention")
        if attention.flag("no_op") or attention.flag("replace_with_linear"):
            continue
        in_group = attention.need("n_heads_in_group")
        window = attention.number("window_length")
        layers.append(
            LayerGroup(
                layers=1,
                type="full" if window is None else "sliding",
                kv_heads=max(1, query_heads // in_group),
                k_dim=dim,
                v_dim=dim,
                window=window,
                query_heads=query_heads,
            )
        )
    return layers


def state_of(fields: Fields, num_layers: int) -> FixedState | None:
    """The fixed state of `num_layers` layers; None if the config doesn't give its size. Raises `ModelError`."""
    for find in (_delta_net, _kimi, _mamba2, _mamba, _short_convolution, _lightning):
        found = find(fields)
        if found is not None:
            kind, recurrent, channels, width = found
            return FixedState(
                layers=num_layers, type=kind, recurrent=recurrent, conv_channels=channels, conv_width=width
            )
    return None


_Found = tuple[StateType, int, int, int] | None


def _delta_net(fields: Fields) -> _Found:
    """Gated DeltaNet (Qwen3-Next, Qwen3.5, OLMo hybrid): value heads × key × value; q, k and v pass a convolution."""
    key, value = fields.number("linear_key_head_dim"), fields.number("linear_value_head_dim")
    heads, value_heads = fields.number("linear_num_key_heads"), fields.number("linear_num_value_heads")
    if not (key and value and heads and value_heads):
        return None
    width = fields.number("linear_conv_kernel_dim") or 4
    return "linear", value_heads * key * value, 2 * heads * key + value_heads * value, width


def _kimi(fields: Fields) -> _Found:
    """Delta attention of Kimi Linear and Bailing: heads × dimension², and three convolutions."""
    linear = fields.part("linear_attn_config")
    heads = linear.number("num_heads") or fields.number("linear_num_heads")
    dim = linear.number("head_dim") or fields.number("linear_head_dim")
    if not (heads and dim):
        return None
    width = linear.number("short_conv_kernel_size") or fields.number("linear_conv_kernel_dim") or 4
    return "linear", heads * dim * dim, 3 * heads * dim, width


def _mamba2(fields: Fields) -> _Found:
    """Mamba-2 (also Falcon H1, Bamba, Granite 4, Zamba2, Nemotron-H): heads × dimension × state."""
    if fields.model_type == "zamba":  # heads of the first Mamba
        return None
    is_mamba2 = fields.model_type == "mamba2"
    heads = fields.number("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", *(["num_heads"] if is_mamba2 else []))
    size = fields.number("mamba_d_state", "ssm_state_size", "state_size")
    if not (heads and size):
        return None
    dim = fields.number("mamba_d_head", "mamba_head_dim", "mamba_headdim", *(["head_dim"] if is_mamba2 else []))
    if dim is None:
        inner = (fields.number("mamba_expand", "expand") or 2) * fields.need("hidden_size", "d_model")
        dim = inner // heads
    groups = fields.number("mamba_n_groups", "mamba_ngroups", "n_groups") or 1
    width = fields.number("mamba_d_conv", "conv_kernel", "mamba_d_conv") or 4
    return "ssm", heads * dim * size, heads * dim + 2 * groups * size, width


def _mamba(fields: Fields) -> _Found:
    """Mamba (also Jamba, FalconMamba): inner width × state."""
    size = fields.number("mamba_d_state", "state_size", "ssm_state_size")
    if not size:
        return None
    inner = fields.number("intermediate_size") if fields.model_type in ("mamba", "falcon_mamba") else None
    if inner is None:
        inner = (fields.number("mamba_expand", "expand") or 2) * fields.need("hidden_size", "d_model")
    return "ssm", inner * size, inner, fields.number("mamba_d_conv", "conv_kernel") or 4


def _short_convolution(fields: Fields) -> _Found:
    width = fields.number("conv_L_cache")
    return ("conv", 0, fields.need("hidden_size"), width) if width else None


def _lightning(fields: Fields) -> _Found:
    """Lightning attention (MiniMax, Bailing): heads × dimension², no convolution."""
    heads = fields.number("num_attention_heads")
    if not heads or not fields.model_type.startswith(("minimax", "bailing")):
        return None
    dim = fields.number("head_dim") or fields.need("hidden_size") // heads
    return "linear", heads * dim * dim, 0, 0
