"""Settings of a new log, as sent by a page, and the engine's config for them."""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kvviz.config import EngineConfig, EvictionPolicy, Preemption, SchedulingOrder, blocks_in_bytes
from kvviz.errors import ConfigError

MAX_ID = 2**53 - 1


class Checked(BaseModel):
    """Data from a page: no unknown fields, no conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _restore_whole_numbers(cls, data: Any) -> Any:
        """JSON readers turn whole numbers beyond 64 bits into floats; turn them back, so the limits apply."""
        if not isinstance(data, dict):
            return data
        return {
            name: int(value) if isinstance(value, float) and math.isfinite(value) and abs(value) >= 2**63 else value
            for name, value in data.items()
        }


class RunSettings(Checked):
    """Settings of a new log. Absent ones have their defaults. With `lanes`, the run is a comparison.

    `pool_bytes` is an alternative to `num_blocks`.
    """

    block_size: int | None = None
    num_blocks: int | None = None
    pool_bytes: int | None = Field(default=None, ge=1, le=MAX_ID)
    prefill_chunk: int | None = None
    prefix_cache: bool | None = None
    max_running: int | None = None
    token_budget: int | None = None
    chunked_prefill: bool | None = None
    order: SchedulingOrder | None = None
    preemption: Preemption | None = None
    eviction: EvictionPolicy | None = None
    num_host_blocks: int | None = None
    offload: bool | None = None
    lanes: list[str] | None = Field(default=None, max_length=16)
    seed: int | None = None
    capture: bool | None = None


def engine_config(settings: RunSettings, bytes_per_token: int, max_pool_bytes: int) -> EngineConfig:
    """The engine's config for these settings. Raises `ConfigError`, with the arithmetic if the pool is too large."""
    given = settings.model_dump(exclude_none=True, exclude={"pool_bytes", "capture", "lanes"})
    config = EngineConfig(**given)
    block_bytes = config.block_size * bytes_per_token
    if settings.pool_bytes is not None:
        if settings.num_blocks is not None:
            raise ConfigError(
                "Set the pool size with either num_blocks or pool_bytes, not both.",
                setting="pool_bytes",
            )
        config = EngineConfig(**given, num_blocks=blocks_in_bytes(settings.pool_bytes, block_bytes))
    check_pool(config, bytes_per_token, max_pool_bytes)
    return config


def check_pool(config: EngineConfig, bytes_per_token: int, max_pool_bytes: int) -> None:
    """Raise `ConfigError`, with the arithmetic, if the pool or the host tier is too large."""
    block_bytes = config.block_size * bytes_per_token
    host_bytes = config.num_host_blocks * block_bytes
    if host_bytes > max_pool_bytes:
        raise ConfigError(
            f"{config.num_host_blocks:,} host blocks × {config.block_size} tokens × {bytes_per_token:,} B are "
            f"{host_bytes:,} B, but the limit for the host tier is {max_pool_bytes:,} B; use at most "
            f"{max_pool_bytes // block_bytes:,} blocks of this size.",
            setting="num_host_blocks",
            high=max_pool_bytes // block_bytes,
        )
    if config.num_blocks * block_bytes > max_pool_bytes:
        raise ConfigError(
            f"{config.num_blocks:,} blocks × {config.block_size} tokens × {bytes_per_token:,} B are "
            f"{config.num_blocks * block_bytes:,} B, but the limit for the pool is {max_pool_bytes:,} B; "
            f"use at most {max_pool_bytes // block_bytes:,} blocks of this size.",
            setting="num_blocks",
            high=max_pool_bytes // block_bytes,
        )
