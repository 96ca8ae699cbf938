"""Integer codecs: groups of numbers on a grid between their minimum and maximum.

Some channels of keys are large in every token, so a group of keys is one channel of several tokens. Values have no such
channels; a group of values is several channels of one token (KIVI, arXiv 2402.02750).
"""

from __future__ import annotations

from typing import ClassVar

import torch

from kvviz.errors import ConfigError
from kvviz.model.choices import Option
from kvviz.model.codecs.codec import CODECS, Calibrated, Codec, Part
from kvviz.model.geometry import LayerGeometry

#: Largest 16-bit float; grids must stay within it.
LIMIT = torch.finfo(torch.float16).max


def quantize(numbers: torch.Tensor, dim: int, bits: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Quantise to codes (uint8), with the step and low end of each group's grid (float16). Groups span `dim`.

    The low end is rounded down and the step up, so that the grid covers the group, and no number within ±`LIMIT` is off
    by more than half a step. `dim` has length 1 in step and low.
    """
    numbers = numbers.float().clamp(-LIMIT, LIMIT)
    levels = 2**bits - 1
    low = _round(numbers.amin(dim, keepdim=True), up=False)
    offsets = numbers - low.float()
    step = _round(offsets.amax(dim, keepdim=True) / levels, up=True)
    codes = (offsets / step.float().masked_fill(step == 0, 1)).round_().clamp_(0, levels)
    return codes.to(torch.uint8), step, low


def _round(numbers: torch.Tensor, *, up: bool) -> torch.Tensor:
    """Round to the next 16-bit float in that direction. Its bits count upwards away from 0."""
    near = numbers.half()
    if up:
        return torch.where(near.float() < numbers, (near.view(torch.int16) + 1).view(torch.float16), near)
    away = torch.where(numbers < 0, 1, -1).to(torch.int16)
    return torch.where(near.float() > numbers, (near.view(torch.int16) + away).view(torch.float16), near)


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Pack codes of four bits in pairs: [..., d] → [..., d / 2], the second half of d in the upper bits."""
    lower, upper = codes.chunk(2, -1)
    return lower | (upper << 4)


def unpack(packed: torch.Tensor) -> torch.Tensor:
    return torch.cat((packed & 15, packed >> 4), -1)


class Integers(Codec):
    """Codes of `bits` bits. `group` and `recent` are the options."""

    family = "bits"
    options = (
        Option(name="group", title="numbers per group", default=32, low=4, high=256),
        Option(name="recent", title="newest tokens in full precision", default=16, low=0, high=4096),
    )
    bits: ClassVar[int]
    group: int

    def prepare(self, model: Calibrated, block_size: int) -> None:
        """Raises `ConfigError` if groups don't divide a block or a head's channels."""
        super().prepare(model, block_size)
        self.grain = min(self.group, block_size)
        if block_size % self.grain:
            raise ConfigError(
                f"group of the lane {self.name} must divide the block size {block_size} (got {self.group}); "
                "choose a divisor of it, or the block size itself.",
                setting="group",
            )
        for layer in self.layers.values():
            (_, key_dim), (_, value_dim) = layer.key_shape, layer.value_shape
            if value_dim % min(self.group, value_dim):
                raise ConfigError(
                    f"group of the lane {self.name} must divide the {value_dim} channels of a value in layer "
                    f"{layer.index} (got {self.group}); choose a divisor of that number.",
                    setting="group",
                )
            if self.bits == 4 and (key_dim % 2 or value_dim % 2):
                raise ConfigError(
                    f"The lane {self.name} packs two numbers per byte, so heads must have an even number of channels "
                    f"(layer {layer.index} has {key_dim} and {value_dim}); choose another lane.",
                    setting=self.name,
                )

    def parts(self, layer: LayerGeometry, block_size: int) -> tuple[Part, ...]:
        """For keys, then values: codes (h, block size, bytes), and step and low end of each group (2, h, …)."""
        (key_heads, key_dim), (value_heads, value_dim) = layer.key_shape, layer.value_shape
        in_key, in_value = min(self.group, block_size), min(self.group, value_dim)
        return (
            Part((key_heads, block_size, key_dim * self.bits // 8), torch.uint8),
            Part((2, key_heads, block_size // in_key, key_dim), torch.float16),
            Part((value_heads, block_size, value_dim * self.bits // 8), torch.uint8),
            Part((2, value_heads, block_size, value_dim // in_value), torch.float16),
        )

    def encode(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Encode whole blocks: keys as [n, h, t / grain, grain, d], values as [n, h, t, d / group, group]."""
        (num_blocks, key_heads, num_tokens, key_dim), (_, value_heads, _, value_dim) = keys.shape, values.shape
        in_value = min(self.group, value_dim)
        key_groups = keys.reshape(num_blocks, key_heads, num_tokens // self.grain, self.grain, key_dim)
        value_groups = values.reshape(num_blocks, value_heads, num_tokens, value_dim // in_value, in_value)
        key_codes, *key_grid = quantize(key_groups, 3, self.bits)
        value_codes, *value_grid = quantize(value_groups, 4, self.bits)
        return (
            self.shrink(key_codes.flatten(2, 3)),
            torch.stack(key_grid, 1).squeeze(4),
            self.shrink(value_codes.flatten(3)),
            torch.stack(value_grid, 1).squeeze(5),
        )

    def decode(
        self, layer: int, parts: tuple[torch.Tensor, ...], positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Code × step + low, computed in 32-bit floats."""
        key_codes, key_grid, value_codes, value_grid = parts
        keys, values = self.grow(key_codes).float(), self.grow(value_codes).float()
        step, low = key_grid.float().unsqueeze(4).unbind(1)
        keys.view(*step.shape[:3], self.grain, step.shape[4]).mul_(step).add_(low)
        step, low = value_grid.float().unsqueeze(5).unbind(1)
        values.view(*step.shape[:4], min(self.group, values.shape[3])).mul_(step).add_(low)
        return keys.to(self.dtype), values.to(self.dtype)

    def shrink(self, codes: torch.Tensor) -> torch.Tensor:
        return codes

    def grow(self, stored: torch.Tensor) -> torch.Tensor:
        return stored


@CODECS.register
class Int8(Integers):
    """256 steps."""

    name = "int8"
    title = "8-bit integer"
    about = "Each group of numbers on its own grid of 256 steps: under a third of the bytes, hardly any difference."
    bits = 8


@CODECS.register
class Int4(Integers):
    """16 steps, two codes per byte."""

    name = "int4"
    title = "4-bit integer"
    about = "Each group of numbers on its own grid of 16 steps: about a sixth of the bytes, with visible errors."
    bits = 4

    def shrink(self, codes: torch.Tensor) -> torch.Tensor:
        return pack(codes)

    def grow(self, stored: torch.Tensor) -> torch.Tensor:
        return unpack(stored)
