"""Codecs: how the K and V of a layer are stored in the pool. They are encoded on write and decoded on read.

Dimension key: n blocks · h KV heads · t tokens of a block · d head dimension.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

import torch

from kvviz.model.choices import Choice, Registry
from kvviz.model.geometry import LayerGeometry, ModelGeometry


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor that a codec stores for each block of a layer.

    For a codec that encodes each token separately (`grain` 1), the shape is (any, block size, any).
    """

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Rotated(Protocol):
    """Rotary position embedding of a model's keys."""

    def rotate(self, keys: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rotate keys [..., d] by `positions` (broadcast to [...]); negative positions rotate back."""


class Calibrated(Protocol):
    """The model as a codec sees it before the first entry is stored."""

    @property
    def geometry(self) -> ModelGeometry:
        """Geometry of the model's cache."""

    @property
    def dtype(self) -> torch.dtype:
        """Dtype in which its entries are computed."""

    def rotation(self) -> Rotated:
        """The rotation of its keys. Raises `ModelError` if they aren't rotated, or the rotation can't be undone."""

    def sample_entries(self) -> dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Keys [h, t, d], values [h, t, d] and positions [t] of a calibration text in each layer with entries."""


class Codec(Choice):
    """How the entries of every layer are stored.

    `grain`: number of tokens encoded together, a divisor of the block size; 1: each one separately and at once.
    `recent`: number of a sequence's newest tokens kept in full precision. A codec with neither needs no full-precision
    part. Both, and `parts`, are valid after `prepare`. `dtype`: dtype of entries before encoding and after decoding;
    `layers`: the layers with entries.
    """

    grain: int = 1
    recent: int = 0
    dtype: torch.dtype = torch.float32
    layers: dict[int, LayerGeometry]

    def prepare(self, model: Calibrated, block_size: int) -> None:
        """Inspect the model once. Raises `ModelError` or `ConfigError` if the codec doesn't support it."""
        self.dtype = model.dtype
        self.layers = {layer.index: layer for layer in model.geometry.stored_layers}

    @abstractmethod
    def parts(self, layer: LayerGeometry, block_size: int) -> tuple[Part, ...]:
        """Parts of a block of that layer."""

    @abstractmethod
    def encode(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Encode keys and values [n, h, t, d] at positions [n, t] as [n, *shape] for each part.

        With `grain` 1, t may be less than a block (1), and then replaces the middle dimension of each part.
        """

    @abstractmethod
    def decode(
        self, layer: int, parts: tuple[torch.Tensor, ...], positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Decode to keys and values [n, heads, t, d] in `dtype`, as close to the originals as possible.

        `heads` is h, except for a codec that regroups heads (family `heads`): there it is the number stored.
        """


CODECS: Registry[Codec] = Registry()
