"""From a `config.json` to a geometry, or to the reason why the model can't be calculated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvviz.calculator.fields import ENCODER_DECODERS, ENCODERS, KNOWN_TYPES, Fields, printable, whole
from kvviz.calculator.layers import Geometry, RefusedKind, grouped, kind_of
from kvviz.calculator.patterns import DEFAULT_WINDOWS, WINDOW_NAMES, roles_of
from kvviz.calculator.shapes import KV_HEAD_NAMES, is_shared, layers_of, state_of
from kvviz.errors import ModelError
from kvviz.messages import clipped

_COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")


def refuse_without_cache(fields: Fields) -> None:
    """Raise `ModelError`, with `kind` in its details, if the model's cache doesn't hold one entry per token."""
    if "compress_ratios" in fields or any(word in _COMPRESSED for word in fields.items("layer_types") or ()):
        raise _refusal("compressed_sparse", _compressed(fields))
    kinds = {fields.model_type, fields.outer_type}
    # The decoder of such a model on its own (BartForCausalLM) is an ordinary decoder.
    is_whole = bool(fields.outer.get("is_encoder_decoder", bool(kinds & ENCODER_DECODERS)))
    if is_whole:
        raise _refusal("encoder_decoder", _encoder_decoder(fields))
    if kinds & ENCODERS and not fields.flag("is_decoder"):
        raise _refusal(
            "encoder_only",
            f"{fields.model_type} is an encoder: it reads a whole text at once and generates no tokens, so it has no "
            "KV cache; use the config of a decoder.",
        )


def _refusal(kind: RefusedKind, sentence: str) -> ModelError:
    return ModelError(sentence, code="refused", kind=kind)


def _compressed(fields: Fields) -> str:
    """The reason, with the growth beyond the window in 16 bits: bytes of an entry ÷ the tokens that share it."""
    text = (
        f"{fields.model_type} compresses its context: beyond a window, several tokens share one entry, so its cache "
        "has no fixed size per token, and its layout depends on the engine"
    )
    ratios, dim = fields.items("compress_ratios"), fields.number("head_dim")
    if ratios and dim and all(isinstance(ratio, int) and 0 <= ratio <= 2**20 for ratio in ratios):
        layers = fields.number("num_hidden_layers") or len(ratios)
        index = fields.number("index_head_dim") or 0
        finest = min((ratio for ratio in ratios if ratio), default=0)
        growth = sum(2 * (dim + (index if ratio == finest else 0)) / ratio for ratio in ratios[:layers] if ratio)
        text += f"; in transformers it grows by {growth:,.0f} bytes per token in 16 bits"
    return text + "; choose a model with ordinary or latent attention."


def _encoder_decoder(fields: Fields) -> str:
    """The reason, with the bytes per token of the decoder in 16 bits. A token of the encoder takes the same."""
    text = (
        f"{fields.model_type} is an encoder-decoder: its decoder caches its own tokens and the encoder's whole input, "
        "so it has no single context"
    )
    layers = fields.number("num_decoder_layers", "decoder_layers", "num_hidden_layers", "num_layers")
    heads = fields.number("decoder_attention_heads", "num_heads", "num_attention_heads")
    kv_heads = fields.number(*KV_HEAD_NAMES) or heads
    width = fields.number("d_model", "hidden_size")
    dim = fields.number("d_kv", "head_dim") or (width // heads if width and heads else None)
    if layers and kv_heads and dim:
        text += f" ({4 * layers * kv_heads * dim:,} bytes per token of either, in 16 bits)"
    return text + "; choose a decoder-only model."


_CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length", "n_ctx")
#: Contexts in tokens that a config may omit. Source: configuration classes of transformers 5.24.
_DEFAULT_CONTEXTS = {"falcon": 2_048}
#: ALiBi models. Their config has the training context, which is not a limit.
_WITHOUT_LIMIT = ("bloom",)
#: Sizes that determine the cache. A warning lists those that the config omits.
_SIZES = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "head_dim")
#: Layers that attend to image tokens. They store nothing for a text token.
_CROSS_NAME = "cross_attention_layers"


def geometry_of_config(config: Mapping[str, Any], name: str | None = None) -> Geometry:
    """The geometry of a model from its parsed `config.json`, under `name` or the config's own name.

    Raises `ModelError` for a missing or invalid field. For a model whose cache doesn't hold one entry per token
    (encoders, encoder-decoders, compressed sparse attention), the error has the `kind` in its details.
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
        raise ModelError("No layer of this config has a KV cache; use the config of a decoder.", code="bad_config")
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


