"""A live engine as a source. One worker thread owns the engine and does everything with it."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from kvviz.errors import KvvizError
from kvviz.sources.controls import (
    AddRequest,
    Cancel,
    EngineCommand,
    Fork,
    NewRequest,
    Pause,
    Play,
    PlayScenario,
    ResetPrefixCache,
    SetPriority,
    SetRate,
    Start,
    Step,
)
from kvviz.sources.lane_source import LaneLog
from kvviz.sources.live_model import LiveModel, RunFactory
from kvviz.sources.run_settings import RunSettings
from kvviz.sources.source import PlayState, Run
from kvviz.sources.turns import Turns
from kvviz.sources.worker import Worker, as_kvviz_error

T = TypeVar("T")


class LiveSource:
    """Runs a `LiveModel` on demand, in its own thread, never on the event loop.

    Commands that change the log (`add_request`, `fork`, `step`, `reset_prefix_cache`, `start`) run in order, each
    `step` to completion. `pause` and `start` drop steps that are still pending. `cancel`, `set_priority` and reads of
    the pool run between two steps. All sessions with the same weights share `turns`. Playing ends when no work is left.
    `model` may be touched in `between_steps` only.
    """

    kind: Literal["live", "recording"] = "live"

    def __init__(self, run_factory: RunFactory, turns: Turns, settings: RunSettings | None = None) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._run_factory = run_factory
        self._turns = turns
        self.play = PlayState()
        self._play_lock = threading.Lock()
        self._num_cuts = 0
        self._step_began_s = float("-inf")
        self.failure: tuple[int, KvvizError] | None = None
        self._begin(run_factory(settings or RunSettings()))
        self._worker = Worker(self._play_on, "kvviz-engine", yields=True)
        self._reader = ThreadPoolExecutor(max_workers=2, thread_name_prefix="kvviz-frames")
        self._worker.start()

    def execute(self, command: EngineCommand) -> Future[Any]:
        """Execute a command, in the order described above. The future raises `KvvizError` if it fails."""
        match command:
            case Step(count=count):
                num_cuts = self._num_cuts
                return self._worker.submit(lambda: self._steps(count, num_cuts))
            case AddRequest():
                return self._worker.submit(lambda: self._add_request(command))
            case Fork():
                return self._worker.submit(lambda: self._fork(command))
            case SetPriority(request_id=request_id, priority=priority):
                return self._worker.interpose(lambda: self.model.set_priority(request_id, priority))
            case ResetPrefixCache():
                return self._worker.submit(lambda: {"ok": self.model.reset_prefix_cache()})
            case Start(config=settings, requests=requests):
                self._num_cuts += 1
                return self._worker.submit(lambda: self._start(settings, requests))
            case PlayScenario(name=name):
                self._num_cuts += 1
                return self._worker.submit(lambda: self._start(RunSettings(), scenario=name))
            case Cancel(request_id=request_id):
                return self._worker.interpose(lambda: self._cancel(request_id))
            case Play():
                self._step_began_s = float("-inf")
                return self._set_play(lambda play: replace(play, playing=True))
            case Pause():
                self._num_cuts += 1
                return self._set_play(lambda play: replace(play, playing=False))
            case SetRate(steps_per_second=rate):
                return self._set_play(lambda play: replace(play, rate=rate))

    def read(self, work: Callable[[], T]) -> Future[T]:
        return self._reader.submit(work)

    def between_steps(self, work: Callable[[], T]) -> Future[T]:
        return self._worker.interpose(work)

    def save(self, spare: Path) -> Future[Path]:
        def write() -> Path:
            self._worker.interpose(lambda: self.model.snapshot()).result()(spare)
            return spare

        return self._reader.submit(write)

    def close(self) -> None:
        """Stop after the current step, and reject pending work."""
        if not self._worker.closed:
            self._worker.close()
            self._reader.shutdown(cancel_futures=True)

    def _begin(self, model: LiveModel) -> None:
        self.model = model
        self._player = model.script or model
        self.num_steps = model.num_steps
        main, *lanes = model.runs
        self.run = Run(main.log, {**model.header(), **model.live_header}, main.frames)
        self.lanes = tuple(
            LaneLog(Run(lane.log, model.header(index), lane.frames), partial(getattr, lane, "num_settled"))
            for index, lane in enumerate(lanes, 1)
        )
        with self._play_lock:
            self.play = replace(self.play, playing=False, idle=not self._player.has_work)
        main.log.subscribe(lambda: self.on_change())

    def _start(
        self, settings: RunSettings, requests: Sequence[NewRequest] = (), scenario: str | None = None
    ) -> dict[str, Any]:
        new = self._run_factory(settings, scenario)
        request_ids = [new.add_prompt(request.asked()) for request in requests]
        self._begin(new)
        gc.collect()  # the old pool and frames are hundreds of megabytes, in reference cycles
        self.on_change()
        return {"log_id": self.run.log.log_id, "request_ids": request_ids}

    def _add_request(self, command: AddRequest) -> dict[str, int]:
        request_id = self.model.add_prompt(command.asked())
        self._note_work()
        return {"request_id": request_id}

    def _fork(self, command: Fork) -> dict[str, int]:
        request_id = self.model.fork(command.request_id, command.position, command.token_id, command.max_new_tokens)
        self._note_work()
        return {"request_id": request_id}

    def _cancel(self, request_id: int) -> None:
        self.model.cancel(request_id)
        self._note_work()

    def _steps(self, count: int, num_cuts: int) -> dict[str, int]:
        num_done = 0
        while num_done < count and num_cuts == self._num_cuts and not self._worker.closed and self._step():
            num_done += 1
            self._worker.run_interposed()
        return {"num_steps": num_done}

    def _step(self) -> bool:
        try:
            with self._turns:
                return self._player.step()
        finally:
            self.num_steps = self.model.num_steps
            self._note_work()

    def _play_on(self) -> float | None:
        """Run one step if playing and due. Returns the seconds until the next one; None: not playing."""
        play = self.play
        if not play.playing or not self._player.has_work:
            return None
        pause_s = 1.0 / play.rate if play.rate else 0.0
        wait_s = self._step_began_s + pause_s - time.monotonic()
        if wait_s > 0:
            return wait_s
        self._step_began_s = time.monotonic()
        try:
            self._step()
        except Exception as error:
            self.failure = ((self.failure[0] if self.failure else 0) + 1, as_kvviz_error(error))
            self._set_play(lambda play: replace(play, playing=False))
        return 0

    def _note_work(self) -> None:
        """Update the play state. Playing ends when no work is left."""
        idle = not self._player.has_work
        self._set_play(lambda play: replace(play, idle=idle, playing=play.playing and not idle))

    def _set_play(self, change: Callable[[PlayState], PlayState]) -> Future[Any]:
        with self._play_lock:
            self.play = change(self.play)
        self._worker.wake()
        self.on_change()
        done: Future[Any] = Future()
        done.set_result(None)
        return done
