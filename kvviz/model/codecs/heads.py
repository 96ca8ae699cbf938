"""Codecs that change how many heads of K and V are stored for the query heads to share."""

from __future__ import annotations

from abc import abstractmethod

import torch

from kvviz.errors import ConfigError
from kvviz.model.codecs.codec import CODECS, Calibrated, Codec, Part
from kvviz.model.geometry import LayerGeometry


class Heads(Codec):
    """Stores in the model's own dtype whatever heads `regroup` makes, and gives them back as they are stored."""

    family = "heads"

    def prepare(self, model: Calibrated, block_size: int) -> None:
        """Raises `ConfigError` for a model with latent attention."""
        super().prepare(model, block_size)
        latent = next((layer.index for layer in self.layers.values() if layer.cache == "latent"), None)
        if latent is not None:
            raise ConfigError(
                f"The lane {self.name} regroups heads of K and V, but layer {latent} of this model caches a latent in "
                "their place; choose a model with heads in its cache, or another lane.",
                setting=self.name,
            )

    @abstractmethod
    def num_heads(self, layer: LayerGeometry) -> int:
        """Heads stored for that layer."""

    @abstractmethod
    def regroup(self, layer: LayerGeometry, entries: torch.Tensor) -> torch.Tensor:
        """[n, h, t, d] as [n, `num_heads`, t, d]."""

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
    about = "The heads of K and V that the model was trained with, each shared by its group of query heads."
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
    about = "K and V once for each query head, as models had before heads were shared: the same output for more bytes."
    exact = True

    def num_heads(self, layer: LayerGeometry) -> int:
        return layer.query_heads

    def regroup(self, layer: LayerGeometry, entries: torch.Tensor) -> torch.Tensor:
        """Repeat each head for its query heads, which follow one another."""
        return entries.repeat_interleave(layer.query_heads // layer.kv_heads, 1)


@CODECS.register
class Single(Heads):
    """The mean of the heads."""

    name = "mqa"
    title = "One head for all"
    about = "One head of K and V, the mean of all, for every query head: without retraining it harms the model badly."

    def num_heads(self, layer: LayerGeometry) -> int:
        return 1

    def regroup(self, layer: LayerGeometry, entries: torch.Tensor) -> torch.Tensor:
        """Average the heads."""
        return entries.mean(1, keepdim=True)
