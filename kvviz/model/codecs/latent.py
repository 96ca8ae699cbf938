"""A latent instead of K and V: both reduced to their principal components.

Dimension key: w = the K and V of all heads of one token, side by side · r rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvviz.errors import ConfigError
from kvviz.model.choices import Option
from kvviz.model.codecs.codec import CODECS, Calibrated, Codec, Part, Rotated
from kvviz.model.geometry import LayerGeometry


@dataclass(frozen=True, slots=True)
class Projection:
    """Projects a row [w] to its latent [r], `(row - mean) @ down`, and back, `latent @ up + mean`."""

    mean: torch.Tensor
    down: torch.Tensor
    up: torch.Tensor

    @classmethod
    def of(cls, rows: torch.Tensor, key_width: int, rank: int) -> Projection:
        """Principal components of rows [t, w], whose first `key_width` columns are K. K and V have equal weight.

        With fewer rows than columns, directions absent from all rows come last, so that rank w loses nothing.
        """
        rows = rows.double()
        mean = rows.mean(0)
        centered = rows - mean
        spread = torch.ones_like(mean)
        for part in (slice(0, key_width), slice(key_width, None)):
            rms = centered[:, part].square().mean().sqrt()
            spread[part] = torch.where(rms > 0, rms, 1)
        scaled = centered / spread
        ascending = torch.linalg.eigh(scaled.T @ scaled).eigenvectors
        basis = ascending.flip(1)[:, :rank]
        return cls(mean.float(), (basis / spread[:, None]).float(), (basis.T * spread).float().contiguous())


@CODECS.register
class Latent(Codec):
    """Principal components of K, before rotation, and V together, computed once from a calibration text."""

    name = "latent"
    title = "Low-rank latent"
    family = "latent"
    about = "One short vector per token and layer, from which K and V are rebuilt; a trained latent does this better."
    options = (Option(name="rank", title="rank", default=128, low=1, high=8192),)
    value = "rank"

    rank: int
    _rotation: Rotated
    _projections: dict[int, Projection]

    def prepare(self, model: Calibrated, block_size: int) -> None:
        """Compute the components of each layer. Raises `ConfigError` for a model that caches latents itself."""
        super().prepare(model, block_size)
        own = next((layer.index for layer in self.layers.values() if layer.cache == "latent"), None)
        if own is not None:
            raise ConfigError(
                f"The lane latent turns K and V into latents, but layer {own} of this model already caches latents; "
                "choose a model that caches K and V, or another lane.",
                setting="latent",
            )
        self._rotation = model.rotation()
        self._projections = {}
        entries = model.sample_entries()
        for index, layer in self.layers.items():
            keys, values, positions = entries[index]
            keys = self._rotation.rotate(keys.float(), -positions)
            self._projections[index] = Projection.of(_rows(keys, values.float()), _widths(layer)[0], self.rank)

    def parts(self, layer: LayerGeometry, block_size: int) -> tuple[Part, ...]:
        """One latent per token, (1, block size, r)."""
        return (Part((1, block_size, min(self.rank, sum(_widths(layer)))), self.dtype),)

    def encode(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """[n, 1, t, r]."""
        projection = self._projections[layer]
        unrotated = self._rotation.rotate(keys.float(), -positions[:, None])
        rows = _rows(unrotated, values.float())
        return (((rows - projection.mean) @ projection.down)[:, None].to(self.dtype),)

    def decode(
        self, layer: int, parts: tuple[torch.Tensor, ...], positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[n, h, t, d] each."""
        geometry, projection = self.layers[layer], self._projections[layer]
        (latents,) = parts
        rows = torch.addmm(projection.mean, latents.float().flatten(0, 2), projection.up)
        key_width = _widths(geometry)[0]
        unrotated = rows[:, :key_width].reshape(*positions.shape, *geometry.key_shape).transpose(1, 2)
        values = rows[:, key_width:].reshape(*positions.shape, *geometry.value_shape).transpose(1, 2)
        return self._rotation.rotate(unrotated, positions[:, None]).to(self.dtype), values.to(self.dtype)


def _widths(layer: LayerGeometry) -> tuple[int, int]:
    """Number of K and V columns of a row."""
    (key_heads, key_dim), (value_heads, value_dim) = layer.key_shape, layer.value_shape
    return key_heads * key_dim, value_heads * value_dim


def _rows(keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Convert [..., h, t, d] each to [..., t, w]."""
    return torch.cat([entries.transpose(-3, -2).flatten(-2) for entries in (keys, values)], -1)
