"""From a `config.json` to a geometry: what its cache is made of, or why it has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvviz.calculator.fields import ENCODER_DECODERS, ENCODERS, KNOWN_TYPES, Fields, printable, whole
from kvviz.calculator.layers import Geometry, RefusedKind, grouped, kind_of
from kvviz.calculator.patterns import DEFAULT_WINDOWS, WINDOW_NAMES, roles_of
from kvviz.calculator.shapes import is_shared, layers_of, state_of
from kvviz.errors import ModelError
from kvviz.messages import clipped

_COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")


def refuse_without_cache(fields: Fields) -> None:
    """Raise `ModelError` with the `kind` in its details, for a model whose memory is not one entry a token."""
    if "compress_ratios" in fields or any(word in _COMPRESSED for word in fields.items("layer_types") or ()):
        raise _refusal("compressed_sparse", _compressed(fields))
    kinds = {fields.model_type, fields.outer_type}
    # A decoder of such a family by itself (BartForCausalLM) is an ordinary model.
    is_whole = bool(fields.outer.get("is_encoder_decoder", bool(kinds & ENCODER_DECODERS)))
    if is_whole:
        raise _refusal("encoder_decoder", _encoder_decoder(fields))
    if kinds & ENCODERS and not fields.flag("is_decoder"):
        raise _refusal(
            "encoder_only",
            f"{fields.model_type} is an encoder: it reads a whole text at once and makes no tokens one by one, so "
            "it has no KV cache; give the config of a decoder.",
        )


def _refusal(kind: RefusedKind, sentence: str) -> ModelError:
    return ModelError(sentence, code="refused", kind=kind)


def _compressed(fields: Fields) -> str:
    """With the growth beyond the window in 16 bits: what each layer keeps for `ratio` tokens, over `ratio`."""
    text = (
        f"{fields.model_type} compresses its context: layers keep a window, and beyond it one entry for several "
        "tokens, so no number of bytes a token describes its cache, and engines lay it out differently"
    )
    ratios, dim = fields.items("compress_ratios"), fields.number("head_dim")
    if ratios and dim and all(isinstance(ratio, int) and 0 <= ratio <= 2**20 for ratio in ratios):
        layers = fields.number("num_hidden_layers") or len(ratios)
        index = fields.number("index_head_dim") or 0
        finest = min((ratio for ratio in ratios if ratio), default=0)
        growth = sum(2 * (dim + (index if ratio == finest else 0)) / ratio for ratio in ratios[:layers] if ratio)
        text += f"; in transformers it grows by {growth:,.0f} bytes a token in 16 bits"
    return text + "; choose a model with ordinary or latent attention."


def _encoder_decoder(fields: Fields) -> str:
    """With the bytes of a decoder token in 16 bits, which are those of an encoder token too."""
    text = (
        f"{fields.model_type} is an encoder-decoder: its decoder caches the tokens that it makes, and beside them K "
        "and V of the encoder's whole input, so there is no one context"
    )
    layers = fields.number("num_decoder_layers", "decoder_layers", "num_hidden_layers", "num_layers")
    heads = fields.number("decoder_attention_heads", "num_heads", "num_attention_heads")
    width = fields.number("d_model", "hidden_size")
    dim = fields.number("d_kv", "head_dim") or (width // heads if width and heads else None)
    if layers and heads and dim:
        text += f" (in 16 bits {4 * layers * heads * dim:,} bytes for a token of either)"
    return text + "; choose a model that only decodes."


_CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length", "n_ctx")
#: Contexts that a file may leave out. Source: configuration classes of transformers 5.24.
_DEFAULT_CONTEXTS = {"falcon": 2_048}
#: Field with the context that an ALiBi model was trained with; it is not a limit.
_WITHOUT_LIMIT = ("bloom",)
#: Sizes that enter the cache. A warning names those that are left out.
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
