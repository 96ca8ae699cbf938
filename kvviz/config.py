"""Settings of an engine, validated where they are made."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.errors import ConfigError

MAX_BLOCK_SIZE = 256
MAX_NUM_BLOCKS = 65_536
MAX_PREFILL_CHUNK = 8_192
MAX_RECORDED_CANDIDATES = 50
MAX_TEMPERATURE = 100.0
MAX_SEED = 2**63 - 1


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Raise `ConfigError` unless `low` <= `value` <= `high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(
            f"{name} must be a whole number from {low} to {high}, but is {value!r}; choose one in that range.",
            setting=name,
            low=low,
            high=high,
        )


def check_number(name: str, value: float, low: float, high: float) -> None:
    """Raise `ConfigError` unless `low` <= `value` <= `high`; not a number never is."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(
            f"{name} must be a number from {low} to {high}, but is {value!r}; choose one in that range.",
            setting=name,
            low=low,
            high=high,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Sizes and choices of one engine run.

    `block_size` tokens per block, `num_blocks` blocks in the pool, `prefill_chunk` tokens of one prompt per step,
    `max_running` requests at once, `num_candidates` top tokens kept with each sampled one, `seed` of everything random.
    Raises `ConfigError` when a value is outside its limits.
    """

    block_size: int = 16
    num_blocks: int = 128
    prefill_chunk: int = 64
    prefix_cache: bool = True
    max_running: int = 1
    num_candidates: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("block_size", self.block_size, 1, MAX_BLOCK_SIZE)
        check_range("num_blocks", self.num_blocks, 1, MAX_NUM_BLOCKS)
        check_range("prefill_chunk", self.prefill_chunk, 1, MAX_PREFILL_CHUNK)
        check_range("max_running", self.max_running, 1, 1_024)
        check_range("num_candidates", self.num_candidates, 1, MAX_RECORDED_CANDIDATES)
        check_range("seed", self.seed, 0, MAX_SEED)


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
