"""What recurrent and convolution layers keep for a sequence, by the fields of their families."""

from __future__ import annotations

from kvviz.calculator.fields import Fields
from kvviz.calculator.layers import FixedState, StateType


def state_of(fields: Fields, num_layers: int) -> FixedState | None:
    """The fixed state of `num_layers` layers, or None where the config does not tell its size. Raises `ModelError`."""
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
    is_plain = fields.model_type == "mamba2"
    heads = fields.number("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", *(["num_heads"] if is_plain else []))
    size = fields.number("mamba_d_state", "ssm_state_size", "state_size")
    if not (heads and size):
        return None
    dim = fields.number("mamba_d_head", "mamba_head_dim", "mamba_headdim", *(["head_dim"] if is_plain else []))
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
    """LFM2: the last inputs of a short convolution, nothing recurrent."""
    width = fields.number("conv_L_cache")
    return ("conv", 0, fields.need("hidden_size"), width) if width else None


def _lightning(fields: Fields) -> _Found:
    """Lightning attention (MiniMax, Bailing): heads × dimension², no convolution."""
    heads = fields.number("num_attention_heads")
    if not heads or not fields.model_type.startswith(("minimax", "bailing")):
        return None
    dim = fields.number("head_dim") or fields.need("hidden_size") // heads
    return "linear", heads * dim * dim, 0, 0
