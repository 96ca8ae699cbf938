"""How a runner stores entries: its codec, its forgetting policy and whether its pool grows."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvviz.config import EngineConfig
from kvviz.model.codecs import Codec, Rotated
from kvviz.model.encoded_cache import EncodedCache
from kvviz.model.forgetting import ForgettingPolicy
from kvviz.model.forgetting_mask import ForgettingMask
from kvviz.model.geometry import ModelGeometry
from kvviz.model.paged_cache import PagedCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """How entries are stored.

    - `codec`: a prepared codec; None stores entries as they are.
    - `policy`: a forgetting policy; None forgets nothing.
    - `rotation`: for a policy that re-indexes positions.
    - `growing`: the pool grows by concatenation instead of being allocated at the start.
    - `base`: the geometry of what the model passes in, if the codec changes it.
    """

    codec: Codec | None = None
    policy: ForgettingPolicy | None = None
    rotation: Rotated | None = None
    growing: bool = False
    base: ModelGeometry | None = None

    @property
    def window(self) -> int | None:
        return self.policy.window_size if self.policy else None

    @property
    def codec_key(self) -> str:
        """The key that distinguishes its entries in a prefix cache."""
        if self.codec is None:
            return "none"
        return ",".join([self.codec.name, *(f"{name}={value}" for name, value in self.codec.chosen.items())])

    def cache(
        self, geometry: ModelGeometry, config: EngineConfig, dtype: torch.dtype, device: torch.device
    ) -> PagedCache:
        sizes = config.num_blocks, config.block_size
        if self.codec is None:
            return PagedCache(geometry, *sizes, dtype, device, num_host_blocks=config.num_host_blocks)
        return EncodedCache(
            geometry,
            self.codec,
            *sizes,
            dtype,
            device,
            num_host_blocks=config.num_host_blocks,
            growing=self.growing,
            base=self.base,
        )

    def forgetting_mask(self, block_size: int) -> ForgettingMask | None:
        """Create the state that tracks kept entries, if the policy drops individual ones."""
        if self.policy is None or self.policy.window_size is not None:
            return None
        return ForgettingMask(self.policy, block_size, self.rotation)
