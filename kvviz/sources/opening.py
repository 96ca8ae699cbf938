"""The real model behind a live source. Importing this module imports no torch; loading the model does."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from kvviz.config import EngineConfig, blocks_in_bytes
from kvviz.errors import ConfigError, RequestError
from kvviz.events import SamplingParams
from kvviz.experiments.scenarios import Performance, find_scenario, open_performance
from kvviz.experiments.timing import TIMING_SCENARIOS, TimingAttack, open_timing_attack
from kvviz.log.event_log import EventLog
from kvviz.log.frames import FrameSource
from kvviz.log.recording import LogParts
from kvviz.sources.controls import RunSettings
from kvviz.sources.lane_source import LaneLog
from kvviz.sources.live_model import LiveModel, OpenModel
from kvviz.sources.loader import Load, Progress
from kvviz.sources.source import Run

if TYPE_CHECKING:
    from kvviz.comparison.comparison import Comparison
    from kvviz.model.loading import LoadedModel
    from kvviz.model.run import ModelRun

MAX_TITLE_LENGTH = 80


def load_model(model: str | None, dtype: str, *, frame_bytes: int, max_pool_bytes: int) -> Load:
    """What loads the named model (None: the default one) when called; see `kvviz.model.loading.load`."""

    def load(progress: Progress) -> OpenModel:
        from kvviz.model.loading import load as load_weights

        loaded = load_weights(model, dtype, progress)
        progress("loading", None, f"Checking {loaded.name} against its own plain forward")
        return open_loaded(loaded, frame_bytes=frame_bytes, max_pool_bytes=max_pool_bytes)

    return load


def open_loaded(loaded: LoadedModel, *, frame_bytes: int, max_pool_bytes: int) -> OpenModel:
    """What makes sessions of a model in memory. Raises `ModelError` when it does not pass the self-check."""
    from kvviz.comparison.calibration import CalibratedModel
    from kvviz.comparison.comparison import Comparison
    from kvviz.comparison.lane import parse_lanes
    from kvviz.model.instrumented import InstrumentedModel
    from kvviz.model.run import ModelRun

    observed = InstrumentedModel(loaded.model, name=loaded.name, fingerprint=loaded.fingerprint)
    bytes_per_token = observed.geometry.bytes_per_token
    calibrated = CalibratedModel(observed, loaded.tokenizer)

    def open_model(settings: RunSettings, scenario: str | None = None) -> LiveModel:
        if scenario is not None:
            return open_scenario(scenario)
        config = engine_config(settings, bytes_per_token, max_pool_bytes)
        if settings.lanes is not None:
            lanes = parse_lanes(settings.lanes)
            for lane in lanes:
                read = lane.storage(calibrated, config.block_size)[1]  # more heads, more bytes
                check_pool(lane.config(config), max(bytes_per_token, read.bytes_per_token), max_pool_bytes)
            return ComparisonModel(
                Comparison(
                    observed,
                    loaded.tokenizer,
                    config,
                    lanes,
                    frame_budget=frame_bytes,
                    keep_entries=True,
                    calibrated=calibrated,
                )
            )
        session = ModelRun(observed, loaded.tokenizer, config, frame_budget=frame_bytes, keep_entries=True)
        session.capture = settings.capture is not False
        return SessionModel(session)

    def open_scenario(name: str) -> LiveModel:
        found = None if name in TIMING_SCENARIOS else find_scenario(name, tuple(TIMING_SCENARIOS))
        if loaded.tokenizer is None:
            raise RequestError("Scenarios are prompts, and this model has no tokenizer.", code="no_tokenizer")
        make = partial(ModelRun, frame_budget=frame_bytes, keep_entries=True)
        performance: Performance | TimingAttack
        if found is None:
            performance = open_timing_attack(observed, loaded.tokenizer, make, shared=TIMING_SCENARIOS[name])
        else:
            performance = open_performance(found, observed, loaded.tokenizer, make)
        return SessionModel(performance.session, performance)

    return open_model


def engine_config(settings: RunSettings, bytes_per_token: int, max_pool_bytes: int) -> EngineConfig:
    """The engine's config for these settings. Raises `ConfigError`, with the arithmetic when the pool is too large."""
    given = settings.model_dump(exclude_none=True, exclude={"pool_bytes", "capture", "lanes"})
    config = EngineConfig(**given)
    block_bytes = config.block_size * bytes_per_token
    if settings.pool_bytes is not None:
        if settings.num_blocks is not None:
            raise ConfigError(
                "The size of the pool is given by num_blocks or by pool_bytes, but both came; leave one out.",
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
            f"{host_bytes:,} B, and a host tier may take {max_pool_bytes:,} B here; use at most "
            f"{max_pool_bytes // block_bytes:,} blocks of this size.",
            setting="num_host_blocks",
            high=max_pool_bytes // block_bytes,
        )
    if config.num_blocks * block_bytes > max_pool_bytes:
        raise ConfigError(
            f"{config.num_blocks:,} blocks × {config.block_size} tokens × {bytes_per_token:,} B are "
            f"{config.num_blocks * block_bytes:,} B, and a pool may take {max_pool_bytes:,} B here; "
            f"use at most {max_pool_bytes // block_bytes:,} blocks of this size.",
            setting="num_blocks",
            high=max_pool_bytes // block_bytes,
        )