#: A field with such a name may say which layers cache what.
_PATTERN = re.compile(
    "layer|window|sliding|period|interval|every|pattern|stride|share|skip|cross|mamba|ssm|state|recurrent|conv|linear"
    "|latent|lora|compress|attn|attention|block_"
)
#: Fields with such a name that change no cache.
_NO_PATTERN = re.compile(
    "norm|drop|bias|eps|init|scal|rope|token|vocab|quant|dtype|impl|softcap|clip|position|moe|expert|mlp|ffn|max_window"
    "|output|router|logit|hidden_act|multiplier|q_lora"
)


def _bounds(fields: Fields, groups: Any) -> list[str]:
    """Sentences on the fields of an unknown model type that may describe its layers but weren't read."""
    unread = [
        name
        for name, value in fields.values.items()
        if name not in fields.read and _PATTERN.search(name) and not _NO_PATTERN.search(name) and _may_be_pattern(value)
    ]
    sentences = []
    if unread:
        names = ", ".join(clipped(printable(name)) for name in unread[:4]) + (", …" if len(unread) > 4 else "")
        sentences.append(
            f"Not understood: {names}. The total assumes that each layer caches its own entries, so it is an upper "
            "bound if these fields describe windows, states or shared layers, and a lower bound if a layer has several "
            "attentions."
        )
    if groups and all(group.type == "sliding" for group in groups) and not fields.items("layer_types"):
        sentences.append(
            "Each layer was read as having a window, so the total is a lower bound if some layers have full attention."
        )
    return sentences


def _may_be_pattern(value: Any) -> bool:
    if isinstance(value, bool | float | str):
        return isinstance(value, bool) and value
    return bool(value)


def _kind(fields: Fields, roles: Any, groups: Any, state: Any, max_context: int | None, num_states: int) -> Any:
    if num_states and state is None:  # the config doesn't give its size
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
    """Indexer keys of sparse attention, besides the latent: layers that have them, and elements per token."""
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
            f"{group.layers} layers, {group.kv_heads} KV heads, K dimension {group.k_dim}, V dimension {group.v_dim}"
            for group in groups
        )
        subject = f"The model type {kind} is unknown" if kind else "The config has no model_type"
        warnings.append(f"{subject}; its standard fields were read as: {read or 'no layer with K and V'}.")
        warnings.extend(_bounds(fields, groups))
    is_default = fields.model_type in DEFAULT_WINDOWS and not any(name in fields.values for name in WINDOW_NAMES)
    if is_default and any(group.type == "sliding" for group in groups):
        window = DEFAULT_WINDOWS[fields.model_type]
        warnings.append(f"The config has no sliding_window; the default of {kind} is used: {window:,} tokens.")
    taken = [name for name in _SIZES if name in fields.left_out]
    if taken and any(group.type != "mla_latent" for group in groups):
        sizes = ", ".join(f"{name} {fields.left_out[name]:,}" for name in taken)
        warnings.append(f"The config omits some sizes; the defaults of {kind} are used: {sizes}.")
    if num_states and is_unsized:
        warnings.append(
            f"{num_states} layers keep a fixed state; the config doesn't give its size, so it isn't counted."
        )
    if has_cross:
        warnings.append("Cross-attention layers also cache K and V of images; these aren't counted.")
    return warnings
