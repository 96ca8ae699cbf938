"""Opens the real model of a live source. Importing this module doesn't import torch; loading a model does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvviz.errors import RequestError
from kvviz.experiments.scenarios import Performance, find_scenario, open_performance
from kvviz.experiments.timing import TIMING_SCENARIOS, TimingAttack, open_timing_attack
from kvviz.sources.live_model import LiveModel, RunFactory
from kvviz.sources.loader import Load, Progress
from kvviz.sources.run_settings import RunSettings, check_pool, engine_config

if TYPE_CHECKING:
    from kvviz.model.loading import LoadedModel
    from kvviz.model.run import ModelRun


def load_model(model: str | None, dtype: str, *, frame_bytes: int, max_pool_bytes: int) -> Load:
    """A function that loads the named model (None: the default); see `kvviz.model.loading.load`."""

    def load(progress: Progress) -> RunFactory:
        from kvviz.model.loading import load as load_weights

        loaded = load_weights(model, dtype, progress)
        progress("loading", None, f"Checking {loaded.name} against its plain forward pass")
        return open_loaded(loaded, frame_bytes=frame_bytes, max_pool_bytes=max_pool_bytes)

    return load


def open_loaded(loaded: LoadedModel, *, frame_bytes: int, max_pool_bytes: int) -> RunFactory:
    """A function that creates runs of a loaded model. Raises `ModelError` if the model fails the self-check."""
    from kvviz.comparison.calibration import CalibratedModel
    from kvviz.comparison.comparison import Comparison
    from kvviz.comparison.lane import lane_choices, parse_lanes
    from kvviz.model.instrumented import InstrumentedModel
    from kvviz.model.run import ModelRun

    instrumented = InstrumentedModel.of(loaded)
    bytes_per_token = instrumented.geometry.bytes_per_token
    calibrated = CalibratedModel(instrumented, loaded.tokenizer)

    def make_model_run(*arguments: Any, **options: Any) -> ModelRun:
        run = ModelRun(*arguments, frame_budget=frame_bytes, keep_entries=True, **options)
        run.live_header = {"lane_choices": lane_choices()}
        return run

    def make_run(settings: RunSettings, scenario: str | None = None) -> LiveModel:
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
        run = make_model_run(instrumented, loaded.tokenizer, config)
        run.runner.capture = settings.capture is not False
        return run

    def open_scenario(name: str) -> LiveModel:
        found = None if name in TIMING_SCENARIOS else find_scenario(name, tuple(TIMING_SCENARIOS))
        if loaded.tokenizer is None:
            raise RequestError(
                "Scenarios need a tokenizer, which this model doesn't have; use another model.", code="no_tokenizer"
            )
        script: Performance | TimingAttack
        if found is None:
            script = open_timing_attack(instrumented, loaded.tokenizer, make_model_run, shared=TIMING_SCENARIOS[name])
        else:
            script = open_performance(found, instrumented, loaded.tokenizer, make_model_run)
        script.model_run.script = script
        return script.model_run

    return make_run