class SessionModel:
    """A `ModelRun` as a live source drives it, by itself or by the script of a scenario."""

    def __init__(self, session: ModelRun, performance: Performance | TimingAttack | None = None) -> None:
        self._session = session
        self._performance = performance

    @property
    def log(self) -> EventLog:
        """Its events."""
        return self._session.log

    @property
    def frames(self) -> FrameSource:
        """Its tensors."""
        return self._session.frames

    @property
    def lanes(self) -> tuple[LaneLog, ...]:
        """None: one engine."""
        return ()

    @property
    def has_work(self) -> bool:
        """Whether a step would compute anything."""
        return self._performance.has_work if self._performance else self._session.has_work

    @property
    def num_steps(self) -> int:
        """Steps that have run."""
        return self._session.engine.num_steps

    def header(self) -> dict[str, Any]:
        """The header of the run."""
        from kvviz.comparison.lane import choices

        return {**self._session.header(), "lane_choices": choices()}

    def add_prompt(
        self,
        prompt: str,
        *,
        template: bool | None = None,
        max_new_tokens: int = 64,
        sampling: SamplingParams | None = None,
        salt: str | None = None,
        continues: int | None = None,
        priority: int = 0,
        num_samples: int = 1,
        needle: bool = False,
    ) -> int:
        """Tokenize a prompt and put it in the waiting line."""
        if needle:
            raise RequestError("A needle is hidden in a comparison; start one with lanes first.", code="no_lanes")
        return self._session.add_prompt(
            prompt,
            template=template,
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            salt=salt,
            continues=continues,
            priority=priority,
            num_samples=num_samples,
        )

    def fork(self, request_id: int, position: int, token_id: int | None, max_new_tokens: int | None) -> int:
        """Branch off a request."""
        return self._session.engine.fork(request_id, position, token_id, max_new_tokens=max_new_tokens)

    def set_priority(self, request_id: int, priority: int) -> None:
        """Give an unfinished request another priority."""
        self._session.engine.reprioritise(request_id, priority)

    def step(self) -> bool:
        """One step, frames included."""
        return self._performance.step() if self._performance else self._session.step()

    def cancel(self, request_id: int) -> None:
        """End a request."""
        self._session.engine.cancel(request_id)

    def reset_prefix_cache(self) -> bool:
        """Forget every cached prefix."""
        return self._session.engine.reset_prefix_cache()

    def snapshot(self) -> Callable[[Path], None]:
        """What has happened up to now, as something that writes itself to a file, in any thread.

        Raises `RequestError` when the beginning of the log has been folded away, as a recording holds it whole.
        """
        from kvviz.log.recording import write_recording

        log = self._session.log
        if log.first_seq:
            raise RequestError(
                f"The first {log.first_seq:,} records of this log have been folded away, so it cannot be saved whole; "
                "begin a new log and save it earlier.",
                code="folded",
            )
        frames, lines = list(self._session.recorded_frames()), log.encoded(-1, log.head_seq + 1)
        header = {**self._session.header(), "title": _title(lines) or self._session.observed.name}
        return lambda path: write_recording(path, header, lines, frames)

    def close(self) -> None:
        """Nothing holds on to the pool once the session is let go."""


