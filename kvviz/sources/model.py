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
from kvviz.frames import FrameSource
from kvviz.log import EventLog
from kvviz.scenarios import Performance, find_scenario, open_performance
from kvviz.sources.commands import RunSettings
from kvviz.sources.live_model import LiveModel, OpenModel
from kvviz.sources.loading import Load, Progress

if TYPE_CHECKING:
    from kvviz.model.loading import LoadedModel
    from kvviz.model.session import ModelSession

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
    from kvviz.model.observed import ObservedModel
    from kvviz.model.session import ModelSession

    observed = ObservedModel(loaded.model, name=loaded.name, fingerprint=loaded.fingerprint)
    bytes_per_token = observed.geometry.bytes_per_token

    def open_model(settings: RunSettings, scenario: str | None = None) -> LiveModel:
        if scenario is not None:
            return open_scenario(scenario)
        config = engine_config(settings, bytes_per_token, max_pool_bytes)
        session = ModelSession(observed, loaded.tokenizer, config, frame_budget=frame_bytes, keep_entries=True)
        session.capture = settings.capture is not False
        return SessionModel(session)

    def open_scenario(name: str) -> LiveModel:
        found = find_scenario(name)
        if loaded.tokenizer is None:
            raise RequestError("Scenarios are prompts, and this model has no tokenizer.", code="no_tokenizer")
        make = partial(ModelSession, frame_budget=frame_bytes, keep_entries=True)
        performance = open_performance(found, observed, loaded.tokenizer, make)
        return SessionModel(performance.session, performance)

    return open_model


def engine_config(settings: RunSettings, bytes_per_token: int, max_pool_bytes: int) -> EngineConfig:
    """The engine's config for these settings. Raises `ConfigError`, with the arithmetic when the pool is too large."""
    given = settings.model_dump(exclude_none=True, exclude={"pool_bytes", "capture"})
    config = EngineConfig(**given)
    block_bytes = config.block_size * bytes_per_token
    if settings.pool_bytes is not None:
        if settings.num_blocks is not None:
            raise ConfigError(
                "The size of the pool is given by num_blocks or by pool_bytes, but both came; leave one out.",
                setting="pool_bytes",
            )
        config = EngineConfig(**given, num_blocks=blocks_in_bytes(settings.pool_bytes, block_bytes))
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
    return config


class SessionModel:
    """A `ModelSession` as a live source drives it, by itself or by the script of a scenario."""

    def __init__(self, session: ModelSession, performance: Performance | None = None) -> None:
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
    def has_work(self) -> bool:
        """Whether a step would compute anything."""
        return self._performance.has_work if self._performance else self._session.has_work

    @property
    def num_steps(self) -> int:
        """Steps that have run."""
        return self._session.engine.num_steps

    def header(self) -> dict[str, Any]:
        """The header of the run."""
        return self._session.header()

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
    ) -> int:
        """Tokenize a prompt and put it in the waiting line."""
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
        from kvviz.recording import write_recording

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


def _title(lines: list[bytes]) -> str:
    """The beginning of the first prompt."""
    for line in lines[:100]:
        event = orjson.loads(line)[2]
        if event["type"] == "request_added":
            return textwrap.shorten(event["prompt"], MAX_TITLE_LENGTH, placeholder=" …")
    return ""
