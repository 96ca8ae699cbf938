"""The real model behind a live source. Importing this module imports no torch; loading the model does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvviz.config import EngineConfig, blocks_in_bytes
from kvviz.errors import ConfigError, RequestError
from kvviz.experiments.scenarios import Performance, find_scenario, open_performance
from kvviz.experiments.timing import TIMING_SCENARIOS, TimingAttack, open_timing_attack
from kvviz.sources.controls import RunSettings
from kvviz.sources.live_model import LiveModel, OpenModel
from kvviz.sources.loader import Load, Progress

if TYPE_CHECKING:
    from kvviz.model.loading import LoadedModel
    from kvviz.model.run import ModelRun


def load_model(model: str | None, dtype: str, *, frame_bytes: int, max_pool_bytes: int) -> Load:
    """What loads the named model (None: the default one) when called; see `kvviz.model.loading.load`."""

    def load(progress: Progress) -> OpenModel:
        from kvviz.model.loading import load as load_weights

        loaded = load_weights(model, dtype, progress)
        progress("loading", None, f"Checking {loaded.name} against its plain forward pass")
        return open_loaded(loaded, frame_bytes=frame_bytes, max_pool_bytes=max_pool_bytes)

    return load


def open_loaded(loaded: LoadedModel, *, frame_bytes: int, max_pool_bytes: int) -> OpenModel:
    """What makes sessions of a model in memory. Raises `ModelError` when it does not pass the self-check."""
    from kvviz.comparison.calibration import CalibratedModel
    from kvviz.comparison.comparison import Comparison
    from kvviz.comparison.lane import choices, parse_lanes
    from kvviz.model.instrumented import InstrumentedModel
    from kvviz.model.run import ModelRun

    instrumented = InstrumentedModel(loaded.model, name=loaded.name, fingerprint=loaded.fingerprint)
    bytes_per_token = instrumented.geometry.bytes_per_token
    calibrated = CalibratedModel(instrumented, loaded.tokenizer)

    def make(*arguments: Any, **options: Any) -> ModelRun:
        run = ModelRun(*arguments, frame_budget=frame_bytes, keep_entries=True, **options)
        run.live_header = {"lane_choices": choices()}
        return run

    def open_model(settings: RunSettings, scenario: str | None = None) -> LiveModel:
        if scenario is not None:
            return open_scenario(scenario)
        config = engine_config(settings, bytes_per_token, max_pool_bytes)
        if settings.lanes is not None:
            lanes = parse_lanes(settings.lanes)
            for lane in lanes:
                read = lane.storage(calibrated, config.block_size)[1]  # more heads, more bytes
                check_pool(lane.config(config), max(bytes_per_token, read.bytes_per_token), max_pool_bytes)
            return Comparison(
                instrumented,
                loaded.tokenizer,
                config,
                lanes,
                frame_budget=frame_bytes,
                keep_entries=True,
                calibrated=calibrated,
            )
        run = make(instrumented, loaded.tokenizer, config)
        run.capture = settings.capture is not False
        return run

    def open_scenario(name: str) -> LiveModel:
        found = None if name in TIMING_SCENARIOS else find_scenario(name, tuple(TIMING_SCENARIOS))
        if loaded.tokenizer is None:
            raise RequestError(
                "Scenarios need a tokenizer, which this model doesn't have; use another model.", code="no_tokenizer"
            )
        script: Performance | TimingAttack
        if found is None:
            script = open_timing_attack(instrumented, loaded.tokenizer, make, shared=TIMING_SCENARIOS[name])
        else:
            script = open_performance(found, instrumented, loaded.tokenizer, make)
        script.model_run.script = script
        return script.model_run

    return open_model


def engine_config(settings: RunSettings, bytes_per_token: int, max_pool_bytes: int) -> EngineConfig:
    """The engine's config for these settings. Raises `ConfigError`, with the arithmetic when the pool is too large."""
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
    """Raise `ConfigError`, with the arithmetic, when the pool or the host tier would be too large."""
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