class ComparisonModel:
    """A `Comparison` as a live source drives it: the log is that of lane 0, the others have logs of their own."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    @property
    def log(self) -> EventLog:
        """Lane 0's events, and what was measured of all lanes."""
        return self._comparison.main.log

    @property
    def frames(self) -> FrameSource:
        """Lane 0's tensors."""
        return self._comparison.main.frames

    @property
    def lanes(self) -> tuple[LaneLog, ...]:
        """The lanes after the first."""
        comparison = self._comparison
        return tuple(
            LaneLog(
                Run(session.log, comparison.header(index), session.frames),
                partial(getattr, session, "num_settled"),
            )
            for index, session in enumerate(comparison.sessions)
            if index
        )

    @property
    def has_work(self) -> bool:
        """Whether a step would compute anything."""
        return self._comparison.has_work

    @property
    def num_steps(self) -> int:
        """Steps of lane 0 that have run."""
        return self._comparison.main.engine.num_steps

    def header(self) -> dict[str, Any]:
        """The header of the run, lanes and all."""
        from kvviz.comparison.lane import choices

        return {**self._comparison.header(), "lane_choices": choices()}

    def add_prompt(self, prompt: str, *, num_samples: int = 1, **options: Any) -> int:
        """Give a prompt to all lanes."""
        if num_samples > 1:
            raise RequestError(
                f"A comparison writes one text, but {num_samples} samples were asked for; leave them out.", code="lanes"
            )
        return self._comparison.add_prompt(prompt, **options)

    def fork(self, request_id: int, position: int, token_id: int | None, max_new_tokens: int | None) -> int:
        """Refuse: the lanes read one text."""
        raise RequestError(
            "A comparison reads one text in all lanes, so nothing can branch off it; begin an ordinary log for that.",
            code="lanes",
        )

    def set_priority(self, request_id: int, priority: int) -> None:
        """The one request that runs needs none, but it may have one."""
        self._comparison.main.engine.reprioritise(request_id, priority)

    def step(self) -> bool:
        """One step of lane 0, and the others up to where it stands."""
        return self._comparison.step()

    def cancel(self, request_id: int) -> None:
        """End a request in all lanes."""
        self._comparison.cancel(request_id)

    def reset_prefix_cache(self) -> bool:
        """Forget every cached prefix, in all lanes."""
        answers = [session.engine.reset_prefix_cache() for session in self._comparison.sessions]
        return all(answers)

    def snapshot(self) -> Callable[[Path], None]:
        """What has happened up to now in all lanes, as something that writes itself to a file."""
        from kvviz.log.recording import write_recording

        parts = comparison_parts(self._comparison)
        return lambda path: write_recording(path, *parts[0], lanes=parts[1:])

    def close(self) -> None:
        """Nothing holds on to the pools once the comparison is let go."""


def comparison_parts(comparison: Comparison) -> list[LogParts]:
    """Header, lines and frames of each lane, for a recording. Raises `RequestError` when a log is not whole."""
    parts: list[LogParts] = []
    for index, session in enumerate(comparison.sessions):
        log = session.log
        if log.first_seq:
            raise RequestError(
                f"The first {log.first_seq:,} records of this log have been folded away, so it cannot be saved whole; "
                "begin a new log and save it earlier.",
                code="folded",
            )
        lines = log.encoded(-1, log.head_seq + 1)
        title = _title(lines) or session.observed.name
        parts.append(({**comparison.header(index), "title": title}, lines, list(session.recorded_frames())))
    return parts


def _title(lines: list[bytes]) -> str:
    """The beginning of the first prompt."""
    for line in lines[:100]:
        event = orjson.loads(line)[2]
        if event["type"] == "request_added":
            return textwrap.shorten(event["prompt"], MAX_TITLE_LENGTH, placeholder=" …")
    return ""
