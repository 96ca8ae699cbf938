"""Allocations: the same entries in another kind of memory, or in none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kvviz.config import MAX_NUM_BLOCKS, EngineConfig
from kvviz.model.choices import Choice, Option, Registry


class Allocation(Choice):
    """Changes settings of the engine and leaves what is stored alone. `growing`: the pool grows by concatenation."""

    family = "allocation"
    exact = True
    growing: ClassVar[bool] = False

    fixed: ClassVar[Mapping[str, bool]] = {}

    def settings(self, config: EngineConfig) -> Mapping[str, Any]:
        """Fields that differ from `config`."""
        return self.fixed


ALLOCATIONS: Registry[Allocation] = Registry()


@ALLOCATIONS.register
class NoCache(Allocation):
    """Nothing is kept between two steps."""

    name = "no-cache"
    title = "No cache"
    about = "Every step computes the keys and values of all tokens again, because nothing is cached."
    fixed: ClassVar = {"kv_cache": False, "prefix_cache": False, "chunked_prefill": False}


@ALLOCATIONS.register
class Contiguous(Allocation):
    """Reserves room for the longest possible text."""

    name = "contiguous"
    title = "Contiguous reservation"
    about = "Reserves slots for the prompt and the longest answer at once, as before paging; most stay empty."
    fixed: ClassVar = {"reserve": True}


@ALLOCATIONS.register
class Concatenated(Allocation):
    """Grows by one entry a token."""

    name = "concat"
    title = "Growing by concatenation"
    about = "Allocates a tensor one token longer for every token, and copies the whole cache into it."
    growing = True

    def settings(self, config: EngineConfig) -> Mapping[str, Any]:
        return {"block_size": 1, "num_blocks": min(MAX_NUM_BLOCKS, config.block_size * config.num_blocks)}


@ALLOCATIONS.register
class NoPrefix(Allocation):
    """No prefix cache."""

    name = "no-prefix"
    title = "Without a prefix cache"
    about = "Discards the prompt with its request, so the same prefix is computed again next time."
    fixed: ClassVar = {"prefix_cache": False}


@ALLOCATIONS.register
class SmallPool(Allocation):
    """A pool that the next prompt overwrites."""

    name = "small"
    title = "A small pool"
    about = "Holds little more than one request, so earlier prefixes are evicted before they are needed again."
    options = (Option(name="blocks", title="blocks", default=16, low=1, high=65_536),)
    value = "blocks"
    blocks: int

    def settings(self, config: EngineConfig) -> Mapping[str, Any]:
        return {"num_blocks": self.blocks}


@ALLOCATIONS.register
class Offload(SmallPool):
    """A small pool with a host tier."""

    name = "offload"
    title = "Offload to the host"
    about = "Also a small pool, but evicted blocks move to host memory and are copied back when needed."

    def settings(self, config: EngineConfig) -> Mapping[str, Any]:
        return {"num_blocks": self.blocks, "num_host_blocks": config.num_blocks, "offload": True}
