"""Codecs: how the K and V of a layer are stored in the pool, encoded when they are written and decoded when read.

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
    """A tensor that a codec keeps for each block of a layer.

    Of a codec that encodes each token by itself (`grain` 1) the shape is (any, block size, any).
    """

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Rotated(Protocol):
    """Rotary position embedding of a model's keys."""

    def rotate(self, keys: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Turn keys [..., d] by `positions` (which broadcast to [...]) further; negative ones turn back."""


class Calibrated(Protocol):
    """The model as a codec may look at it before the first entry is stored."""

    @property
    def geometry(self) -> ModelGeometry:
        """What the model caches."""

    @property
    def dtype(self) -> torch.dtype:
        """What its entries are computed in."""

    def rotation(self) -> Rotated:
        """How its keys are rotated. Raises `ModelError` when they are not, or not in a way that can be undone."""

    def sample_entries(self) -> dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Keys [h, t, d], values [h, t, d] and positions [t] of a calibration text in each stored layer."""


class Codec(Choice):
    """How the entries of every layer are stored.

    `grain`: tokens that are encoded together, a divisor of the block size; 1: each by itself, at once. `recent`: so
    many of a sequence's newest tokens are kept in full precision. A codec with neither needs no full-precision part.
    Both, and `parts`, hold from `prepare` on. `dtype`: of the entries that come and go; `layers`: the stored ones.
    """

    grain: int = 1
    recent: int = 0
    dtype: torch.dtype = torch.float32
    layers: dict[int, LayerGeometry]

    def prepare(self, model: Calibrated, block_size: int) -> None:
        """Look at the model once. Raises `ModelError` or `ConfigError` when they do not go together."""
        self.dtype = model.dtype
        self.layers = {layer.index: layer for layer in model.geometry.stored_layers}

    @abstractmethod
    def parts(self, layer: LayerGeometry, block_size: int) -> tuple[Part, ...]:
        """What a block of that layer takes."""

    @abstractmethod
    def encode(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Keys and values [n, h, t, d] at positions [n, t] as [n, *shape] for each part.

        With `grain` 1 t may be less than a block (1), and the middle dimension of each part is t then.
        """

    @abstractmethod
    def decode(
        self, layer: int, parts: tuple[torch.Tensor, ...], positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The inverse, as near as it comes: keys and values [n, heads, t, d] in `dtype`.

        `heads` is h, but for a codec that regroups them (family `heads`) as many as it stores.
        """


CODECS: Registry[Codec] = Registry()
