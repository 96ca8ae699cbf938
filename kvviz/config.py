"""Engine settings, validated on construction."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Literal, get_args

from kvviz.errors import ConfigError, RequestError
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


def _got(value: object) -> str:
    return str(value) if type(value) is int and abs(value) < MAX_SHOWN_NUMBER else shown(value)


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Raise `ConfigError` unless `low` <= `value` <= `high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(
            f"{name} must be a whole number from {low} to {high} (got {_got(value)}).",
            setting=name,
            low=low,
            high=high,
        )


def check_number(name: str, value: float, low: float, high: float) -> None:
    """Raise `ConfigError` unless `low` <= `value` <= `high`. NaN is always rejected."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(
            f"{name} must be a number from {low} to {high} (got {_got(value)}).",
            setting=name,
            low=low,
            high=high,
        )


def check_text(name: str, value: str | None) -> None:
    """Raise `RequestError` unless `value` is text that UTF-8 can encode, or None."""
    if value is None:
        return
    if not isinstance(value, str):
        raise RequestError(f"{name} must be text (got {value!r}).", code="bad_text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{name} must be text in UTF-8 (character {error.start + 1} isn't); check the encoding of your terminal.",
            code="bad_text",
        ) from None


def check_choice(name: str, value: object, choices: tuple[Any, ...]) -> None:
    if not any(value == choice and type(value) is type(choice) for choice in choices):
        words = " or ".join(str(choice) for choice in choices)
        raise ConfigError(f"{name} must be {words} (got {shown(value)}).", setting=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of one engine run. Raises `ConfigError` if a value is out of range.

    - `block_size`: tokens per block.
    - `num_blocks`, `num_host_blocks`: blocks in the pool and in the host tier.
    - `max_running`: maximum number of requests per step.
    - `token_budget`: maximum number of tokens per step (None: one prefill chunk plus one token for each other request).
    - `prefill_chunk`: maximum number of tokens of one prompt per step. As in vLLM, a prompt that runs alone may use a
      whole explicit `token_budget`.
    - `chunked_prefill`: if off, a prompt is computed in a single step, and waits until it fits.
    - `order`: which request runs first and is preempted last.
    - `preemption`: how requests are preempted.
    - `eviction`: which cached block is reused first.
    - `offload`: evicted blocks move to the host tier.
    - `kv_cache`: if off, nothing is kept between steps; each step computes the whole sequence again.
    - `reserve`: on admission, a request gets blocks for its maximum length, like slots from a contiguous allocator.
    - `num_candidates`: number of top tokens recorded with each sampled token.
    - `seed`: seed of all random choices.
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
                "Without a KV cache there is no prefix cache and no chunked prefill; turn off prefix_cache and "
                "chunked_prefill too.",
                setting="kv_cache",
            )

    @property
    def budget(self) -> int:
        """Maximum number of tokens per step."""
        return self.prefill_chunk + self.max_running - 1 if self.token_budget is None else self.token_budget

    @property
    def max_chunk(self) -> int:
        """Maximum number of tokens of one request per step."""
        if not self.chunked_prefill:
            return sys.maxsize
        return self.prefill_chunk if self.token_budget is None else self.token_budget


def blocks_in_bytes(pool_bytes: int, block_bytes: int) -> int:
    """Number of whole `block_bytes` blocks that fit in `pool_bytes`. Raises `ConfigError` if none fits."""
    num_blocks = pool_bytes // block_bytes
    if num_blocks < 1:
        raise ConfigError(
            f"A pool of {pool_bytes:,} B is smaller than one block ({block_bytes:,} B); use at least that size.",
            setting="pool_bytes",
            low=block_bytes,
        )
    return min(num_blocks, MAX_NUM_BLOCKS)
