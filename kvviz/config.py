"""Settings of an engine, validated where they are made."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Literal, get_args

from kvviz.errors import ConfigError
from kvviz.messages import MAX_SHOWN_NUMBER, shown

MAX_BLOCK_SIZE = 256
MAX_NUM_BLOCKS = 65_536
MAX_PREFILL_CHUNK = 8_192
MAX_RECORDED_CANDIDATES = 50
MAX_TEMPERATURE = 100.0
MAX_SEED = 2**63 - 1
MAX_RUNNING = 1_024
MAX_TOKEN_BUDGET = 65_536
MAX_PRIORITY = 1_000_000
MAX_SAMPLES = 16

SchedulingOrder = Literal["fcfs", "priority"]
Preemption = Literal["recompute", "swap"]
EvictionPolicy = Literal["lru", "fifo", "lfu", "random"]


def _came(value: object) -> str:
    """Whole numbers with the digits of the limits beside them, the rest in words."""
    return str(value) if type(value) is int and abs(value) < MAX_SHOWN_NUMBER else shown(value)


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Raise `ConfigError` unless `low` <= `value` <= `high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(
            f"{name} must be a whole number from {low} to {high}, but is {_came(value)}; choose one in that range.",
            setting=name,
            low=low,
            high=high,
        )


def check_number(name: str, value: float, low: float, high: float) -> None:
    """Raise `ConfigError` unless `low` <= `value` <= `high`; not a number never is."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(
            f"{name} must be a number from {low} to {high}, but is {_came(value)}; choose one in that range.",
            setting=name,
            low=low,
            high=high,
        )


def check_choice(name: str, value: object, choices: tuple[Any, ...]) -> None:
    if not any(value == choice and type(value) is type(choice) for choice in choices):
        words = " or ".join(str(choice) for choice in choices)
        raise ConfigError(f"{name} must be {words}, but is {shown(value)}; choose one of them.", setting=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Sizes and choices of one engine run.

    `block_size` tokens per block, `num_blocks` blocks in the pool, `num_host_blocks` in the host tier. A step
    computes at most `token_budget` tokens (None: one chunk and a token of everybody else) of at most `max_running`
    requests, of one prompt at most `prefill_chunk` (a prompt that is alone may take a given budget whole, as in
    vLLM); without `chunked_prefill` a prompt is computed in one step or waits. `order`: who runs first and is
    preempted last; `preemption`: how; `eviction`: which cached block is reused first; `offload`: cached blocks that
    are evicted go to the host tier. Without `kv_cache` nothing is kept between two steps: each computes the whole
    sequence again. `reserve`: a request gets the blocks of its longest possible text when it is let in, as a contiguous
    allocator gives slots. `num_candidates` top tokens are kept with each sampled one; `seed` is that of
    everything random. Raises `ConfigError` when a value is outside its limits.
    """

    block_size: int = 16
    num_blocks: int = 128
    prefill_chunk: int = 64
    prefix_cache: bool = True
    max_running: int = 8
    token_budget: int | None = None
    chunked_prefill: bool = True
    order: SchedulingOrder = "fcfs"
    preemption: Preemption = "recompute"
    eviction: EvictionPolicy = "lru"
    num_host_blocks: int = 0
    offload: bool = False
    kv_cache: bool = True
    reserve: bool = False
    num_candidates: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("block_size", self.block_size, 1, MAX_BLOCK_SIZE)
        check_range("num_blocks", self.num_blocks, 1, MAX_NUM_BLOCKS)
        check_range("prefill_chunk", self.prefill_chunk, 1, MAX_PREFILL_CHUNK)
        check_range("max_running", self.max_running, 1, MAX_RUNNING)
        if self.token_budget is not None:
            check_range("token_budget", self.token_budget, 1, MAX_TOKEN_BUDGET)
        for name in ("prefix_cache", "chunked_prefill", "offload", "kv_cache", "reserve"):
            check_choice(name, getattr(self, name), (True, False))
        check_choice("order", self.order, get_args(SchedulingOrder))
        check_choice("preemption", self.preemption, get_args(Preemption))
        check_choice("eviction", self.eviction, get_args(EvictionPolicy))
        check_range("num_host_blocks", self.num_host_blocks, 0, MAX_NUM_BLOCKS)
        check_range("num_candidates", self.num_candidates, 1, MAX_RECORDED_CANDIDATES)
        check_range("seed", self.seed, 0, MAX_SEED)
        if not self.kv_cache and (self.prefix_cache or self.chunked_prefill):
            raise ConfigError(
                "An engine without a KV cache has no prefix cache and computes a prompt in one step; turn prefix_cache "
                "and chunked_prefill off as well.",
                setting="kv_cache",
            )

    @property
    def budget(self) -> int:
        """Tokens that a step computes at most."""
        return self.prefill_chunk + self.max_running - 1 if self.token_budget is None else self.token_budget

    @property
    def max_chunk(self) -> int:
        """Tokens of one request that a step computes at most."""
        if not self.chunked_prefill:
            return sys.maxsize
        return self.prefill_chunk if self.token_budget is None else self.token_budget


def blocks_in_bytes(pool_bytes: int, block_bytes: int) -> int:
    """Whole blocks of `block_bytes` that fit in `pool_bytes`; `ConfigError` when not even one does."""
    num_blocks = pool_bytes // block_bytes
    if num_blocks < 1:
        raise ConfigError(
            f"A pool of {pool_bytes:,} B holds no block: one block takes {block_bytes:,} B; give at least that much.",
            setting="pool_bytes",
            low=block_bytes,
        )
    return min(num_blocks, MAX_NUM_BLOCKS)
