"""Models that have no cache of one entry a token: each refused with the reason, and with what it keeps instead."""

from __future__ import annotations

from kvviz.calculator.fields import Fields
from kvviz.calculator.known import ENCODER_DECODERS, ENCODERS
from kvviz.calculator.layers import RefusedKind
from kvviz.errors import ModelError

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
