"""Codecs that change how many K and V heads are stored for the query heads to share."""

from __future__ import annotations

from abc import abstractmethod

import torch

from kvviz.errors import ConfigError
from kvviz.model.codecs.codec import CODECS, Calibrated, Codec, Part
from kvviz.model.geometry import LayerGeometry


class Heads(Codec):
    """Stores the heads that `regroup` returns, in the model's own dtype."""

    family = "heads"

    def prepare(self, model: Calibrated, block_size: int) -> None:
        """Raises `ConfigError` for a model with latent attention."""
        super().prepare(model, block_size)
        latent = next((layer.index for layer in self.layers.values() if layer.cache == "latent"), None)
        if latent is not None:
            raise ConfigError(
                f"The lane {self.name} regroups K and V heads, but layer {latent} of this model caches a latent; "
                "choose a model with K and V heads, or another lane.",
                setting=self.name,
            )

    @abstractmethod
    def num_heads(self, layer: LayerGeometry) -> int:
        """Number of heads stored for that layer."""

    @abstractmethod
    def regroup(self, layer: LayerGeometry, entries: torch.Tensor) -> torch.Tensor:
        """Convert [n, h, t, d] to [n, `num_heads`, t, d]."""

    def parts(self, layer: LayerGeometry, block_size: int) -> tuple[Part, ...]:
        """Keys and values (`num_heads`, block size, d)."""
        heads = self.num_heads(layer)
        return tuple(Part((heads, block_size, dim), self.dtype) for dim in (layer.key_shape[1], layer.value_shape[1]))

    def encode(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """[n, `num_heads`, t, d] each."""
        geometry = self.layers[layer]
        return self.regroup(geometry, keys), self.regroup(geometry, values)

    def decode(
        self, layer: int, parts: tuple[torch.Tensor, ...], positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[n, `num_heads`, t, d] each."""
        keys, values = parts
        return keys, values


@CODECS.register
class Grouped(Heads):
    """The heads that the model caches."""

    name = "gqa"
    title = "Heads as trained"
    about = "The K and V heads the model was trained with, each shared by a group of query heads."
    exact = True

    def num_heads(self, layer: LayerGeometry) -> int:
        return layer.kv_heads

    def regroup(self, layer: LayerGeometry, entries: torch.Tensor) -> torch.Tensor:
        return entries


@CODECS.register
class Multi(Heads):
    """A copy of K and V for each query head."""

    name = "mha"
    title = "One head per query head"
    about = "K and V for every query head, as in multi-head attention: the same output with more bytes."
    exact = True

    def num_heads(self, layer: LayerGeometry) -> int:
        return layer.query_heads

    def regroup(self, layer: LayerGeometry, entries: torch.Tensor) -> torch.Tensor:
        """Repeat each head for its query heads, which are consecutive."""
        return entries.repeat_interleave(layer.query_heads // layer.kv_heads, 1)


@CODECS.register
class Single(Heads):
    """The mean of all heads."""

    name = "mqa"
    title = "One head for all"
    about = "One K and V head, the mean of all, for every query head; without retraining, quality collapses."

    def num_heads(self, layer: LayerGeometry) -> int:
        return 1

    def regroup(self, layer: LayerGeometry, entries: torch.Tensor) -> torch.Tensor:
        """Average the heads."""
        return entries.mean(1, keepdim=True)
