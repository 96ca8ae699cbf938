"""Floating-point codecs: each number on its own, in fewer bits."""

from __future__ import annotations

import torch

from kvviz.model.codecs.codec import CODECS, Calibrated, Codec, Part
from kvviz.model.geometry import LayerGeometry


class Float(Codec):
    """Casts to `stored`; numbers beyond its range become its largest number."""

    family = "bits"
    stored: torch.dtype

    def parts(self, layer: LayerGeometry, block_size: int) -> tuple[Part, ...]:
        """Keys and values (h, block size, d)."""
        return tuple(Part((heads, block_size, dim), self.stored) for heads, dim in (layer.key_shape, layer.value_shape))

    def encode(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """[n, h, t, d] each."""
        return self.narrow(keys), self.narrow(values)

    def decode(
        self, layer: int, parts: tuple[torch.Tensor, ...], positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[n, h, t, d] each."""
        keys, values = parts
        return self.widen(keys), self.widen(values)

    def narrow(self, entries: torch.Tensor) -> torch.Tensor:
        limit = torch.finfo(self.stored).max
        if limit < torch.finfo(entries.dtype).max:
            entries = entries.float().clamp(-limit, limit)  # bfloat16 can't represent the limit of float16
        return entries.to(self.stored)

    def widen(self, stored: torch.Tensor) -> torch.Tensor:
        return stored.to(self.dtype)


class AsComputed(Float):
    """The model's own dtype: the default of a growing pool without a codec."""

    name = "as-computed"
    title = "As computed"
    about = "Every number exactly as computed by the model."
    exact = True

    def prepare(self, model: Calibrated, block_size: int) -> None:
        super().prepare(model, block_size)
        self.stored = model.dtype


@CODECS.register
class Fp32(Float):
    """Four bytes."""

    name = "fp32"
    title = "32-bit float"
    about = "Every number exactly as computed by the model: the baseline for all others."
    exact = True
    stored = torch.float32


@CODECS.register
class Bf16(Float):
    """Two bytes, with an eight-bit exponent."""

    name = "bf16"
    title = "bfloat16"
    about = "Half the bytes, with the full range of a 32-bit float but only two to three decimal digits."
    stored = torch.bfloat16


@CODECS.register
class Fp16(Float):
    """Two bytes, with a five-bit exponent."""

    name = "fp16"
    title = "16-bit float"
    about = "Half the bytes, with three to four decimal digits but a maximum of 65,504."
    stored = torch.float16


@CODECS.register
class Fp8(Float):
    """One byte: sign, four bits of exponent, three of mantissa; scale 1."""

    name = "fp8"
    title = "8-bit float"
    about = "A quarter of the bytes, with about one decimal digit up to 448, like kv_cache_dtype=fp8 in engines."
    stored = torch.float8_e4m3fn

    def widen(self, stored: torch.Tensor) -> torch.Tensor:
        """Widen by bit manipulation, four times as fast as the cast. There are no NaNs.

        Shifted by 7, the bits are a 16-bit float whose exponent is too small by 8. The sign is duplicated in bit 14,
        which is cleared.
        """
        bits = stored.view(torch.int8).to(torch.int16)
        bits <<= 7
        bits &= ~(1 << 14)
        return bits.view(torch.float16).to(torch.float32).mul_(2.0**8).to(self.dtype)
