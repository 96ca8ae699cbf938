"""Allocations: the same entries, allocated in another way or not cached at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kvviz.config import MAX_NUM_BLOCKS, EngineConfig
from kvviz.model.choices import Choice, Option, Registry


class Allocation(Choice):
    """Changes engine settings, but not the stored entries. `growing`: the pool grows by concatenation."""

    family = "allocation"
    exact = True
    growing: ClassVar[bool] = False

    fixed: ClassVar[Mapping[str, bool]] = {}

    def settings(self, config: EngineConfig) -> Mapping[str, Any]:
        """The settings that differ from `config`."""
        return self.fixed


ALLOCATIONS: Registry[Allocation] = Registry()


@ALLOCATIONS.register
class NoCache(Allocation):
    """Keeps nothing between steps."""

    name = "no-cache"
    title = "No cache"
    about = "Every step computes the keys and values of all tokens again, because nothing is cached."
    fixed: ClassVar = {"kv_cache": False, "prefix_cache": False, "chunked_prefill": False}


@ALLOCATIONS.register
class Contiguous(Allocation):
    """Reserves blocks for the longest possible answer on admission."""

    name = "contiguous"
    title = "Contiguous reservation"
    about = "Reserves slots for the prompt and the longest answer at once, as before paging; most stay empty."
    fixed: ClassVar = {"reserve": True}


@ALLOCATIONS.register
class Concatenated(Allocation):
    """Grows by one entry per token."""

    name = "concat"
    title = "Growing by concatenation"
    about = "Allocates a tensor one token longer for every token, and copies the whole cache into it."
    growing = True

    def settings(self, config: EngineConfig) -> Mapping[str, Any]:
        return {"block_size": 1, "num_blocks": min(MAX_NUM_BLOCKS, config.block_size * config.num_blocks)}


@ALLOCATIONS.register
class NoPrefix(Allocation):
    """Turns the prefix cache off."""

    name = "no-prefix"
    title = "Without a prefix cache"
    about = "Discards the prompt with its request, so the same prefix is computed again next time."
    fixed: ClassVar = {"prefix_cache": False}


@ALLOCATIONS.register
class SmallPool(Allocation):
    """Has so few blocks that the next prompt evicts cached prefixes."""

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
